"""Agreement of ids: sequences of tokens, or the indices that an ArgMax gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.inputs.dataset.batch import Batch, IntArray
from workbench.inputs.metrics.agreement.judge import Array, Fractions, MetricSpec, Outputs, columns, index, output_of
from workbench.values.interface import OutputUse


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsJudge:
    """Whole numbers [n], [n, length] or [n, ..., length]: is the sequence the very same, and how many edits apart?

    A sequence ends before the first `end` id; `pad` ids at its tail do not count. The two may differ in length.
    """

    use: OutputUse

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.use.name,)

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        return (
            MetricSpec(name="exact_match", about="sequences that are identical to the float model's"),
            MetricSpec(
                name="edit_rate", about="edits per id of the float model's sequences", higher=False, bounds=None
            ),
        )

    def judge(self, outputs: Outputs, reference: Outputs, batch: Batch) -> Fractions:
        end, pad = index(self.use, "end"), index(self.use, "pad")
        ours = _sequences(output_of(outputs, self.use.name), batch, end, pad)
        theirs = _sequences(output_of(reference, self.use.name), batch, end, pad)
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


def _sequences(array: Array, batch: Batch, end: int | None, pad: int | None) -> list[IntArray]:
    rows = array.reshape(len(batch), -1).astype(np.int64)
    valid = batch.valid if batch.valid is not None and array.shape == batch.valid.shape else None
    return [_trimmed(ids if valid is None else ids[valid[row]], end, pad) for row, ids in enumerate(rows)]


def _trimmed(ids: IntArray, end: int | None, pad: int | None) -> IntArray:
    if end is not None and (ids == end).any():
        ids = ids[: int(np.argmax(ids == end))]
    if pad is not None:
        real = np.flatnonzero(ids != pad)
        ids = ids[: int(real[-1]) + 1] if real.size else ids[:0]
    return ids
