"""8-bit tensors between layers: additions, activations, pooling and concatenation of a Q/DQ graph in integers.

    Conv ─► Q ─► DQ ─► Relu ─► T ─► Q ─► DQ ─► Conv            Relu, and whatever else reads T, compute in float
    Conv ─► Relu ─► T ─► Q ─► DQ ─► Conv, Add, MaxPool …       ONNX Runtime makes QLinearConv, QLinearAdd … of it

Almost no scale is new: a tensor that a quantized layer reads has one, and so has the result of a convolution. An
operator changes only where its tensors have scales:

- A Relu or Clip between a convolution and a tensor with a scale: the convolution's own rounding goes, since that of
  the tensor cuts at the same place. For a Relu its zero point must be the smallest integer, and the ends of a Clip must
  be those of its range.
- A MaxPool, what only moves values, Concat and Split: their inputs are rounded with the scale of the result.
- The Sigmoid of a SiLU is rounded to 1/256, which its range allows. A HardSigmoid becomes an addition whose rounding to
  uint8 cuts at both of its ends.
- One number that multiplies what follows a SiLU or hard-swish goes into the scale of that factor.
- Everything that reads a tensor with a Q/DQ pair reads the pair, so that no tensor is kept in both forms.

What the runtime has no integer operator for stays float between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np
from onnx import ModelProto, NodeProto

from workbench.graph.apart import array_of
from workbench.graph.nodes import DEFAULT_DOMAINS, attributes_of, copied, names_read, replace_nodes
from workbench.quantization.lowering.qdq import QuantizedTensors

_MOVES = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")
"""The result's values are the input's own."""
_ADDS = ("Add", "Relu", "Clip", "MaxPool", "AveragePool", "GlobalAveragePool")
_GATES = ("Sigmoid", "HardSigmoid")
_SIGMOID_SCALE = 1 / 256
_NEAREST = (None, "nearest", b"nearest")


def with_integers_between(lowered: ModelProto, *, everything: bool = True) -> ModelProto:
    """What `lower_static` gave, with 8-bit tensors between its layers where all scales are known.

    Pure and deterministic; a graph without such places stays as it is.

    Args:
        everything: False for the activations of ReLU's kind, MaxPool and additions alone.
    """
    graph = _Graph(copied(lowered))
    graph.round_before_moving(everything)
    graph.cut_by_rounding()
    if everything:
        graph.round_gates()
        graph.round_constants()
    graph.read_pairs(everything)
    return graph.in_order()


def with_hard_sigmoids(proto: ModelProto) -> ModelProto:
    """The model with each clip(x + c, 0, m) / m as one HardSigmoid, also where a product with x stands before the
    division, as in a hard-swish. The very same model where there is none.

    Pure; results differ by roundings of float32.
    """
    graph = _Graph(copied(proto))
    before = len(graph.nodes)
    for node in [node for node in graph.nodes if node.op_type == "Clip" and node.domain in DEFAULT_DOMAINS]:
        graph.merge_hard_sigmoid(node)
    return proto if len(graph.nodes) == before else graph.in_order()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tail:
    """What follows a product up to a tensor with a scale: times a positive number, plus another one."""

    tensor: str
    factor: float = 1.0
    shift: float = 0.0
    nodes: tuple[NodeProto, ...] = ()


class _Graph(QuantizedTensors):
    """The top graph of a model while its wires change."""

    def __init__(self, model: ModelProto) -> None:
        super().__init__(model)
        self.model, self.nodes = model, list(model.graph.node)
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

    def _scale_of(self, tensor: str) -> tuple[float, int]:
        scale, zero = (array_of(self.known[name]).item() for name in self.pairs[tensor][0].input[1:3])
        return float(scale), int(zero)

    # --- what moves values ---

    def round_before_moving(self, everything: bool) -> None:
        for node in [node for node in reversed(self.nodes) if everything or node.op_type == "MaxPool"]:
            if node.op_type in _MOVES or (node.op_type == "Resize" and attributes_of(node).get("mode") in _NEAREST):
                name, result = node.input[0], node.output[0]
                if result in self.pairs and self._free(name) and self.readers[name] == 1:
                    node.input[0] = self._rounded(name, list(self.pairs[result][0].input[1:]))
            elif node.op_type == "Concat" and node.output[0] in self.pairs:
                parameters = list(self.pairs[node.output[0]][0].input[1:])
                for name in [name for name in node.input if self._free(name)]:
                    self._rounded(name, parameters)  # it holds all of this tensor's values: nothing is cut
            elif node.op_type == "Split" and self._free(node.input[0]) and self.readers[node.input[0]] == 1:
                self._round_before_splitting(node)

    def _free(self, name: str) -> bool:
        """Computed in float, and rounded nowhere yet."""
        made = self.made.get(name)
        return made is not None and name not in self.pairs and made.op_type != "DequantizeLinear"

    def _has_scale(self, name: str) -> bool:
        made = self.made.get(name)
        return name in self.pairs or (made is not None and made.op_type == "DequantizeLinear")

    def _round_before_splitting(self, node: NodeProto) -> None:
        """With the widest of the results' scales, where it holds the range of all."""
        results = [name for name in node.output if name]
        if not all(name in self.pairs for name in results):
            return
        ends = {name: self._ends(name) for name in results}
        low, high = min(low for low, _ in ends.values()), max(high for _, high in ends.values())
        for name, own in ends.items():
            if own[0] <= low and own[1] >= high:
                parameters = list(self.pairs[name][0].input[1:])
                node.input[0] = self._rounded(node.input[0], parameters)
                for result in results:
                    if list(self.pairs[result][0].input[1:]) != parameters:
                        quantize = self.pairs[result][0]
                        quantize.input[0] = self._rounded(result, parameters)
                        self._index()
                return

    def _ends(self, tensor: str) -> tuple[float, float]:
        scale, zero = self._scale_of(tensor)
        return -zero * scale, (255 - zero) * scale

    # --- activations ---

    def cut_by_rounding(self) -> None:
        for node in [node for node in self.nodes if node.op_type in ("Relu", "Clip")]:
            dequantize = self.made.get(node.input[0])
            if node.output[0] not in self.pairs or dequantize is None or dequantize.op_type != "DequantizeLinear":
                continue
            quantize = self.made.get(dequantize.input[0])
            alone = self.readers[node.input[0]] == 1 and self.readers[dequantize.input[0]] == 1
            if quantize is None or not self._unsigned(quantize) or not alone or node.input[0] in self.outputs:
                continue
            if self._cuts_alike(node):
                node.input[0] = quantize.input[0]
                self._remove(quantize, dequantize)

    def _cuts_alike(self, node: NodeProto) -> bool:
        scale, zero = self._scale_of(node.output[0])
        if node.op_type == "Relu":
            return zero == 0
        low, high = (self._number(name) for name in [*node.input[1:3], "", ""][:2])
        return low is not None and high is not None and low <= (0.5 - zero) * scale and high >= (254.5 - zero) * scale

    def round_gates(self) -> None:
        """Sigmoid and HardSigmoid of a tensor that multiply that tensor."""
        for node in [node for node in self.nodes if node.op_type in _GATES]:
            x, gate = node.input[0], node.output[0]
            product = self._reader(gate, "Mul")
            if product is None or sorted(product.input) != sorted([x, gate]) or not self._has_scale(x):
                continue
            self._scale_product(product.output[0], node)
            tail = self._tail(product.output[0])
            if tail is None:
                continue
            sigmoid = node.op_type == "Sigmoid"
            rounded = (
                self._rounded(gate, self._parameters(gate, _SIGMOID_SCALE)) if sigmoid else self._as_addition(node)
            )
            if rounded is None:
                continue
            if tail.factor != 1:
                dequantize = self.made[rounded]
                scale = tail.factor * float(array_of(self.known[dequantize.input[1]]))
                dequantize.input[1] = self.constant(f"{gate}_scale", np.float32(scale))
            product.input[list(product.input).index(gate)] = rounded
            self._remove(*tail.nodes)
            if tail.shift:
                scale, zero = self._scale_of(tail.tensor)
                moved = np.uint8(zero + round(tail.shift / scale))
                parameters = [*self.pairs[tail.tensor][0].input[1:2], self.constant(f"{gate}_zero_point", moved)]
                inputs = [self._rounded(product.output[0], parameters), self._exact(f"{gate}_shift", tail.shift)]
                self.add("Add", inputs, tail.tensor)
            else:
                product.output[0] = tail.tensor
            self._index()

    def _scale_product(self, product: str, gate: NodeProto) -> None:
        """A scale for x · gate(x) where no layer reads it and an addition with a scale does: its range is known."""
        reader = self._reader(product, "Add")
        if product in self.pairs or reader is None or reader.output[0] not in self.pairs:
            return
        x = gate.input[0] if gate.input[0] in self.pairs else self.made[self.made[gate.input[0]].input[0]].input[0]
        if x not in self.pairs:
            return
        low, high = self._ends(x)
        steps = np.linspace(low, high, 1024)
        values = attributes_of(gate)
        alpha, beta = float(values.get("alpha", 0.2)), float(values.get("beta", 0.5))
        opened = 1 / (1 + np.exp(-steps)) if gate.op_type == "Sigmoid" else np.clip(alpha * steps + beta, 0, 1)
        least, most = min(0.0, float((steps * opened).min())), max(0.0, float((steps * opened).max()))
        if most > least:
            scale = (most - least) / 255
            self._rounded(product, self._parameters(product, scale, np.uint8(round(-least / scale))))

    def _tail(self, product: str) -> _Tail | None:
        """None where no scale is reached, or the shift leaves none for the product."""
        tail = _Tail(tensor=product)
        while tail.tensor not in self.pairs:
            node = None if tail.shift else self._reader(tail.tensor, "Mul", "Div", "Add", "Sub")
            if node is None:
                return None
            second = node.input[1] if node.input[0] == tail.tensor else node.input[0]
            number = self._number(second)
            if number is None or (node.op_type in ("Sub", "Div") and second == node.input[0]):
                return None
            factor, shift = tail.factor, 0.0
            if node.op_type in ("Mul", "Div"):
                factor = factor * number if node.op_type == "Mul" else factor / number if number else 0.0
            else:
                shift = number if node.op_type == "Add" else -number
            if not (math.isfinite(factor) and factor > 0):
                return None
            tail = _Tail(tensor=node.output[0], factor=factor, shift=shift, nodes=(*tail.nodes, node))
        if tail.shift:
            scale, zero = self._scale_of(tail.tensor)
            if not 0 <= zero + round(tail.shift / scale) <= 255:
                return None
        return tail

    def _as_addition(self, node: NodeProto) -> str | None:
        """clip(α · x + β, 0, 1) as x + β / α, rounded to 255 steps from 0 to 1 / α, which are read as 0 to 1."""
        values = attributes_of(node)
        alpha, beta = float(values.get("alpha", 0.2)), float(values.get("beta", 0.5))
        if not alpha > 0 or not beta:
            return None
        total = self.names.fresh(f"{node.output[0]}_sum")
        self.add("Add", [node.input[0], self._exact(f"{node.output[0]}_shift", beta / alpha)], total)
        self._remove(node)
        zero_point = self.constant(f"{node.output[0]}_zero_point", np.uint8(0))
        scale = self.constant(f"{node.output[0]}_sum_scale", np.float32(1 / (255 * alpha)))
        rounded = self._rounded(total, [scale, zero_point])
        self.made[rounded].input[1] = self.constant(f"{node.output[0]}_scale", np.float32(1 / 255))
        return rounded

    def round_constants(self) -> None:
        """One number beside a tensor with a scale, in an Add or Mul whose result has one."""
        for node in [node for node in self.nodes if node.op_type in ("Add", "Mul") and node.output[0] in self.pairs]:
            for place, name in enumerate(node.input):
                number = self._number(name)
                if number and math.isfinite(number) and self._has_scale(node.input[1 - place]):
                    node.input[place] = self._exact(name, number)

    def merge_hard_sigmoid(self, clip: NodeProto) -> None:
        low, high = (self._number(name) for name in [*clip.input[1:3], "", ""][:2])
        add = self.made.get(clip.input[0])
        if low != 0 or not high or not high > 0 or add is None or add.op_type != "Add":
            return
        shifts = [self._number(name) for name in add.input]
        if (shifts[0] is None) == (shifts[1] is None) or self._reader(add.output[0], "Clip") is None:
            return
        x, shift = (add.input[0], shifts[1]) if shifts[0] is None else (add.input[1], shifts[0])
        assert shift is not None
        product = self._reader(clip.output[0], "Mul", "Div")
        division = product
        if product is not None and product.op_type == "Mul" and self._divides(product, high) is None:
            division = self._reader(product.output[0], "Mul", "Div")
        divided = None if division is None else self._divides(division, high)
        if product is None or division is None or divided is None:
            return
        if division is product:
            gate = product.output[0]
        else:
            gate = self.names.fresh(f"{clip.output[0]}_divided")
            product.input[:] = [gate if name == clip.output[0] else name for name in product.input]
            product.output[0] = division.output[0]
        self._remove(add, clip, division)
        self.add("HardSigmoid", [x], gate, alpha=1 / high, beta=shift / high)

    def _divides(self, node: NodeProto, number: float) -> str | None:
        """What it divides by the number, however that is written."""
        for place, name in enumerate(node.input):
            value = self._number(name)
            if value is None or (node.op_type == "Div" and place == 0):
                continue
            ratio = value / number if node.op_type == "Div" else value * number
            if math.isclose(ratio, 1, rel_tol=1e-6):
                return str(node.input[1 - place])
        return None

    # --- wires ---

    def read_pairs(self, everything: bool) -> None:
        for node in [node for node in self.nodes if everything or node.op_type in _ADDS]:
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

    def _reader(self, name: str, *op_types: str) -> NodeProto | None:
        """The only node that reads a tensor, of one of these types."""
        if self.readers[name] != 1 or name in self.outputs:
            return None
        return next((node for node in self.nodes if name in node.input and node.op_type in op_types), None)

    def _number(self, name: str) -> float | None:
        """A float constant of one element that makes no tensor larger."""
        if name not in self.known:
            return None
        values = array_of(self.known[name])
        return float(values.item()) if values.dtype == np.float32 and values.size == 1 and values.ndim <= 1 else None

    def _rounded(self, name: str, parameters: Sequence[str]) -> str:
        """The tensor behind a new Q/DQ pair."""
        quantized, result = self.names.fresh(f"{name}_quantized"), self.names.fresh(f"{name}_dequantized")
        self.add("QuantizeLinear", [name, *parameters], quantized)
        self.add("DequantizeLinear", [quantized, *parameters], result)
        self._index()
        return result

    def _exact(self, wish: str, number: float) -> str:
        """A number behind a DequantizeLinear, without rounding: its own size is the scale."""
        integers = [np.uint8(number > 0), np.uint8(number < 0)]
        values = [self.constant(f"{wish}_integer", integers[0]), *self._parameters(wish, abs(number), integers[1])]
        result = self.names.fresh(f"{wish}_dequantized")
        self.add("DequantizeLinear", values, result)
        self._index()
        return result

    def _parameters(self, wish: str, scale: float, zero_point: np.uint8 = np.uint8(0)) -> list[str]:  # noqa: B008
        return [
            self.constant(f"{wish}_scale", np.float32(scale)),
            self.constant(f"{wish}_zero_point", zero_point),
        ]

    def _remove(self, *nodes: NodeProto) -> None:
        self.nodes = [one for one in self.nodes if not any(one is node for node in nodes)]
        self._index()
