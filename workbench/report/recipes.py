"""How the recipes of a language model compare: each with the best of the space's presets.

The presets are what is tried without a search. Differences between recipes are paired over windows, with intervals that
hold for all pairs at once (`significance.all_pairs`): with two dozen recipes one pair in twenty would differ by chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from workbench.report.alike import OutcomesOf
from workbench.report.summary import Recipe, Summary
from workbench.report.words import count_of
from workbench.values.measurement import Estimate
from workbench.values.paired_scores import PairedScores
from workbench.values.results import Evaluation
from workbench.values.significance import all_pairs

_FEW_WINDOWS = 10
"""With fewer, intervals over windows are rough."""


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


def recipe_sentences(summary: Summary) -> list[str]:
    """What the recipes come to beside the best preset; nothing where there is none."""
    best = next((r for r in summary.recipes if r.preset and r.against_preset is None), None)
    if best is None:
        return []
    against = [r for r in summary.recipes if r.against_preset is not None]
    better = [r for r in against if r.told_apart and r.against_preset is not None and r.against_preset.high < 0]
    alike = [r for r in against if not r.told_apart]
    found = [
        f"Of {count_of(len(against), 'recipe')} beside the best preset ({best.preset!r}), {len(better)} lose less for "
        f"certain, {len(alike)} cannot be told apart from it, and the rest lose more; these intervals hold for all "
        "pairs at once."
    ]
    windows = summary.find(best.candidate_id)
    count = windows.measurement.accuracy.samples if windows and windows.measurement.accuracy else 0
    if count < _FEW_WINDOWS:
        found.append(f"With {count_of(count, 'window')} these intervals are rough: give more text.")
    return found
