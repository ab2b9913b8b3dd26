"""Inputs that are the same for all samples become initializers, and what follows from them alone is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, numpy_helper

from workbench.graph.nodes import replace_nodes
from workbench.values.errors import ConfigError
from workbench.values.interface import Interface
from workbench.values.model import TensorSpec

Array = npt.NDArray[Any]


def constant_values(specs: tuple[TensorSpec, ...], interface: Interface) -> dict[str, Array]:
    """Declared constants by input, in the input's type and shape.

    Raises:
        ConfigError: numbers that the input's type does not hold, or of another shape.
    """
    by_name = {spec.name: spec for spec in specs}
    found = {}
    for use in interface.inputs:
        if use.constant is not None and use.name in by_name:
            found[use.name] = _fitting(use.constant, by_name[use.name])
    return found


def _fitting(written: Any, spec: TensorSpec) -> Array:
    key = f"inputs.{spec.name}.constant"
    shape = "[" + ", ".join("?" if d is None else str(d) for d in spec.shape) + "]"
    try:
        given = np.asarray(written)
    except ValueError as error:
        raise ConfigError(f"its rows differ in length, the input has the shape {shape}.", key=key) from error
    if given.dtype.kind not in "biuf":
        raise ConfigError(f"{written!r} is no number, nor nested lists of numbers.", key=key)
    with np.errstate(over="ignore", invalid="ignore"):
        values = given.astype(spec.dtype)
    exact = values.dtype.kind == "f" or np.array_equal(values, given)
    if not exact or (values.dtype.kind == "f" and np.isfinite(given).all() and not np.isfinite(values).all()):
        raise ConfigError(f"{written!r} cannot be held by {spec.dtype}, the input's type.", key=key)
    if values.ndim == 1 and values.size == 1 and not spec.shape:
        values = values.reshape(())
    if values.ndim == 0 and all(d == 1 or not isinstance(d, int) for d in spec.shape):
        values = values.reshape((1,) * len(spec.shape))
    fits = len(spec.shape) == values.ndim and all(
        not isinstance(d, int) or d == n for d, n in zip(spec.shape, values.shape, strict=True)
    )
    if not fits:
        raise ConfigError(
            f"its shape is {list(values.shape)}, the model's input has {shape}.",
            key=key,
            hint="Write the numbers nested as the input's shape is.",
        )
    return values


def build_in(proto: ModelProto, values: dict[str, Array]) -> ModelProto:
    """A copy in which these inputs are initializers."""
    model = ModelProto()
    model.CopyFrom(proto)
    kept = [value for value in model.graph.input if value.name not in values]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())
    return model


def hoisted(proto: ModelProto) -> ModelProto:
    """A copy in which the top graph's `Constant` tensors are initializers of the same names."""
    model = ModelProto()
    model.CopyFrom(proto)
    kept = []
    for node in model.graph.node:
        tensor = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if tensor is None:
            kept.append(node)
            continue
        stored = model.graph.initializer.add()
        stored.CopyFrom(tensor)
        stored.name = node.output[0]
    replace_nodes(model.graph, kept)
    return model
