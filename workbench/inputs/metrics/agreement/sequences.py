"""Agreement of ids: sequences of tokens, or the indices that an ArgMax gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.inputs.dataset.batch import Batch, IntArray
from workbench.inputs.metrics.agreement.judge import (
    Fractions,
    MetricSpec,
    OneOutput,
    Outputs,
    columns,
    index,
    numbers_of,
    output_of,
)


class IdsJudge(OneOutput):
    """Whole numbers [n], [n, length] or [n, ..., length]: is the sequence the very same, and how many edits apart?

    A sequence ends before the first `end` id; `pad` ids at its tail do not count. The two may differ in length.
    """

    def specs(self, whose: str) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="exact_match", about=f"sequences that are identical to {whose}", counts="sequences"),
            MetricSpec(name="edit_rate", about=f"edits per id of {whose} sequences", higher=False, bounds=None),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        return _compared(self._sequences(outputs, batch), self._sequences(reference, batch))

    def check_label(self, label: Any, sample: int) -> None:
        numbers_of(self.use, label, sample, whole=True)

    def labelled(self, outputs: Outputs, labels: Sequence[Any], batch: Batch) -> Fractions:
        samples = zip(labels, batch.indices.tolist(), strict=True)
        theirs = [numbers_of(self.use, label, sample, whole=True).reshape(-1) for label, sample in samples]
        return _compared(self._sequences(outputs, batch), [self._trimmed(ids.astype(np.int64)) for ids in theirs])

    def _sequences(self, outputs: Outputs, batch: Batch) -> list[IntArray]:
        array = output_of(outputs, self.use.name)
        rows = array.reshape(len(batch), -1).astype(np.int64)
        valid = batch.valid if batch.valid is not None and array.shape == batch.valid.shape else None
        return [self._trimmed(ids if valid is None else ids[valid[row]]) for row, ids in enumerate(rows)]

    def _trimmed(self, ids: IntArray) -> IntArray:
        end, pad = index(self.use, "end"), index(self.use, "pad")
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
