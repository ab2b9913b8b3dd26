"""What samples can say of a limit on the accuracy loss: before a sweep, and of a candidate that is rejected by it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from workbench.inputs.dataset import Batch
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.agreement.judges import AGAINST, FLOAT
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.outcomes import GOLD
from workbench.inputs.metrics.score import Outputs, count_entities, tag_set
from workbench.values.measurement import AccuracyComparison, Split
from workbench.values.objectives import Constraint
from workbench.values.paired_scores import PairedScores
from workbench.values.significance import Outcomes

_Z = 1.96
_ONE_VECTOR = 2
"""Axes of an output with one decision a sample."""
_ROUNDING = 1e-9
_COUNTED_AT_ONCE = 64


Runs = Sequence[tuple[Batch, Outputs]]


def too_fine(experiment: Experiment, runs: Runs = ()) -> list[str]:
    """A sentence for each limit and split whose single sample, or entity, weighs more than the limit allows.

    Args:
        runs: of the float model, which tell how much is decided in a sample; else the output's shape does.
    """
    splits: tuple[Split, ...] = ("validation", "holdout")
    found = []
    for constraint in experiment.constraints:
        for split in splits:
            said = None
            if constraint.metric == "accuracy_loss_pp":
                said = _drop_too_fine(experiment, constraint.limit, split, runs)
            elif constraint.of_output is not None:
                said = _output_too_fine(experiment, constraint, split, runs)
            found += [said] if said is not None else []
    return found


def _drop_too_fine(experiment: Experiment, limit_pp: float, split: Split, runs: Runs) -> str | None:
    data = experiment.dataset
    scorer = scorer_of(data, experiment.model)
    if data.retrieval is not None:  # a query may lose a part
        return None
    if limit_pp <= 0 or (isinstance(scorer, MeaningScorer) and not _one_each(experiment, scorer, scorer.primary, runs)):
        return None
    count, one, many = data.size(split), "sample", "samples"
    if data.task == "ner" and data.metric is None:  # entities that the labels name, cut as texts are cut
        tags, one, many = tag_set(data.labels), "entity", "entities"
        golds = (batch.targets for batch in data.batches(split, _COUNTED_AT_ONCE))
        count = sum(int(count_entities(tags, gold, gold)[0][..., GOLD].sum()) for gold in golds if gold is not None)
    if count and 100 / count <= limit_pp:
        return None
    if not count:
        return f"accuracy_loss_pp <= {limit_pp:g} pp says nothing of {split}, which holds no {one} at all."
    return (
        f"accuracy_loss_pp <= {limit_pp:g} pp is finer than one {one} of {split}: of {count} {many} one is "
        f"{100 / count:.3g} pp. {math.ceil(100 / limit_pp)} {many} are needed to see such a loss, about "
        # so many that Tango's interval of two models that agree on all of them ends at the limit
        f"{math.ceil(_Z**2 * (100 / limit_pp - 1))} to be certain of a smaller one."
    )


def _output_too_fine(experiment: Experiment, constraint: Constraint, split: Split, runs: Runs) -> str | None:
    """Of a share of what samples have one of, against the float model, where all of them agree at best."""
    data = experiment.dataset
    scorer = scorer_of(data, experiment.model)
    if not isinstance(scorer, MeaningScorer):
        return None
    spec, use = scorer.spec_of(constraint.metric)
    labelled = AGAINST in dict(use.options) and not spec.name.rpartition(".")[2].startswith(FLOAT)
    allowed, samples = 1 - constraint.limit, data.size(split)
    if (
        labelled
        or not _one_each(experiment, scorer, spec.name, runs)
        or allowed <= 0
        or samples * allowed >= 1 - _ROUNDING
    ):
        return None
    needed = math.ceil(1 / allowed - _ROUNDING)
    return (
        f"{constraint} is finer than one sample of {split}: of {samples} samples one is {1 / samples:.3g}, so that "
        f"all of them must agree. {needed} samples are needed for one to differ."
    )


def _one_each(experiment: Experiment, scorer: MeaningScorer, metric: str, runs: Runs) -> bool:
    """Whether a metric is the share of samples that do well, each being one."""
    spec, use = scorer.spec_of(metric)
    if spec.counts == "decisions" and runs:
        column = [known.name for known in scorer.specs].index(metric)
        return all((scorer.score(found, batch, found).denominators[:, column] == 1).all() for batch, found in runs)
    shape = next((known.shape for known in experiment.model.outputs if known.name == use.name), ())
    one_decision = spec.counts == "decisions" and len(shape) == _ONE_VECTOR and not experiment.dataset.interface.state
    return spec.counts == "sequences" or one_decision


def rejection(
    metric: str, comparison: AccuracyComparison, limit: float, baseline: Outcomes, candidate: Outcomes
) -> str:
    """'accuracy loss 1.00 pp [0.18, 2.84], limit 0.5: not certain: 1 of 100 samples lost, 0 won'."""
    drop, unit = comparison.drop_pp, comparison.unit
    words = f"{metric} {drop.value:.2f} {unit} [{drop.low:.2f}, {drop.high:.2f}], limit {limit:g}: "
    if drop.low > limit:
        return words + "certain"
    ours, theirs = _values(candidate), _values(baseline)
    lost, won = int(np.count_nonzero(ours < theirs)), int(np.count_nonzero(ours > theirs))
    samples = f"{len(ours)} sample{'' if len(ours) == 1 else 's'}"
    return f"{words}not certain: {lost} of {samples} worse, {won} better"


def _values(outcomes: Outcomes) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """How well each sample did; more is better."""
    if isinstance(outcomes, PairedScores):
        return np.asarray(outcomes.turned / np.where(outcomes.denominators == 0, 1.0, outcomes.denominators))
    if outcomes.ndim == 1:
        return outcomes.astype(np.float64)
    entities = np.maximum(outcomes[:, 1] + outcomes[:, 2], 1)
    return np.asarray(2 * outcomes[:, 0] / entities, dtype=np.float64)
