"""How the recipes of a language model compare: each with float, and with the best of the space's presets.

The presets are what is tried without a search. Differences between recipes are paired over windows, with intervals that
hold for all pairs at once (`values.simultaneous`): with two dozen recipes one pair in twenty would differ by chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.report.alike import OutcomesOf
from workbench.values.measurement import Estimate
from workbench.values.paired_scores import PairedScores
from workbench.values.results import Evaluation
from workbench.values.simultaneous import all_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One recipe in the search.

    Attributes:
        preset: its name, of one that the space gives.
        against_preset: its loss less the best preset's, in the unit of drops, with a simultaneous interval; None for
            that preset itself, and where there is none.
    """

    candidate_id: str
    preset: str
    against_preset: Estimate | None

    @property
    def told_apart(self) -> bool:
        """Whether windows tell it from the best preset."""
        known = self.against_preset
        return known is not None and (known.low > 0 or known.high < 0)


def recipes_of(
    evaluations: Sequence[Evaluation], outcomes: OutcomesOf, presets: Mapping[str, str], baseline_id: str
) -> tuple[Recipe, ...]:
    """Those that were judged in full, the least loss first; nothing of other models.

    Args:
        presets: candidate id → name, of those of the space.
    """
    found: list[tuple[Evaluation, PairedScores]] = []
    for evaluation in evaluations:
        if evaluation.measurement.language is None or evaluation.candidate.id == baseline_id:
            continue
        # kept only of what was judged over the whole split, also where it then was over a limit
        scores = outcomes(evaluation.candidate.id, "validation")
        if isinstance(scores, PairedScores):
            found.append((evaluation, scores))
    found = [(e, scores) for e, scores in found if len(scores) == len(found[0][1])]
    found.sort(key=lambda each: (float(each[1].numerators.sum()), each[0].candidate.id))
    if not found:
        return ()
    best = next((place for place, (e, _) in enumerate(found) if e.candidate.id in presets), None)
    pairs = all_pairs(np.stack([scores.numerators for _, scores in found]), found[0][1].denominators)
    rows = []
    for place, (evaluation, _) in enumerate(found):
        known = None
        if best is not None and place != best:
            nats = [float(each[place, best]) for each in (pairs.difference, pairs.low, pairs.high)]
            accuracy = evaluation.measurement.accuracy
            percent = accuracy is not None and accuracy.unit == "%"
            value, low, high = [100 * math.expm1(min(each, 50.0)) for each in nats] if percent else nats
            known = Estimate(value=value, low=low, high=high)
        name = presets.get(evaluation.candidate.id, "")
        rows.append(Recipe(candidate_id=evaluation.candidate.id, preset=name, against_preset=known))
    return tuple(rows)
