"""Raising a model's opset with onnx's own converter, without its large weights passing through it; and half precision,
which is worked on in float32, with casts where the outside sees half precision.
"""

from __future__ import annotations

import re

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, version_converter
from onnx.shape_inference import InferenceError

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import (
    Names,
    all_graphs,
    all_nodes,
    bodies,
    called,
    copied,
    opset_of,
    rename_tensors,
    replace_nodes,
)
from workbench.graph.tensors import raw_bytes
from workbench.values.errors import ConfigError

_TYPES = ("to", "dtype", "output_datatype")
_HALF = TensorProto.FLOAT16
_COMPUTING = ("MatMul", "Gemm", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN", "Add", "Mul", "Softmax")


def computes_in_half(proto: ModelProto) -> bool:
    """Whether operators, and not only stored weights, are in half precision."""
    graph = proto.graph
    if any(value.type.tensor_type.elem_type == _HALF for value in (*graph.input, *graph.output)):
        return True
    half = {tensor.name for tensor in graph.initializer if tensor.data_type == _HALF}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.t.data_type == _HALF:
                half.update(node.output)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _HALF:
                half.update(node.output)
        if node.op_type in ("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze") and node.input[0] in half:
            half.update(node.output)
    return any(node.op_type in _COMPUTING and half.intersection(node.input) for node in graph.node)


def in_float32(proto: ModelProto) -> ModelProto:
    """A copy in which every tensor of half precision is float32, but for inputs and outputs, which are cast."""
    model = copied(proto)
    for graph in all_graphs(model.graph):
        _widen(graph, top=graph is model.graph)
    names = Names(model.graph)
    _cast_borders(model.graph, names)
    del model.graph.value_info[:]
    return model


def _widen(graph: GraphProto, *, top: bool) -> None:
    for tensor in graph.initializer:
        if tensor.data_type == _HALF:
            wide = array_of(tensor).astype(np.float32)
            # only the top graph's weights may stay apart: those of bodies are written as they are
            tensor.CopyFrom(tensor_of(wide, tensor.name) if top else numpy_helper.from_array(wide, tensor.name))
    stored = {tensor.name for tensor in graph.initializer}
    inside = (*graph.input, *graph.output) if not top else [v for v in graph.input if v.name in stored]
    for value in (*inside, *graph.value_info):
        if value.type.tensor_type.elem_type == _HALF:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.t.data_type == _HALF:
                wide = numpy_helper.to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(numpy_helper.from_array(wide, attribute.t.name))
            if attribute.name in _TYPES and attribute.i == _HALF:
                attribute.i = TensorProto.FLOAT


def _cast_borders(graph: GraphProto, names: Names) -> None:
    first: list[NodeProto] = []
    last: list[NodeProto] = []
    new: dict[str, str] = {}
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == _HALF and value.name not in new:
            new[value.name] = names.fresh(f"{value.name}_float32")
    nodes = list(graph.node)
    rename_tensors(nodes, new)
    for value in graph.input:
        if value.name in new:
            name = names.fresh(f"{value.name}_widened")
            first.append(helper.make_node("Cast", [value.name], [new[value.name]], name, to=TensorProto.FLOAT))
    for value in graph.output:
        if value.name in new:
            name = names.fresh(f"{value.name}_narrowed")
            last.append(helper.make_node("Cast", [new[value.name]], [value.name], name, to=_HALF))
    replace_nodes(graph, (*first, *nodes, *last))


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
