"""Are these the arrays a model takes? What runtimes say of it differs; this names the input. And any number of rows
through a file that takes a fixed number in every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.targets.base import Array, Feeds
from workbench.values.errors import MeasureError, ToolchainError, nearest
from workbench.values.model import Sizes, counts_samples, rows_of_a_call


def check_feeds(feeds: Feeds, inputs: Iterable[Any]) -> None:
    """Raises MeasureError, with the input's name, when one is missing, unknown, or of another type or shape.

    Args:
        inputs: each with its name, its dtype by NumPy's name ('' where NumPy lacks it), and its shape, in which
            everything but a number may vary.
    """
    known = {one.name: one for one in inputs}
    for name in known.keys() - feeds.keys():
        raise MeasureError(f"Input {name!r} is not fed. {nearest(name, feeds)}")
    for name, array in feeds.items():
        if name not in known:
            raise MeasureError(f"The model has no input {name!r}. {nearest(name, known)}")
        dtype, shape = known[name].dtype, known[name].shape
        if dtype and array.dtype != np.dtype(dtype):
            raise MeasureError(f"Input {name!r} is fed {array.dtype}; the model takes {dtype}.")
        wanted = tuple(size if isinstance(size, int) else None for size in shape)
        if len(wanted) != array.ndim or any(
            size is not None and size != given for size, given in zip(wanted, array.shape, strict=True)
        ):
            raise MeasureError(f"Input {name!r} is fed shape {array.shape}; the model takes {wanted}.")


def save_feeds(feeds: Iterable[Feeds], file: Path) -> None:
    """For `load_feeds` in another process."""
    arrays: dict[str, Any] = {f"{i}/{name}": array for i, feed in enumerate(feeds) for name, array in feed.items()}
    np.savez(file, **arrays)


def load_feeds(file: Path) -> list[Feeds]:
    found: dict[int, dict[str, Array]] = {}
    with np.load(file, allow_pickle=False) as arrays:
        for key in arrays.files:
            index, _, name = key.partition("/")
            found.setdefault(int(index), {})[name] = arrays[key]
    return [found[index] for index in sorted(found)]


def check_host_device(device: int) -> None:
    """Raises ToolchainError for any device but 0: the host is the only one that a CPU target has."""
    if device != 0:
        raise ToolchainError(f"There is no device {device}: this target computes on the host, which is device 0.")


# --- any number of rows through a file that takes a fixed number in every call ----------------------------------------


class FileSession:
    """A file that is loaded; see `workbench.targets.base.Session`.

    Args:
        call: the outputs by name of what the file takes at once; let go by `close`.
        inputs: as `check_feeds` takes them.
    """

    def __init__(self, call: Callable[[Feeds], dict[str, Array]], inputs: Sequence[Any], rows: FileRows) -> None:
        self._file: Callable[[Feeds], dict[str, Array]] | None = call
        self._inputs, self._rows = inputs, rows

    def run(self, feeds: Feeds) -> dict[str, Array]:
        return self._rows.run(self._call, feeds)

    def _call(self, feeds: Feeds) -> dict[str, Array]:
        if self._file is None:
            raise MeasureError("The session is closed; open the artifact again.")
        check_feeds(feeds, self._inputs)
        return self._file(feeds)

    def close(self) -> None:
        self._file = None


def filled(feeds: Feeds, rows: int) -> Feeds:
    """A batch with its last row repeated until it has so many; of none, rows of zeros."""
    have = len(next(iter(feeds.values())))
    if have >= rows:
        return feeds
    last = {n: array[-1:] if have else np.zeros((1, *array.shape[1:]), array.dtype) for n, array in feeds.items()}
    return {n: np.concatenate([array, np.repeat(last[n], rows - have, axis=0)]) for n, array in feeds.items()}


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
                if len({array.shape[1:] for array in every}) > 1 and len({array.ndim for array in every}) == 1:
                    largest = np.max([array.shape for array in every], axis=0)[1:]
                    every = [np.pad(a, [(0, 0), *((0, n) for n in largest - a.shape[1:])]) for a in every]
                found[name] = np.concatenate(every) if len(every) > 1 else first
            elif all(np.array_equal(first, other) for other in every[1:]):
                found[name] = first
        return found

    def _counts(self, name: str, given: Array) -> bool:
        """Whether an output has a row for each sample; by what a call gave where it declares no shape."""
        shape = self._outputs.get(name) or (() if self.fixed is None else given.shape)
        return given.ndim > 0 and counts_samples(shape, self._inputs)
