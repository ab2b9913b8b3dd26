"""What two graphs have in common when only numbers differ: a digest of operators, attributes, types and shapes.

    graph_form(model)               # the values of its weights, scales and zero points blanked
    graph_form(model, values=True)  # with them: models of one form compute equal outputs

Names are left out: nodes count in the order of the file, which is the order that runtimes start from, and ports by
their place. Small constants are written where they are read: optimizers merge them where their values happen to agree.
Large ones are told apart, since reading one twice is not reading two.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from workbench.graph.apart import LARGE_BYTES, array_of, chunks_of, refers_apart
from workbench.graph.nodes import constant_tensor
from workbench.graph.tensors import raw_bytes
from workbench.values.documents.canonical import digest

_NUMBERS = frozenset(
    kind
    for name, kind in TensorProto.DataType.items()
    if name.startswith(("FLOAT", "BFLOAT", "DOUBLE")) or name in ("INT8", "UINT8", "INT4", "UINT4", "INT2", "UINT2")
)
"""Types of weights, scales and zero points. Constants of other types (shapes, axes, indices, conditions) keep their
values, which decide what is computed."""

_INTEGER_BIAS = frozenset({"DequantizeLinear", "QAttention", "QGemm", "QLinearConv"})
"""Operators whose int32 constants are numbers too: biases and their zero points."""

_BY_VALUE = frozenset({"Clip", "If", "Loop", "NonMaxSuppression", "Pow", "Range", "Resize", "Upsample"})
"""Operators whose constants decide how much is computed, or by which kernel, whatever their type."""

_ZERO_POINTS: Mapping[str, tuple[int, ...]] = {
    "ConvInteger": (2, 3),
    "DynamicQuantizeMatMul": (3,),
    "MatMulInteger": (2, 3),
    "MatMulIntegerToFloat": (4, 5),
    "QAttention": (6, 7),
}
"""Operator → its zero points of a type that its other inputs tell. One of a whole tensor may be left out, and ONNX
Runtime's optimizer does so where it is 0; that it takes as long without is [inferred] (onnxruntime 1.31.1)."""


def graph_form(model: ModelProto, *, values: bool = False) -> str:
    """64 hex digits that differ wherever more than names differs (and more than values, where those are blanked)."""
    return digest(
        {
            "opsets": sorted([entry.domain, entry.version] for entry in model.opset_import),
            "functions": [hashlib.sha256(f.SerializeToString(deterministic=True)).hexdigest() for f in model.functions],
            "graph": _Form(values=values).graph(model.graph, {}, {}, "t"),
        }
    )


class _Form:
    """One pass over a model; constants that were met before are known by where that was."""

    def __init__(self, *, values: bool) -> None:
        self.values = values
        self.large: dict[str, int] = {}  # name of a large constant → which one it is

    def graph(
        self, graph: GraphProto, outer: Mapping[str, str], held: Mapping[str, TensorProto], prefix: str
    ) -> dict[str, Any]:
        """Of a graph whose tensors may also come from those around it (`outer`, and the constants `held`)."""
        constants = {**held, **{tensor.name: tensor for tensor in graph.initializer}}
        sparse = sorted(tensor.values.name for tensor in graph.sparse_initializer)
        fed = [port for port in graph.input if port.name not in constants]
        names = {**outer, **{port.name: f"{prefix}in{place}" for place, port in enumerate(fed)}}
        nodes: list[list[Any]] = []
        for node in graph.node:
            tensor = constant_tensor(node)
            if tensor is not None:
                constants[node.output[0]] = tensor
                continue
            within = f"{prefix}{len(nodes)}"
            nodes.append(self.node(node, names, constants, within))
            names |= {name: f"{within}.{place}" for place, name in enumerate(node.output) if name}
        outputs = [[*self.port(port), self.source(port.name, "", names, constants)] for port in graph.output]
        return {"inputs": [self.port(port) for port in fed], "nodes": nodes, "outputs": outputs, "sparse": sparse}

    def node(
        self, node: NodeProto, names: Mapping[str, str], constants: Mapping[str, TensorProto], within: str
    ) -> list[Any]:
        attributes = sorted(node.attribute, key=lambda attribute: attribute.name)
        return [
            "" if node.domain == "ai.onnx" else node.domain,
            node.op_type,
            self.sources(node, names, constants),
            [bool(name) for name in node.output],
            [self.attribute(attribute, names, constants, within) for attribute in attributes],
        ]

    def sources(self, node: NodeProto, names: Mapping[str, str], constants: Mapping[str, TensorProto]) -> list[Any]:
        found = [self.source(name, node.op_type, names, constants) for name in node.input]
        if self.values:
            return found
        places = _ZERO_POINTS.get(node.op_type, ())
        found += [""] * (max(places, default=-1) + 1 - len(found))
        for place in places:
            tensor = constants.get(node.input[place]) if place < len(node.input) else None
            if tensor is not None and math.prod(tensor.dims) == 1:
                found[place] = ""
        return found

    def source(
        self, name: str, operator: str, names: Mapping[str, str], constants: Mapping[str, TensorProto]
    ) -> str | list[Any]:
        """Where an input comes from: a port, a node, or a constant; '' where it is left out."""
        if name not in constants:
            return names.get(name, f"unknown {name}" if name else "")
        tensor = constants[name]
        blank = not self.values and _is_number(tensor, operator)
        which = self.large.setdefault(name, len(self.large)) if raw_bytes(tensor) >= LARGE_BYTES else None
        return [tensor.data_type, list(tensor.dims), which, None if blank else _content(tensor)]

    def attribute(
        self, attribute: AttributeProto, names: Mapping[str, str], constants: Mapping[str, TensorProto], within: str
    ) -> list[Any]:
        inner = [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)
        if inner:
            graphs = [self.graph(graph, names, constants, f"{within}{attribute.name}") for graph in inner]
            return [attribute.name, graphs]
        plain = AttributeProto()
        plain.CopyFrom(attribute)
        plain.ClearField("doc_string")
        return [attribute.name, hashlib.sha256(plain.SerializeToString(deterministic=True)).hexdigest()]

    def port(self, port: ValueInfoProto) -> list[Any]:
        """Its name belongs to it where values do: feeds and outputs go by names."""
        kind = port.type.tensor_type
        shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in kind.shape.dim]
        return [port.name if self.values else "", port.type.WhichOneof("value"), kind.elem_type, shape]


def _is_number(tensor: TensorProto, operator: str) -> bool:
    if operator in _BY_VALUE:
        return False
    return tensor.data_type in _NUMBERS or (tensor.data_type == TensorProto.INT32 and operator in _INTEGER_BIAS)


def _content(tensor: TensorProto) -> str:
    """The digest of a tensor's values, however they are stored."""
    found = hashlib.sha256()
    if refers_apart(tensor):
        for chunk in chunks_of(tensor):
            found.update(chunk)
    elif tensor.data_type == TensorProto.STRING:
        for text in tensor.string_data:
            found.update(b"%d:" % len(text) + text)
    else:
        found.update(array_of(tensor).tobytes())
    return found.hexdigest()
