"""Any number of rows through a file that takes a fixed number in every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.targets.base import Array, Feeds
from workbench.values.model import Sizes, counts_samples, rows_of_a_call


def filled(feeds: Feeds, rows: int) -> Feeds:
    """A batch with its last row repeated until it has so many; of none, rows of zeros."""
    have = len(next(iter(feeds.values())))
    if have >= rows:
        return feeds
    last = {n: array[-1:] if have else np.zeros((1, *array.shape[1:]), array.dtype) for n, array in feeds.items()}
    return {n: np.concatenate([array, np.repeat(last[n], rows - have, axis=0)]) for n, array in feeds.items()}


def of_one_size(arrays: Sequence[Array], *, axes_from: int = 0) -> list[Array]:
    """Arrays of one rank in the size of the largest along every axis from one on, filled up with zeros."""
    if len({array.shape[axes_from:] for array in arrays}) == 1 or len({array.ndim for array in arrays}) > 1:
        return list(arrays)
    largest = np.max([array.shape for array in arrays], axis=0)
    missing = [[0] * axes_from + (largest - array.shape)[axes_from:].tolist() for array in arrays]
    return [np.pad(array, [(0, more) for more in own]) for array, own in zip(arrays, missing, strict=True)]


class FileRows:
    """How a file counts samples, by the shapes that its inputs and outputs declare.

    Args:
        inputs, outputs: each with its shape, outputs with their names.

    Attributes:
        fixed: how many every call takes; None where that is free.
    """

    def __init__(self, inputs: Iterable[Any], outputs: Iterable[Any]) -> None:
        self._inputs: list[Sizes] = [one.shape for one in inputs]
        self._outputs: dict[str, Sizes] = {one.name: one.shape for one in outputs}
        self.fixed = rows_of_a_call(self._inputs)

    def run(self, call: Callable[[Feeds], dict[str, Array]], feeds: Feeds) -> dict[str, Array]:
        """The outputs of any number of rows, by as many calls as the file needs: one where it takes them as they are,
        else the last one filled up, and what comes of the filling left away."""
        counts = {array.shape[:1] for array in feeds.values()}
        if self.fixed is None or len(counts) != 1 or counts <= {(), (self.fixed,)}:
            return call(feeds)
        ((rows,),) = counts
        parts = []
        for start in range(0, max(rows, 1), self.fixed):
            part = filled({n: array[start : start + self.fixed] for n, array in feeds.items()}, self.fixed)
            parts.append({n: a[: rows - start] if self._counts(n, a) else a for n, a in call(part).items()})
        return self.joined(parts)

    def joined(self, parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The outputs of several calls, one behind the other; filled up with zeros where their sizes differ. Those that
        do not count samples are as every call gives them, and left out where calls give different ones."""
        found = {}
        for name, first in parts[0].items():
            every = [part[name] for part in parts]
            if self._counts(name, first):
                found[name] = np.concatenate(of_one_size(every, axes_from=1)) if len(every) > 1 else first
            elif all(np.array_equal(first, other) for other in every[1:]):
                found[name] = first
        return found

    def _counts(self, name: str, given: Array) -> bool:
        """Whether an output has a row for each sample; by what a call gave where it declares no shape."""
        shape = self._outputs.get(name) or (() if self.fixed is None else given.shape)
        return given.ndim > 0 and counts_samples(shape, self._inputs)
