"""What a dataset gives out, and what every kind of source behind it must be able to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from workbench.values.errors import ConfigError
from workbench.values.preprocess import WELL_KNOWN_INPUTS, Feeds

Task = Literal["classification", "ner", "tensors", "language"]
GRAPH_TASKS: tuple[Task, ...] = ("classification", "ner", "tensors")
"""Of ONNX models; 'language' is that of a language model's folder, whose manifest `language` reads."""
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

STEPS = "(steps)"
"""The leading axis of a sample that is fed step by step, where a state is carried; a model's own axis may be called
`steps`."""

NOT_SCORED = -100
"""Tag id of positions that no metric looks at: special tokens, padding, all but the first token of a word."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Samples that go through the model together.

    Attributes:
        targets: class ids [n]; for NER tag ids [n, length] with `NOT_SCORED`; None without labels.
        indices: [n] rows in the split's file (or the loader's stream), counted from 0.
        valid: [n, length], False on padding; None where samples are not sequences. Steps where a state is carried.
        truths: what the data say of each sample, of any kind, where a metric asks for it that is not one of class or
            tag ids.
        sizes: padded axis → true size of every sample [n]; texts have `valid` instead.
    """

    feeds: Feeds
    targets: IntArray | None
    indices: IntArray
    valid: BoolArray | None = None
    truths: tuple[Any, ...] | None = None
    sizes: Mapping[str, IntArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def lengths(self) -> IntArray:
        """[n] positions that are not padding; 1 for samples that are not sequences."""
        if self.valid is None:
            return np.ones(len(self), dtype=np.int64)
        lengths: IntArray = self.valid.sum(axis=1, dtype=np.int64)
        return lengths


class Source(Protocol):
    """Rows of one file or loader. Immutable and picklable; reading twice gives the same rows.

    Attributes:
        size: number of rows, at least 1.
        sha256: over everything the rows are made from.
        sequential: rows can only be read in ascending order.
    """

    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...
    @property
    def sequential(self) -> bool: ...

    def read(self, groups: Iterable[IntArray], length: int | None = None) -> Iterator[Batch]:
        """One batch per group of row numbers, made only when it is asked for.

        Args:
            length: pad to this many positions (and cut to them) instead of to the batch's bin.

        Raises:
            ConfigError: a row cannot be made into feeds; names the file and the row.
        """
        ...


def valid_positions(feeds: Feeds, sizes: Mapping[str, IntArray] | None = None) -> BoolArray | None:
    """Positions that are not padding [n, length], else None: by the one axis that is padded (or counts steps), or by a
    well-known mask input among the feeds."""
    if sizes and (len(sizes) == 1 or STEPS in sizes):
        chosen = sizes[STEPS] if STEPS in sizes else next(iter(sizes.values()))
        widths = {array.shape[1] for array in feeds.values() if array.ndim > 1}
        if STEPS in sizes or len(widths) == 1:
            width = max(widths)
            return np.arange(width) < chosen[:, None]
    for name, array in feeds.items():
        if WELL_KNOWN_INPUTS.get(name) == "mask" and array.ndim == 2:
            return array.astype(np.bool_)
    return None


def tag_rows(tags: Sequence[IntArray], feeds: Feeds, rows: IntArray, file: Path) -> IntArray:
    """Tag ids of a batch [n, positions of the first feed], `NOT_SCORED` behind a sample's own.

    Raises:
        ConfigError: tags that count stand behind the last position.
    """
    width = next(iter(feeds.values())).shape[1]
    made = np.full((len(tags), width), NOT_SCORED, dtype=np.int64)
    for own, to in zip(tags, made, strict=True):
        if (own[width:] != NOT_SCORED).any():
            raise ConfigError(f"rows {rows.tolist()}: {len(own)} tags stand for {width} positions.", file=file)
        to[: len(own)] = own[:width]
    return made
