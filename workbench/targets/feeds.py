"""Are these the arrays a model takes? What runtimes say of it differs; this names the input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from workbench.targets.base import Feeds
from workbench.values.errors import MeasureError, ToolchainError, nearest


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
