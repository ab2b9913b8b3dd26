"""Agreement of masks: which pixels belong to what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.inputs.dataset.batch import Batch, IntArray
from workbench.inputs.metrics.agreement.judge import (
    Array,
    Fractions,
    MetricSpec,
    Outputs,
    columns,
    index,
    number,
    output_of,
    pair,
)
from workbench.values.interface import OutputUse


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskJudge:
    """A map [n, height, width] or [n, 1, height, width] cut at `threshold` (0.5), class ids of that shape, or one map
    per class along `axis` (1), of which the largest decides.

    The intersection over the union is that of each sample, as a mean over the classes either model sees there; with a
    threshold there is one class. Where neither sees anything, a sample says nothing.
    """

    use: OutputUse

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.use.name,)

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="iou", about="intersection over union, a mean over samples"),
            MetricSpec(name="pixel_agreement", about="pixels of the same class"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        pair(outputs, reference, self.use.name, batch)
        (ours, first), (theirs, _) = (self._classes(output_of(of, self.use.name)) for of in (outputs, reference))
        overlap, seen = np.zeros(len(batch)), np.zeros(len(batch))
        for row, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            classes = [kind for kind in np.union1d(mine, other) if kind >= first]
            if classes:
                overlap[row] = np.mean([_iou(mine == kind, other == kind) for kind in classes])
                seen[row] = 1.0
        same = (ours == theirs).reshape(len(batch), -1)
        return columns((overlap, seen), (same.sum(axis=1), float(same.shape[1])))

    def _classes(self, array: Array) -> tuple[IntArray, int]:
        """Class of every pixel, and the first class that counts: 1 behind a threshold, where 0 is 'not there'."""
        if array.dtype.kind in "iu":
            return array.astype(np.int64), 0
        axis = index(self.use, "axis")
        axis = 1 if axis is None else axis
        several = array.ndim >= 4 and array.shape[axis] > 1 and "threshold" not in dict(self.use.options)
        if several:
            return np.asarray(array.argmax(axis=axis), dtype=np.int64), 0
        reaches = array.astype(np.float64) > number(self.use, "threshold", 0.5)
        return reaches.astype(np.int64), 1


def _iou(mine: Array, other: Array) -> float:
    return float(np.count_nonzero(mine & other) / np.count_nonzero(mine | other))  # type: ignore[operator]  # both bool
