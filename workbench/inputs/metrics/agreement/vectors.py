"""Agreement of numbers that are compared by distance: embeddings, values of any kind, recurrent states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.inputs.dataset.batch import Batch
from workbench.inputs.metrics.agreement.judge import (
    Floats,
    Fractions,
    MetricSpec,
    OneOutput,
    Outputs,
    columns,
    cosines,
    counted,
    flat,
    number,
    numbers_of,
    pair,
)
from workbench.values.interface import OutputUse

GALLERY = 512
"""Neighbours are looked for among so many samples before this one."""


class ValuesJudge(OneOutput):
    """Numbers of any kind, and states: the error beside the size of the float model's numbers.

    Against labels also R²: how much less the squared error is than that of always giving the mean of the validation's
    labels. On the whole validation it is the usual R²; on a holdout it says what is gained over that mean there.
    """

    def __init__(self, *, use: OutputUse) -> None:
        super().__init__(use=use)
        self._mean: Floats | None = None

    @property
    def label_metrics(self) -> tuple[MetricSpec, ...]:
        about = "share of the labels' variance about the validation's mean that is explained"
        return (*super().label_metrics, MetricSpec(name="r2", about=about, bounds=None))

    def learn(self, labels: Sequence[Any]) -> None:
        """Takes the mean of all labels: value by value where they have one shape, else of all values."""
        arrays = [np.asarray(numbers_of(self.use, label, at), np.float64) for at, label in enumerate(labels)]
        alike = len({array.shape for array in arrays}) == 1
        mean = np.mean(arrays, axis=0) if alike else np.concatenate([array.reshape(-1) for array in arrays]).mean()
        self._mean = np.asarray(mean, np.float64).reshape(-1)

    def labelled(self, outputs: Outputs, labels: Sequence[Any], batch: Batch) -> Fractions:
        found, of = super().labelled(outputs, labels, batch)
        gained, there = np.zeros(len(batch)), np.zeros(len(batch))
        if self._mean is not None:
            for row, (ours, truth, _) in enumerate(self.beside_labels(outputs, labels, batch)):
                right = truth.astype(np.float64).reshape(-1)
                there[row] = np.square(right - self._mean).sum()
                gained[row] = there[row] - np.square(ours.astype(np.float64).reshape(-1) - right).sum()
        return np.column_stack([found, gained]), np.column_stack([of, there])

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(
                name="relative_error",
                about=f"sum of absolute errors over the sum of {whose} absolute values",
                higher=False,
                bounds=None,
            ),
            MetricSpec(name="cosine", about="mean over samples", bounds=(-1.0, 1.0)),
            MetricSpec(name="max_abs_error", about="of any value", unit="abs", higher=False, bounds=None, reduce="max"),
            MetricSpec(name="mae", about="mean over values", unit="abs", higher=False, bounds=None),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        ours, theirs = pair(outputs, reference, self.use.name, batch)
        values = counted(ours, batch).reshape(len(batch), -1).sum(axis=1).astype(np.float64)
        ours, theirs = flat(ours, batch), flat(theirs, batch)
        errors = np.abs(ours - theirs)
        return columns(
            (errors.sum(axis=1), np.abs(theirs).sum(axis=1)),
            (cosines(ours, theirs), 1.0),
            (errors.max(axis=1, initial=0.0), 1.0),
            (errors.sum(axis=1), values),
        )


class EmbeddingJudge(OneOutput):
    """Vectors [n, ...]: their direction, and whether they have the same nearest neighbours.

    Neighbours are the `k` (10) samples, among up to `GALLERY` before this one, whose vectors of the same model point
    most alike. Samples with no more than `k` before them have nothing to rank and are left out. It remembers what it
    saw, so it must see a split from its beginning and in order.
    """

    can_have_labels = False

    def __init__(self, *, use: OutputUse) -> None:
        super().__init__(use=use)
        self._ours, self._theirs = np.zeros((0, 0)), np.zeros((0, 0))

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="cosine", about="mean over samples", bounds=(-1.0, 1.0)),
            MetricSpec(name="neighbour_recall", about=f"nearest neighbours that are {whose} too"),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        ours, theirs = (flat(array, batch) for array in pair(outputs, reference, self.use.name, batch))
        k = max(1, round(number(self.use, "k", 10)))
        found, wanted = np.zeros(len(batch)), np.zeros(len(batch))
        for row in range(len(batch)):
            if len(self._ours) > k and self._ours.shape[1] == ours.shape[1]:
                near = _nearest(self._ours, ours[row], k)
                found[row], wanted[row] = len(near & _nearest(self._theirs, theirs[row], k)), k
            self._ours = _grown(self._ours, ours[row])
            self._theirs = _grown(self._theirs, theirs[row])
        return columns((cosines(ours, theirs), 1.0), (found, wanted))


def _grown(gallery: Floats, vector: Floats) -> Floats:
    unit = vector / (float(np.linalg.norm(vector)) or 1.0)
    if gallery.shape[1] != len(unit):  # vectors of another length cannot be ranked beside these
        return unit[None]
    return np.concatenate([gallery[-(GALLERY - 1) :], unit[None]])


def _nearest(gallery: Floats, vector: Floats, k: int) -> set[int]:
    return set(np.argsort(-(gallery @ vector), kind="stable")[:k].tolist())
