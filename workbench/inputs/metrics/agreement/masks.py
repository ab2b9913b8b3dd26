"""Agreement of masks: which pixels belong to what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.inputs.dataset.batch import Batch, BoolArray, IntArray
from workbench.inputs.metrics.agreement.judge import (
    Array,
    Fractions,
    MetricSpec,
    OneOutput,
    Outputs,
    columns,
    index,
    no_label,
    number,
    numbers_of,
    output_of,
    pair,
)


class MaskJudge(OneOutput):
    """A map [n, height, width] or [n, 1, height, width] cut at `threshold` (0.5), class ids of that shape, or one map
    per class along `axis` (1), of which the largest decides.

    The intersection over the union is that of each sample, as a mean over the classes either model sees there; with a
    threshold there is one class. Where neither sees anything, a sample says nothing. A label is the class of every
    pixel, negative where it does not count.
    """

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="iou", about="intersection over union, a mean over samples"),
            MetricSpec(name="pixel_agreement", about=f"pixels of {whose} class"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        pair(outputs, reference, self.use.name, batch)
        (ours, first), (theirs, _) = (self._classes(output_of(of, self.use.name)) for of in (outputs, reference))
        return _compared(ours, theirs, np.ones_like(ours, dtype=np.bool_), first)

    def check_label(self, label: Any, sample: int) -> None:
        numbers_of(self.use, label, sample, whole=True)

    def labelled(self, outputs: Outputs, labels: Sequence[Any], batch: Batch) -> Fractions:
        ours, first = self._classes(output_of(outputs, self.use.name))
        theirs = np.zeros_like(ours)
        for row, (label, sample) in enumerate(zip(labels, batch.indices.tolist(), strict=True)):
            classes = numbers_of(self.use, label, sample, whole=True)
            if classes.size != ours[row].size:
                raise no_label(self.use, sample, f"has {classes.size} pixels, the output {ours[row].size}")
            theirs[row] = classes.reshape(ours[row].shape)
        return _compared(ours, theirs, theirs >= 0, first)

    def _classes(self, array: Array) -> tuple[IntArray, int]:
        """Class of every pixel, and the first class that counts: 1 behind a threshold, where 0 is 'not there'."""
        if array.dtype.kind in "iu":
            return array.astype(np.int64), 0
        axis = index(self.use, "axis", array)
        axis = 1 if axis is None else axis
        several = array.ndim >= 4 and array.shape[axis] > 1 and "threshold" not in dict(self.use.options)
        if several:
            return np.asarray(array.argmax(axis=axis), dtype=np.int64), 0
        reaches = array.astype(np.float64) > number(self.use, "threshold", 0.5)
        return reaches.astype(np.int64), 1


def _compared(ours: IntArray, theirs: IntArray, scored: BoolArray, first: int) -> Fractions:
    overlap, seen, right, there = np.zeros((4, len(ours)))
    for row, counts in enumerate(scored):
        mine, other = ours[row][counts], theirs[row][counts]
        classes = [kind for kind in np.union1d(mine, other) if kind >= first]
        if classes:
            overlap[row] = np.mean([_iou(mine == kind, other == kind) for kind in classes])
            seen[row] = 1.0
        right[row], there[row] = np.count_nonzero(mine == other), mine.size
    return columns((overlap, seen), (right, there))


def _iou(mine: Array, other: Array) -> float:
    return float(np.count_nonzero(mine & other) / np.count_nonzero(mine | other))  # type: ignore[operator]  # both bool
