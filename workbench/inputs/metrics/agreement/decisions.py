"""Agreement of classes: logits, probabilities with their distance, ids in sequences, and masks of pixels."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.inputs.dataset.batch import NOT_SCORED, Batch, BoolArray, IntArray
from workbench.inputs.metrics.agreement.judge import (
    DISTANCES,
    Array,
    Floats,
    Fractions,
    Judge,
    MetricSpec,
    Outputs,
    columns,
    counted,
    distances,
    finite,
    output_of,
    sums,
)

_SUMS_TO_ONE = 1e-2


class _Decisions(Judge):
    """What classes and probabilities share: a label is the right class of every decision."""

    whole_labels = True

    @property
    def label_metrics(self) -> tuple[MetricSpec, ...]:
        return (MetricSpec(name="accuracy", about="decisions that are the labels'", counts="decisions"),)

    @abc.abstractmethod
    def decided(self, output: Floats, batch: Batch) -> IntArray:
        """The class of every decision."""

    def labelled(self, outputs: Outputs, labels: Sequence[Any], batch: Batch) -> Fractions:
        """Decisions that a label gives as `NOT_SCORED` do not count, nor does padding."""
        decided = self.decided(finite(output_of(outputs, self.use.name), self.use.name, batch), batch)
        right, there = np.zeros(len(batch)), np.zeros(len(batch))
        for row, label in enumerate(labels):
            sample = int(batch.indices[row])
            wanted = self.numbers(label, sample, whole=True)
            own = decided[row]
            if batch.valid is not None and own.ndim and len(own) == batch.valid.shape[1]:
                own = own[batch.valid[row]]
            if wanted.ndim and own.ndim and (wanted[len(own) :] == NOT_SCORED).all():
                wanted = wanted[: len(own)]
            if wanted.size != own.size:
                raise self.no_label(sample, f"has {wanted.size} classes for {own.size} decisions")
            wanted = wanted.reshape(own.shape)
            scored = wanted != NOT_SCORED
            right[row], there[row] = ((own == wanted) & scored).sum(), scored.sum()
        return columns((right, there))


class LogitsJudge(_Decisions):
    """Unnormalized scores [n, ..., classes]: does the largest stand at the same place, over every decision?

    A single score per decision is compared by its sign.
    """

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="top1_agreement", about=f"decisions with {whose} top answer", counts="decisions"),
            *DISTANCES,
            MetricSpec(name="kl", about=f"of {whose} softmax to this one's", unit="nats", higher=False, bounds=None),
        )

    def decided(self, output: Floats, batch: Batch) -> IntArray:
        return _classes(output, threshold=0.0, largest=_has_classes(output))

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        ours, theirs = self.pair(outputs, reference, batch)
        same, decisions, kept = _agree(ours, theirs, batch, threshold=0.0, largest=_has_classes(ours))
        return columns(
            (same, decisions),
            *distances(ours, theirs, batch),
            (sums(divergence(ours, theirs) * kept, batch), decisions),
        )


class ProbabilitiesJudge(_Decisions):
    """Probabilities [n, ...]: how far they move, and which decisions flip.

    A vector that sums to 1 along the last axis decides by its largest; anything else, or anything with a `threshold`
    in the manifest, by whether it reaches the threshold (0.5).
    """

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="decision_agreement", about="decisions that do not flip", counts="decisions"),
            MetricSpec(name="mean_dp", about="mean absolute change of a probability", higher=False),
            MetricSpec(name="max_dp", about="largest absolute change of a probability", higher=False, reduce="max"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        ours, theirs = self.pair(outputs, reference, batch)
        threshold, largest = self.number("threshold", 0.5), self._by_largest(theirs, batch)
        same, decisions, _ = _agree(ours, theirs, batch, threshold=threshold, largest=largest)
        _, most, mean = distances(ours, theirs, batch)
        return columns((same, decisions), mean, most)

    def decided(self, output: Floats, batch: Batch) -> IntArray:
        threshold = self.number("threshold", 0.5)
        return _classes(output, threshold=threshold, largest=self._by_largest(output, batch))

    def _by_largest(self, output: Floats, batch: Batch) -> bool:
        if "threshold" in dict(self.use.options) or not _has_classes(output):
            return False
        total = output.sum(axis=-1)
        off = np.abs(total[counted(total, batch, least_rank=2)] - 1)
        return bool((off < _SUMS_TO_ONE).all()) and bool((output >= -_SUMS_TO_ONE).all())


def _has_classes(array: Floats) -> bool:
    return array.ndim >= 2 and array.shape[-1] > 1


def _agree(
    ours: Floats, theirs: Floats, batch: Batch, *, threshold: float, largest: bool
) -> tuple[Floats, Floats, BoolArray]:
    """[n] equal decisions and all, one for each vector or one for each value; which of these are of no padding."""
    mine, other = (_classes(array, threshold=threshold, largest=largest) for array in (ours, theirs))
    kept = counted(mine, batch, least_rank=2 if largest else 3)
    return sums((mine == other) & kept, batch), sums(kept, batch), kept


def _classes(array: Floats, *, threshold: float, largest: bool) -> IntArray:
    return (array.argmax(axis=-1) if largest else array > threshold).astype(np.int64)


def divergence(ours: Floats, theirs: Floats) -> Floats:
    """Kullback-Leibler divergence of each decision; a single score is the logit of a Bernoulli variable."""
    if not _has_classes(ours):
        ours, theirs = (np.stack([np.zeros_like(scores), scores], axis=-1) for scores in (ours, theirs))
    log_ours, log_theirs = (_log_softmax(scores) for scores in (ours, theirs))
    return np.asarray((np.exp(log_theirs) * (log_theirs - log_ours)).sum(axis=-1).clip(min=0.0), dtype=np.float64)


def _log_softmax(scores: Floats) -> Floats:
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), dtype=np.float64)


class IdsJudge(Judge):
    """Whole numbers [n], [n, length] or [n, ..., length]: is the sequence the very same, and how many edits apart?

    A sequence ends before the first `end` id; `pad` ids at its tail do not count. The two may differ in length.
    """

    whole_labels = True

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="exact_match", about=f"sequences that are identical to {whose}", counts="sequences"),
            MetricSpec(name="edit_rate", about=f"edits per id of {whose} sequences", higher=False, bounds=None),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        return _compared(self._sequences(outputs, batch), self._sequences(reference, batch))

    def labelled(self, outputs: Outputs, labels: Sequence[Any], batch: Batch) -> Fractions:
        samples = zip(labels, batch.indices.tolist(), strict=True)
        theirs = [self.numbers(label, sample, whole=True).reshape(-1) for label, sample in samples]
        return _compared(self._sequences(outputs, batch), [self._trimmed(ids.astype(np.int64)) for ids in theirs])

    def _sequences(self, outputs: Outputs, batch: Batch) -> list[IntArray]:
        array = output_of(outputs, self.use.name)
        rows = array.reshape(len(batch), -1).astype(np.int64)
        valid = batch.valid if batch.valid is not None and array.shape == batch.valid.shape else None
        return [self._trimmed(ids if valid is None else ids[valid[row]]) for row, ids in enumerate(rows)]

    def _trimmed(self, ids: IntArray) -> IntArray:
        end, pad = self.index("end"), self.index("pad")
        if end is not None and (ids == end).any():
            ids = ids[: int(np.argmax(ids == end))]
        if pad is not None:
            real = np.flatnonzero(ids != pad)
            ids = ids[: int(real[-1]) + 1] if real.size else ids[:0]
        return ids


def _compared(ours: Sequence[IntArray], theirs: Sequence[IntArray]) -> Fractions:
    edits = np.array([edit_distance(a, b) for a, b in zip(ours, theirs, strict=True)], dtype=np.float64)
    lengths = np.array([max(len(ids), 1) for ids in theirs], dtype=np.float64)
    return columns(((edits == 0).astype(np.float64), 1.0), (edits, lengths))


def edit_distance(a: IntArray, b: IntArray) -> int:
    """Least number of insertions, deletions and substitutions from one sequence to the other (Levenshtein)."""
    if np.array_equal(a, b):
        return 0
    row = np.arange(len(b) + 1)
    steps = np.arange(len(b) + 1)
    for position, symbol in enumerate(a, start=1):
        # without insertions first; these are a running minimum of what they cost from the left
        best = np.minimum(row[1:] + 1, row[:-1] + (b != symbol))
        best = np.concatenate([[position], best])
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])


class MaskJudge(Judge):
    """A map [n, height, width] or [n, 1, height, width] cut at `threshold` (0.5), class ids of that shape, or one map
    per class along `axis` (1), of which the largest decides.

    The intersection over the union is that of each sample, as a mean over the classes either model sees there; with a
    threshold there is one class. Where neither sees anything, a sample says nothing. A label is the class of every
    pixel, negative where it does not count.
    """

    whole_labels = True

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="iou", about="intersection over union, a mean over samples"),
            MetricSpec(name="pixel_agreement", about=f"pixels of {whose} class"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        self.pair(outputs, reference, batch)
        (ours, first), (theirs, _) = (self._classes(output_of(of, self.use.name)) for of in (outputs, reference))
        return _masks_compared(ours, theirs, np.ones_like(ours, dtype=np.bool_), first)

    def labelled(self, outputs: Outputs, labels: Sequence[Any], batch: Batch) -> Fractions:
        ours, first = self._classes(output_of(outputs, self.use.name))
        theirs = np.zeros_like(ours)
        for row, (label, sample) in enumerate(zip(labels, batch.indices.tolist(), strict=True)):
            classes = self.numbers(label, sample, whole=True)
            if classes.size != ours[row].size:
                raise self.no_label(sample, f"has {classes.size} pixels, the output {ours[row].size}")
            theirs[row] = classes.reshape(ours[row].shape)
        return _masks_compared(ours, theirs, theirs >= 0, first)

    def _classes(self, array: Array) -> tuple[IntArray, int]:
        """Class of every pixel, and the first class that counts: 1 behind a threshold, where 0 is 'not there'."""
        if array.dtype.kind in "iu":
            return array.astype(np.int64), 0
        axis = self.index("axis", array)
        axis = 1 if axis is None else axis
        several = array.ndim >= 4 and array.shape[axis] > 1 and "threshold" not in dict(self.use.options)
        if several:
            return np.asarray(array.argmax(axis=axis), dtype=np.int64), 0
        reaches = array.astype(np.float64) > self.number("threshold", 0.5)
        return reaches.astype(np.int64), 1


def _masks_compared(ours: IntArray, theirs: IntArray, scored: BoolArray, first: int) -> Fractions:
    overlap, seen, right, there = np.zeros((4, len(ours)))
    for row, counts in enumerate(scored):
        mine, other = ours[row][counts], theirs[row][counts]
        classes = [kind for kind in np.union1d(mine, other) if kind >= first]
        if classes:
            both = [((mine == kind), (other == kind)) for kind in classes]
            overlap[row] = np.mean([np.count_nonzero(a & b) / np.count_nonzero(a | b) for a, b in both])
            seen[row] = 1.0
        right[row], there[row] = np.count_nonzero(mine == other), mine.size
    return columns((overlap, seen), (right, there))
