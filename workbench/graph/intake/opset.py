"""Raising a model's opset with onnx's own converter, without its large weights passing through it."""

from __future__ import annotations

import re

from onnx import ModelProto, TensorProto, version_converter
from onnx.shape_inference import InferenceError

from workbench.graph.nodes import all_nodes, bodies, called, copied, opset_of
from workbench.graph.tensors import raw_bytes
from workbench.values.errors import ConfigError

WANTED = 13
"""QuantizeLinear knows an axis from here on, and axes are inputs."""
_OLDEST_KEPT = 11
"""What everything downstream could do with before conversions were tried here."""
CONVERSION_ERRORS = (RuntimeError, InferenceError, version_converter.ConvertError)
"""The first is raised bare where an adapter is missing."""
_LARGE = 4096  # bytes; the converter looks at the values of small constants only


def raised(proto: ModelProto) -> ModelProto:
    """A copy at opset `WANTED`; the very same object where it has that, or cannot be converted and need not be."""
    version = opset_of(proto)
    if version >= WANTED:
        return proto
    inside = next((n for n in proto.graph.node for _ in bodies(n)), None)
    rule = ""
    if inside is not None:
        rule = f"{called(inside)} holds graphs of its own, which onnx does not convert"
    else:
        try:
            made = converted(proto, WANTED)
            made.ir_version = max(proto.ir_version, 7)  # what ONNX pairs with this opset
            return made
        except CONVERSION_ERRORS as error:
            rule = _reason(proto, str(error))
    if version >= _OLDEST_KEPT:
        return proto
    raise ConfigError(
        f"the model has opset {version}, and cannot be raised to {WANTED}: {rule}.",
        hint=f"Export the model with opset {WANTED} or higher.",
    )


def converted(proto: ModelProto, opset: int) -> ModelProto:
    """A copy at another opset, without recorded shapes. Raises one of `CONVERSION_ERRORS`."""
    light = copied(proto)
    del light.graph.value_info[:]
    heavy: dict[str, TensorProto] = {}
    stored = list(light.graph.initializer)
    del light.graph.initializer[:]
    inputs = {value.name for value in light.graph.input}
    for tensor in stored:
        if raw_bytes(tensor) <= _LARGE and tensor.data_location == TensorProto.DEFAULT:
            light.graph.initializer.append(tensor)
            continue
        heavy[tensor.name] = tensor
        if tensor.name not in inputs:
            value = light.graph.input.add(name=tensor.name)
            value.type.tensor_type.elem_type = tensor.data_type
            for size in tensor.dims:
                value.type.tensor_type.shape.dim.add(dim_value=size)
    light.ir_version = max(light.ir_version, 4)  # older ones want every initializer among the inputs
    made: ModelProto = version_converter.convert_version(light, opset)
    kept = [value for value in made.graph.input if value.name not in heavy]
    del made.graph.input[:]
    made.graph.input.extend(kept)
    made.graph.initializer.extend(heavy.values())
    del made.graph.value_info[:]
    return made


def _reason(proto: ModelProto, said: str) -> str:
    """The converter's own words, with the first node of the operator that they name."""
    words = re.sub(r"^\S+:\d+: \w+: Assertion `.*?` failed: ", "", " ".join(said.split()))[:300].rstrip(". ")
    named = re.search(r"(?:adapter for|No Adapter[^A-Z]*|of) (\w+)", words)
    node = next((n for n in all_nodes(proto.graph) if named and n.op_type == named[1]), None)
    return f"{called(node)}: {words}" if node is not None else words
