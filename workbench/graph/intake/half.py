"""Models that compute in half precision are worked on in float32, with casts where the outside sees half precision."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, all_graphs, copied, rename_tensors, replace_nodes

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
