"""8-bit tensors between layers: additions, activations, pooling and concatenation of a Q/DQ graph in integers.

    Conv ─► Q ─► DQ ─► Relu ─► T ─► Q ─► DQ ─► Conv            Relu, and whatever else reads T, compute in float
    Conv ─► Relu ─► T ─► Q ─► DQ ─► Conv, Add, MaxPool …       ONNX Runtime makes QLinearConv, QLinearAdd … of it

No scale is new: a tensor that a quantized layer reads has one, and so has the result of a convolution. An operator
changes only where its tensors have scales:

- A Relu or Clip between a convolution and a tensor with a scale: the convolution's own rounding goes, since that of
  the tensor cuts at the same place. For a Relu its zero point must be the smallest integer, and the ends of a Clip must
  be those of its range.
- A MaxPool and what only moves values: their input is rounded with the scale of their result.
- The Sigmoid of a SiLU is rounded to 1/256, which its range allows.
- Everything that reads a tensor with a Q/DQ pair reads the pair, so that no tensor is kept in both forms.

What the runtime has no integer operator for stays float between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from collections import Counter
from graphlib import TopologicalSorter

import numpy as np
from onnx import ModelProto, NodeProto, helper

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, copied, names_read, replace_nodes
from workbench.graph.read import constants

_MOVES = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")
"""The result's values are the input's own."""
_SIGMOID_SCALE = np.float32(1 / 256)


def with_integers_between(lowered: ModelProto) -> ModelProto:
    """What `lower_static` gave, with 8-bit tensors between its layers where all scales are known.

    Pure and deterministic; a graph without such places stays as it is.
    """
    graph = _Graph(copied(lowered))
    graph.round_before_moving()
    graph.cut_by_rounding()
    graph.round_sigmoids()
    graph.read_pairs()
    return graph.in_order()


class _Graph:
    """The top graph of a Q/DQ model while its wires change."""

    def __init__(self, model: ModelProto) -> None:
        self.model, self.nodes = model, list(model.graph.node)
        self.names, self.known = Names(model.graph), constants(model)
        self.outputs = {value.name for value in model.graph.output}
        self._index()

    def _index(self) -> None:
        self.made = {name: node for node in self.nodes for name in node.output}
        self.readers = Counter(name for node in self.nodes for name in names_read(node))
        roundings = Counter(node.input[0] for node in self.nodes if node.op_type == "QuantizeLinear")
        self.pairs: dict[str, tuple[NodeProto, NodeProto]] = {}  # of each tensor that is rounded in one way, to uint8
        for node in self.nodes:
            quantize = self.made.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
            if quantize is not None and roundings[quantize.input[0]] == 1 and self._unsigned(quantize):
                self.pairs[quantize.input[0]] = (quantize, node)

    def _unsigned(self, node: NodeProto) -> bool:
        """Whether it is a QuantizeLinear to uint8 with constants, as ours are; a user's own may be of any form."""
        if node.op_type != "QuantizeLinear" or len(node.input) < 3 or not self.known.keys() >= set(node.input[1:3]):
            return False
        zero_point = array_of(self.known[node.input[2]])
        return bool(zero_point.dtype == np.uint8 and zero_point.ndim == 0)

    def round_before_moving(self) -> None:
        for node in [node for node in self.nodes if node.op_type in _MOVES]:
            name, result = node.input[0], node.output[0]
            if result in self.pairs and name not in self.pairs and name in self.made and self.readers[name] == 1:
                node.input[0] = self._rounded(name, list(self.pairs[result][0].input[1:]))

    def cut_by_rounding(self) -> None:
        for node in [node for node in self.nodes if node.op_type in ("Relu", "Clip")]:
            dequantize = self.made.get(node.input[0])
            if node.output[0] not in self.pairs or dequantize is None or dequantize.op_type != "DequantizeLinear":
                continue
            quantize = self.made.get(dequantize.input[0])
            alone = self.readers[node.input[0]] == 1 and self.readers[dequantize.input[0]] == 1
            if quantize is None or not self._unsigned(quantize) or not alone or node.input[0] in self.outputs:
                continue
            if self._cuts_alike(node, self.pairs[node.output[0]][0]):
                node.input[0] = quantize.input[0]
                self.nodes = [one for one in self.nodes if one is not quantize and one is not dequantize]
                self._index()

    def _cuts_alike(self, node: NodeProto, quantize: NodeProto) -> bool:
        scale, zero = (float(array_of(self.known[name])) for name in quantize.input[1:3])
        if node.op_type == "Relu":
            return zero == 0
        ends = [name for name in node.input[1:3] if name]
        if len(ends) != 2 or not all(name in self.known for name in ends):
            return False
        low, high = (float(array_of(self.known[name])) for name in ends)
        return low <= (0.5 - zero) * scale and high >= (254.5 - zero) * scale

    def round_sigmoids(self) -> None:
        for node in [node for node in self.nodes if node.op_type == "Sigmoid"]:
            result, x = node.output[0], self.made.get(node.input[0])
            readers = [other for other in self.nodes if result in other.input]
            silu = len(readers) == 1 and readers[0].op_type == "Mul" and node.input[0] in readers[0].input
            known = node.input[0] in self.pairs or (x is not None and x.op_type == "DequantizeLinear")
            if silu and known and readers[0].output[0] in self.pairs:
                scale = [self._constant(f"{result}_scale", _SIGMOID_SCALE)]
                rounded = self._rounded(result, [*scale, self._constant(f"{result}_zero_point", np.uint8(0))])
                readers[0].input[list(readers[0].input).index(result)] = rounded

    def read_pairs(self) -> None:
        for node in self.nodes:
            for place, name in enumerate(node.input):
                if node.op_type != "QuantizeLinear" and name in self.pairs and name in self.made:
                    node.input[place] = self.pairs[name][1].output[0]

    def in_order(self) -> ModelProto:
        """With each node behind those whose results it reads."""
        place = {name: index for index, node in enumerate(self.nodes) for name in node.output}
        reads = {i: [place[n] for n in names_read(node) if n in place] for i, node in enumerate(self.nodes)}
        if any(before > index for index, some in reads.items() for before in some):
            self.nodes = [self.nodes[index] for index in TopologicalSorter(reads).static_order()]
        replace_nodes(self.model.graph, self.nodes)
        return self.model

    def _rounded(self, name: str, parameters: list[str]) -> str:
        """The tensor behind a new Q/DQ pair."""
        quantized, result = self.names.fresh(f"{name}_quantized"), self.names.fresh(f"{name}_dequantized")
        for kind, source, to in (("QuantizeLinear", name, quantized), ("DequantizeLinear", quantized, result)):
            called = self.names.fresh(f"{to}_{kind}")
            self.nodes.append(helper.make_node(kind, [source, *parameters], [to], name=called))
        self._index()
        return result

    def _constant(self, wish: str, value: np.generic) -> str:
        name = self.names.fresh(wish)
        tensor = self.model.graph.initializer.add()
        tensor.CopyFrom(tensor_of(np.asarray(value), name))
        self.known[name] = tensor
        return name
