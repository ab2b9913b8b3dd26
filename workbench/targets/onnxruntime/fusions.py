"""Fusions of our own, on graphs from ONNX Runtime's optimizer: what its kernels can do and it does not ask of them.

    MatMulIntegerToFloat ─► Add(bias)         ⇒   MatMulIntegerToFloat with a bias
    MatMulIntegerToFloat ─► BiasGelu          ⇒   MatMulIntegerToFloat with a bias ─► Gelu
    MatMulIntegerToFloat ─► Mul(constant)     ⇒   the constant goes into the scale           (INT8 attention only)
    MatMulIntegerToFloat with weights' zero points of 0     ⇒   without them

BiasGelu is slower than Gelu (onnxruntime 1.31.1): only the latter has the vectorized kernel. Sums and products differ
from the separate operators by one rounding at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, copied, replace_nodes
from workbench.quantization.lowering.surgery import prune_constants

_A_SCALE = 2
_B_ZERO_POINT = 5
_BIAS = 6  # position in MatMulIntegerToFloat: A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias


def fused(model: ModelProto) -> ModelProto:
    """All fusions of this module; returns a new model."""
    copy = copied(model)
    merge_gelu(copy)
    merge_scale(copy)
    merge_bias(copy)
    drop_zero_points(copy)
    prune_constants(copy.graph)
    return copy


def merge_gelu(model: ModelProto) -> None:
    """Give the bias of a BiasGelu to the MatMulIntegerToFloat before it; a plain Gelu is left. Changes `model`."""
    graph = model.graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for product, gelu in _pairs(model, "BiasGelu"):
        if _takes_bias(product, shapes, gelu.input[1]):
            _give_bias(product, gelu.input[1])
            gelu.op_type = "Gelu"
            del gelu.input[1]


def merge_bias(model: ModelProto) -> None:
    """Let MatMulIntegerToFloat add the bias that follows it. Changes `model`.

    The runtime does this for dynamic INT8 and leaves it undone for Q/DQ models.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    removed: set[tuple[str, str]] = set()
    for product, add in _pairs(model, "Add"):
        bias = add.input[1] if add.input[0] == product.output[0] else add.input[0]
        if _takes_bias(product, shapes, bias):
            _give_bias(product, bias)
            _take_over(product, add, removed)
    _without(model, removed)


def merge_scale(model: ModelProto) -> None:
    """Move a positive factor of a product into the scale of its first input. Changes `model`."""
    graph = model.graph
    known = {tensor.name: tensor for tensor in graph.initializer}
    names = Names(graph)
    removed: set[tuple[str, str]] = set()
    for product, node in [*_pairs(model, "Mul"), *_pairs(model, "Div")]:
        behind = node.input[0] == product.output[0]
        other = node.input[1] if behind else node.input[0]
        scale = product.input[_A_SCALE]
        has_bias = len(product.input) > _BIAS and product.input[_BIAS]
        if has_bias or other not in known or scale not in known or (node.op_type == "Div" and not behind):
            continue
        factor = array_of(known[other])
        if factor.dtype != np.float32 or factor.size != 1 or factor.ndim > 1 or not factor.item() > 0:
            continue
        value = array_of(known[scale])
        value = value * factor.item() if node.op_type == "Mul" else value / factor.item()
        name = names.fresh(f"{product.output[0]}_scale")
        graph.initializer.append(tensor_of(np.asarray(value, np.float32), name))
        product.input[_A_SCALE] = name
        _take_over(product, node, removed)
    _without(model, removed)


def drop_zero_points(model: ModelProto) -> None:
    """Leave out zero points of weights that are all 0: a vector of them costs a sum over every row. Changes `model`."""
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        name = node.input[_B_ZERO_POINT] if len(node.input) > _B_ZERO_POINT else ""
        if node.op_type != "MatMulIntegerToFloat" or name not in known or array_of(known[name]).any():
            continue
        node.input[_B_ZERO_POINT] = ""
        if len(node.input) == _B_ZERO_POINT + 1:
            del node.input[_B_ZERO_POINT]


class Links:
    """Who makes and who reads a tensor."""

    def __init__(self, model: ModelProto) -> None:
        self.nodes = list(model.graph.node)
        self.known = {tensor.name: tensor for tensor in model.graph.initializer}
        self.makers = {name: node for node in self.nodes for name in node.output}
        self.outputs = {output.name for output in model.graph.output}
        self._readers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def maker(self, name: str, *op_types: str) -> NodeProto | None:
        """The node of one of these types that makes a tensor for a single reader."""
        node = self.makers.get(name)
        if node is None or node.op_type not in op_types or name in self.outputs:
            return None
        return node if len(self._readers[name]) == 1 else None

    def reader(self, node: NodeProto | None, *op_types: str) -> NodeProto | None:
        """The only node that reads a node's output, of one of these types."""
        readers = [] if node is None else self._readers.get(node.output[0], [])
        if node is None or len(readers) != 1 or node.output[0] in self.outputs or readers[0].op_type not in op_types:
            return None
        return readers[0]


def attribute_of(node: NodeProto, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _pairs(model: ModelProto, follower: str) -> list[tuple[NodeProto, NodeProto]]:
    """Every MatMulIntegerToFloat whose output only one node reads, of that type, and that node."""
    links = Links(model)
    products = [node for node in links.nodes if node.op_type == "MatMulIntegerToFloat"]
    return [(node, reader) for node in products if (reader := links.reader(node, follower)) is not None]


def _takes_bias(product: NodeProto, shapes: dict[str, tuple[int, ...]], bias: str) -> bool:
    """The product has none yet, and this one is a constant of one value per column."""
    has_bias = len(product.input) > _BIAS and bool(product.input[_BIAS])
    columns = shapes.get(product.input[1], ())[-1:]
    return not has_bias and bool(columns) and shapes.get(bias) == columns


def _give_bias(product: NodeProto, bias: str) -> None:
    del product.input[_BIAS:]
    product.input.extend([""] * (_BIAS - len(product.input)) + [bias])


def _take_over(product: NodeProto, follower: NodeProto, removed: set[tuple[str, str]]) -> None:
    product.output[0] = follower.output[0]
    removed.add((follower.op_type, follower.output[0]))


def _without(model: ModelProto, removed: set[tuple[str, str]]) -> None:
    # an absorbed node and the product that took over its output share that name; only the former goes
    replace_nodes(model.graph, [node for node in model.graph.node if (node.op_type, node.output[0]) not in removed])
