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
import numpy.typing as npt
from onnx import ModelProto, NodeProto

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, copied, replace_nodes
from workbench.quantization.lowering.surgery import prune_constants

Numbers = npt.NDArray[Any]
_A_SCALE, _B, _B_SCALE, _B_ZERO_POINT, _BIAS = 2, 1, 3, 5, 6
"""Positions in MatMulIntegerToFloat: A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias."""


def fused(model: ModelProto) -> ModelProto:
    """All fusions of this module; returns a new model."""
    copy = copied(model)
    graph = copy.graph
    known = {tensor.name: tensor for tensor in graph.initializer}
    names = Names(graph)

    def take_bias(product: NodeProto, follower: NodeProto) -> bool:
        """Into a product that has none; one value per column. The runtime leaves this undone for Q/DQ models."""
        bias = _other_input(product, follower)
        columns = known[product.input[_B]].dims[-1:] if product.input[_B] in known else []
        if _has(product, _BIAS) or not columns or bias not in known or list(known[bias].dims) != list(columns):
            return False
        del product.input[_BIAS:]
        product.input.extend([""] * (_BIAS - len(product.input)) + [bias])
        return True

    def take_factor(product: NodeProto, follower: NodeProto) -> bool:
        """A positive factor, into the scale of the first input."""
        other, scale = _other_input(product, follower), product.input[_A_SCALE]
        divided = follower.op_type == "Div"
        if _has(product, _BIAS) or other not in known or scale not in known or (divided and other == follower.input[0]):
            return False
        factor = array_of(known[other])
        if factor.dtype != np.float32 or factor.size != 1 or factor.ndim > 1 or not factor.item() > 0:
            return False
        value = array_of(known[scale])
        value = value / factor.item() if divided else value * factor.item()
        product.input[_A_SCALE] = names.fresh(f"{product.output[0]}_scale")
        graph.initializer.append(tensor_of(np.asarray(value, np.float32), product.input[_A_SCALE]))
        return True

    for product, gelu in _pairs(copy, "BiasGelu"):
        if take_bias(product, gelu):
            gelu.op_type = "Gelu"
            del gelu.input[1]
    for kinds, take in ((("Mul", "Div"), take_factor), (("Add",), take_bias)):
        # an absorbed node and the product that took over its output share that name; only the former goes
        gone = set()
        for product, follower in [pair for kind in kinds for pair in _pairs(copy, kind)]:
            if take(product, follower):
                product.output[0] = follower.output[0]
                gone.add((follower.op_type, follower.output[0]))
        replace_nodes(graph, [node for node in graph.node if (node.op_type, node.output[0]) not in gone])
    for node in graph.node:  # a vector of zero points costs a sum over every row
        zeros = node.input[_B_ZERO_POINT] if _has(node, _B_ZERO_POINT) else ""
        if node.op_type == "MatMulIntegerToFloat" and zeros in known and not array_of(known[zeros]).any():
            node.input[_B_ZERO_POINT] = ""
            if len(node.input) == _B_ZERO_POINT + 1:
                del node.input[_B_ZERO_POINT]
    prune_constants(graph)
    return copy


def _has(node: NodeProto, place: int) -> bool:
    return len(node.input) > place and bool(node.input[place])


def _other_input(product: NodeProto, follower: NodeProto) -> str:
    return str(follower.input[1] if follower.input[0] == product.output[0] else follower.input[0])


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


def layer_of(graph: Links, product: NodeProto) -> tuple[Numbers, Numbers, Numbers] | None:
    """(int8 weight [K, N], its scales [N], bias [N]) of a MatMulIntegerToFloat; None where one is no constant, or zero
    points of the weight are not 0."""
    weight, scale, zeros, bias = (
        product.input[place] if _has(product, place) else "" for place in (_B, _B_SCALE, _B_ZERO_POINT, _BIAS)
    )
    if any(name not in graph.known for name in (weight, scale, zeros, bias) if name):
        return None
    values = array_of(graph.known[weight])
    if values.dtype != np.int8 or values.ndim != 2 or (zeros and array_of(graph.known[zeros]).any()):
        return None
    columns = values.shape[1]
    added = array_of(graph.known[bias]) if bias else np.zeros(columns, np.float32)
    if added.shape != (columns,):
        return None
    return values, np.broadcast_to(array_of(graph.known[scale]), columns), added


def _pairs(model: ModelProto, follower: str) -> list[tuple[NodeProto, NodeProto]]:
    """Every MatMulIntegerToFloat whose output only one node reads, of that type, and that node."""
    links = Links(model)
    products = [node for node in links.nodes if node.op_type == "MatMulIntegerToFloat"]
    return [(node, reader) for node in products if (reader := links.reader(node, follower)) is not None]
