"""What samples can say of a limit on the accuracy drop: before a sweep, and of a candidate that is rejected by it."""

from __future__ import annotations

import math

import numpy as np

from workbench.inputs.experiment import Experiment
from workbench.values.measurement import AccuracyComparison, Split
from workbench.values.paired_scores import PairedScores
from workbench.values.significance import Outcomes

_Z = 1.96


def too_fine(experiment: Experiment) -> list[str]:
    """A sentence for each split whose single sample weighs more than the limit on the drop.

    Sentences with entities weigh by how many each holds, which nobody has counted yet; of them nothing is said.
    """
    limit_pp = next((c.limit for c in experiment.constraints if c.metric == "accuracy_drop_pp"), None)
    if limit_pp is None or limit_pp <= 0 or experiment.dataset.task == "ner":
        return []
    found = []
    splits: tuple[Split, ...] = ("validation", "holdout")
    for split in splits:
        samples = experiment.dataset.size(split)
        if 100 / samples > limit_pp:
            found.append(
                f"accuracy_drop_pp <= {limit_pp:g} pp is finer than one sample of {split}: of {samples} samples one is "
                f"{100 / samples:.3g} pp. {samples_to_see(limit_pp)} samples are needed to see such a drop, about "
                f"{samples_to_be_certain(limit_pp)} to be certain of a smaller one."
            )
    return found


def samples_to_see(limit_pp: float) -> int:
    """So many that one of them weighs no more than the limit."""
    return math.ceil(100 / limit_pp)


def samples_to_be_certain(limit_pp: float) -> int:
    """So many that Tango's interval of two models that agree on all of them ends at the limit."""
    return math.ceil(_Z**2 * (100 / limit_pp - 1))


def rejection(
    metric: str, comparison: AccuracyComparison, limit: float, baseline: Outcomes, candidate: Outcomes
) -> str:
    """'accuracy drop 1.00 pp [0.18, 2.84], limit 0.5: not certain: 1 of 100 samples lost, 0 won'."""
    drop, unit = comparison.drop_pp, comparison.unit
    words = f"{metric} {drop.value:.2f} {unit} [{drop.low:.2f}, {drop.high:.2f}], limit {limit:g}: "
    if drop.low > limit:
        return words + "certain"
    return words + f"not certain: {_counted(baseline, candidate)}"


def _counted(baseline: Outcomes, candidate: Outcomes) -> str:
    ours, theirs = _values(candidate), _values(baseline)
    lost, won = int(np.count_nonzero(ours < theirs)), int(np.count_nonzero(ours > theirs))
    samples = f"{len(ours)} sample{'' if len(ours) == 1 else 's'}"
    return f"{lost} of {samples} worse, {won} better"


def _values(outcomes: Outcomes) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """How well each sample did; more is better."""
    if isinstance(outcomes, PairedScores):
        return np.asarray(outcomes.turned / np.where(outcomes.denominators == 0, 1.0, outcomes.denominators))
    if outcomes.ndim == 1:
        return outcomes.astype(np.float64)
    entities = np.maximum(outcomes[:, 1] + outcomes[:, 2], 1)
    return np.asarray(2 * outcomes[:, 0] / entities, dtype=np.float64)
