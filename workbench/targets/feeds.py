"""Are these the arrays a model takes? What runtimes say of it differs; this names the input. And any number of rows
through a file that takes a fixed number in every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from workbench.targets.base import Array, Feeds
from workbench.values.errors import MeasureError, ToolchainError, nearest
from workbench.values.model import Sizes, counts_samples, rows_of_a_call


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What a model takes under one name; a dimension that may vary is None, and so is a type that NumPy lacks."""

    dtype: np.dtype[Any] | None
    shape: tuple[int | None, ...]


def inputs_of(model: onnx.ModelProto) -> dict[str, Input]:
    """What a graph takes, by name: its inputs that no constant stands for."""
    constants = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name not in constants:
            tensor = value.type.tensor_type
            shape = tuple(axis.dim_value if axis.HasField("dim_value") else None for axis in tensor.shape.dim)
            found[value.name] = Input(dtype=onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape=shape)
    return found


def check_feeds(feeds: Feeds, inputs: Mapping[str, Input]) -> None:
    """Raises MeasureError, with the input's name, when one is missing, unknown, or of another type or shape."""
    for name in inputs.keys() - feeds.keys():
        raise MeasureError(f"Input {name!r} is not fed. {nearest(name, feeds)}")
    for name, array in feeds.items():
        if name not in inputs:
            raise MeasureError(f"The model has no input {name!r}. {nearest(name, inputs)}")
        wanted = inputs[name]
        if wanted.dtype is not None and array.dtype != wanted.dtype:
            raise MeasureError(f"Input {name!r} is fed {array.dtype}; the model takes {wanted.dtype}.")
        fits = len(wanted.shape) == array.ndim and all(
            size is None or size == given for size, given in zip(wanted.shape, array.shape, strict=True)
        )
        if not fits:
            raise MeasureError(f"Input {name!r} is fed shape {array.shape}; the model takes {wanted.shape}.")


def check_host_device(device: int) -> None:
    """Raises ToolchainError for any device but 0: the host is the only one that a CPU target has."""
    if device != 0:
        raise ToolchainError(f"There is no device {device}: this target computes on the host, which is device 0.")


# --- any number of rows through a file that takes a fixed number in every call ----------------------------------------


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
