"""Agreement of classes: logits, and probabilities with their distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.inputs.dataset.batch import Batch, BoolArray
from workbench.inputs.metrics.agreement.judge import (
    Floats,
    Fractions,
    MetricSpec,
    Outputs,
    columns,
    cosines,
    counted,
    flat,
    number,
    pair,
)
from workbench.values.interface import OutputUse

_SUMS_TO_ONE = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsJudge:
    """Unnormalized scores [n, ..., classes]: does the largest stand at the same place, over every decision?

    A single score per decision is compared by its sign.
    """

    use: OutputUse

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.use.name,)

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="top1_agreement", about="decisions with the float model's top answer"),
            MetricSpec(name="cosine", about="mean over samples", bounds=(-1.0, 1.0)),
            MetricSpec(name="max_abs_error", about="of any value", unit="abs", higher=False, bounds=None, reduce="max"),
            MetricSpec(name="mae", about="mean over values", unit="abs", higher=False, bounds=None),
            MetricSpec(
                name="kl", about="of the float model's softmax to this one's", unit="nats", higher=False, bounds=None
            ),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        ours, theirs = pair(outputs, reference, self.use.name, batch)
        same, kept = _agree(ours, theirs, batch, threshold=0.0, largest=_has_classes(ours))
        errors = np.abs(flat(ours, batch) - flat(theirs, batch))
        values = counted(ours, batch).reshape(len(batch), -1).sum(axis=1)
        decisions = kept.reshape(len(batch), -1).sum(axis=1)
        return columns(
            ((same & kept).reshape(len(batch), -1).sum(axis=1), decisions),
            (cosines(flat(ours, batch), flat(theirs, batch)), 1.0),
            (errors.max(axis=1, initial=0.0), 1.0),
            (errors.sum(axis=1), values),
            ((_divergence(ours, theirs) * kept).reshape(len(batch), -1).sum(axis=1), decisions),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilitiesJudge:
    """Probabilities [n, ...]: how far they move, and which decisions flip.

    A vector that sums to 1 along the last axis decides by its largest; anything else, or anything with a `threshold`
    in the manifest, by whether it reaches the threshold (0.5).
    """

    use: OutputUse

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.use.name,)

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="decision_agreement", about="decisions that do not flip"),
            MetricSpec(name="mean_dp", about="mean absolute change of a probability", higher=False),
            MetricSpec(name="max_dp", about="largest absolute change of a probability", higher=False, reduce="max"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        ours, theirs = pair(outputs, reference, self.use.name, batch)
        forced = "threshold" in dict(self.use.options)
        largest = not forced and _has_classes(theirs) and _is_distribution(theirs, batch)
        same, kept = _agree(ours, theirs, batch, threshold=number(self.use, "threshold", 0.5), largest=largest)
        moved = np.abs(flat(ours, batch) - flat(theirs, batch))
        return columns(
            ((same & kept).reshape(len(batch), -1).sum(axis=1), kept.reshape(len(batch), -1).sum(axis=1)),
            (moved.sum(axis=1), counted(ours, batch).reshape(len(batch), -1).sum(axis=1)),
            (moved.max(axis=1, initial=0.0), 1.0),
        )


def _has_classes(array: Floats) -> bool:
    return array.ndim >= 2 and array.shape[-1] > 1


def _agree(
    ours: Floats, theirs: Floats, batch: Batch, *, threshold: float, largest: bool
) -> tuple[BoolArray, BoolArray]:
    """(equal decisions, those that are of no padding), one for each vector or one for each value."""
    if largest:
        same: BoolArray = ours.argmax(axis=-1) == theirs.argmax(axis=-1)
    else:
        same = (ours > threshold) == (theirs > threshold)
    return same, counted(same, batch, least_rank=2 if largest else 3)


def _is_distribution(array: Floats, batch: Batch) -> bool:
    sums = array.sum(axis=-1)
    kept = counted(sums, batch, least_rank=2)
    return bool((np.abs(sums[kept] - 1) < _SUMS_TO_ONE).all()) and bool((array >= -_SUMS_TO_ONE).all())


def _divergence(ours: Floats, theirs: Floats) -> Floats:
    """Kullback-Leibler divergence of each decision; a single score is the logit of a Bernoulli variable."""
    if not _has_classes(ours):
        ours, theirs = (np.stack([np.zeros_like(scores), scores], axis=-1) for scores in (ours, theirs))
    log_ours, log_theirs = (_log_softmax(scores) for scores in (ours, theirs))
    return np.asarray((np.exp(log_theirs) * (log_theirs - log_ours)).sum(axis=-1).clip(min=0.0), dtype=np.float64)


def _log_softmax(scores: Floats) -> Floats:
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float64)
