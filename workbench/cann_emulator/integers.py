"""INT8 layers in ONNX operators that give the bits of `quantization.interpreter`, in one session and at float speed.

Whole numbers are held in floating point, as the interpreter holds them. A sum of whole numbers is exact in float32
while neither its positive nor its negative terms can exceed 2**24 together, whatever the order of additions, and in
float64 up to 2**53; from the weights and the range of the activations the wider type is chosen where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper, shape_inference

from workbench.cann_emulator.rounding import Array, Program
from workbench.quantization.interpreter import EXACT_FLOAT32
from workbench.quantization.lowering.deploy import ANTI_QUANT, DEQUANT, FP16_FACTOR_MASK, QUANT

_INT32_MAX = 2**31 - 1
_SHAPE_ELEMENTS = 64
"""Constants up to this size may be shapes, axes or indices, whose values inference needs."""


class NotExpressible(Exception):
    """The layer has a form that only the interpreter covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """A tensor of whole numbers.

    Attributes:
        low, high: its range.
        places: axes behind that of the channels.
        double: held in float64.
    """

    low: float
    high: float
    places: int = 0
    double: bool = False


def expanded(program: Program, *, truncate_deq_scale: bool) -> Program:
    """The program with AscendQuant, AscendDequant and all between them in standard operators.

    Raises:
        NotExpressible: a layer or attribute beyond MatMul, Gemm, Conv and a bias, or sums that int32 may not hold.
    """
    expansion = _Expansion(program, truncate_deq_scale)
    for node in program.nodes:
        expansion.take(node)
    return replace(program, nodes=tuple(expansion.nodes), constants={**program.constants, **expansion.constants})


def has_integers(program: Program) -> bool:
    return any(node.op_type in (QUANT, DEQUANT, ANTI_QUANT) for node in program.nodes)


class _Expansion:
    def __init__(self, program: Program, truncate: bool) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self._known = program.constants
        self._truncate = truncate
        self._whole: dict[str, _Whole] = {}
        self._shapes = _shapes(program)

    def take(self, node: NodeProto) -> None:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type in (QUANT, DEQUANT, ANTI_QUANT) and attributes.get("sqrt_mode", 0):
            raise NotExpressible(f"{node.name}: sqrt_mode")
        if node.op_type == QUANT:
            self._quantize(node, attributes)
        elif node.op_type == DEQUANT and node.input[0] in self._whole:
            self._dequantize(node, attributes)
        elif node.op_type in ("MatMul", "Gemm", "Conv") and node.input[0] in self._whole:
            self._multiply(node, attributes)
        elif node.op_type == "Add" and node.input[0] in self._whole:
            self._add(node.input[0], self._values(node, 1, np.int32), node.output[0])
        elif node.op_type in (DEQUANT, ANTI_QUANT) or any(name in self._whole for name in node.input):
            raise NotExpressible(f"{node.name}: {node.op_type}")
        else:
            self.nodes.append(node)

    def _quantize(self, node: NodeProto, attributes: Mapping[str, Any]) -> None:
        scale, offset = np.float32(attributes.get("scale", 0.0)), attributes.get("offset", 0.0)
        if attributes.get("dst_type", b"INT8") != b"INT8" or attributes.get("round_mode", b"Round") != b"Round":
            raise NotExpressible(f"{node.name}: dst_type or round_mode")
        if not isinstance(offset, float) or not offset.is_integer() or not -128 <= offset <= 127:
            raise NotExpressible(f"{node.name}: offset {offset}")
        y = node.output[0]
        x = node.input[0]
        if scale != 1:
            x = self._node("Mul", [x, self._constant(f"{y}_scale", scale)], f"{y}_scaled")
        x = self._node("Round", [x], f"{y}_rounded")
        low, high = -128 - offset, 127 - offset
        limits = [self._constant(f"{y}_{name}", np.float32(value)) for name, value in (("low", low), ("high", high))]
        self._node("Clip", [x, *limits], y)
        self._whole[y] = _Whole(low=low, high=high)

    def _dequantize(self, node: NodeProto, attributes: Mapping[str, Any]) -> None:
        if attributes.get("dtype", 0) not in (0, 1) or attributes.get("relu_flag", 0):
            raise NotExpressible(f"{node.name}: dtype or relu_flag")
        param = self._values(node, 1, np.uint64)
        if param.ndim != 1 or (param >> np.uint64(32)).any():
            raise NotExpressible(f"{node.name}: a shift")
        bits = (param & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        if self._truncate:
            bits &= np.uint32(FP16_FACTOR_MASK)
        factors = bits.view(np.float32)
        first, x, y = self._whole[node.input[0]], node.input[0], node.output[0]
        factors = factors.reshape(-1, *[1] * first.places) if factors.size > 1 else factors.reshape(())
        if first.double:
            x = self._node("Cast", [x], f"{y}_single", to=TensorProto.FLOAT)
        self._node("Mul", [x, self._constant(f"{y}_factors", factors)], y)

    def _multiply(self, node: NodeProto, attributes: Mapping[str, Any]) -> None:
        (a, b, *more), y, kind = node.input, node.output[0], node.op_type
        first, places = self._whole[a], 0
        if b in self._whole:
            right = self._whole[b]
            corners = [x * z for x in (first.low, first.high) for z in (right.low, right.high)]
            terms = self._shape(a)[-1]
            self._sum(node, [a, b], (min(0.0, *corners) * terms, max(0.0, *corners) * terms), y)
            return
        weight, axis = self._values(node, 1, np.int8), tuple[int, ...]((-2,))
        if kind == "Gemm":
            if not attributes.get("alpha", 1.0) == 1.0 == attributes.get("beta", 1.0) or attributes.get("transA", 0):
                raise NotExpressible(f"{node.name}: alpha, beta or transA")
            weight = np.ascontiguousarray(weight.T) if attributes.get("transB", 0) else weight
        elif kind == "Conv":
            axis, places = tuple(range(1, weight.ndim)), weight.ndim - 2
        elif weight.ndim == 1:
            axis = (0,)
        reach = _reach(weight, first, axis)
        if kind == "Conv" and not _single(reach):
            raise NotExpressible(f"{node.name}: sums beyond 2**24, and no Conv in float64")
        biased = kind != "MatMul" and any(more)
        target = f"{y}_product" if biased else y
        held = self._constant(f"{y}_weight", weight.astype(np.float32 if _single(reach) else np.float64))
        self._sum(node, [a, held], reach, target, places)
        if biased:
            bias = self._values(node, 2, np.int32)
            self._add(target, bias.reshape(-1, *[1] * places) if kind == "Conv" else bias, y)

    def _sum(
        self, node: NodeProto, inputs: list[str], reach: tuple[float, float], target: str, places: int = 0
    ) -> None:
        if max(-reach[0], reach[1]) > _INT32_MAX:
            raise NotExpressible(f"{node.name}: sums may leave int32")
        if not _single(reach):
            wide = [name for name in inputs if name in self._whole]
            inputs = [
                self._node("Cast", [name], f"{target}_{place}", to=TensorProto.DOUBLE) if name in wide else name
                for place, name in zip("ab", inputs, strict=True)
            ]
        kernel = NodeProto(op_type="Conv" if node.op_type == "Conv" else "MatMul", input=inputs, output=[target])
        if node.op_type == "Conv":
            kernel.attribute.extend(node.attribute)
        self.nodes.append(kernel)
        self._whole[target] = _Whole(low=reach[0], high=reach[1], places=places, double=not _single(reach))

    def _add(self, x: str, bias: npt.NDArray[Any], y: str) -> None:
        first, values = self._whole[x], bias.astype(np.float64)
        reach = (first.low + min(0.0, values.min()), first.high + max(0.0, values.max()))
        if max(-reach[0], reach[1]) > _INT32_MAX:
            raise NotExpressible(f"{y}: sums may leave int32")
        double = first.double or not _single(reach)
        if double and not first.double:
            x = self._node("Cast", [x], f"{y}_a", to=TensorProto.DOUBLE)
        self._node("Add", [x, self._constant(f"{y}_bias", values.astype(np.float64 if double else np.float32))], y)
        self._whole[y] = _Whole(low=reach[0], high=reach[1], places=first.places, double=double)

    def _values(self, node: NodeProto, position: int, kind: type[np.generic]) -> npt.NDArray[Any]:
        if len(node.input) <= position or node.input[position] not in self._known:
            raise NotExpressible(f"{node.name}: input {position} is no constant")
        values = self._known[node.input[position]]
        if values.dtype != kind:
            raise NotExpressible(f"{node.name}: input {position} is {values.dtype}")
        return values

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self._shapes:
            raise NotExpressible(f"{name}: its shape is not known")
        return self._shapes[name]

    def _constant(self, name: str, values: npt.NDArray[Any] | np.generic) -> str:
        self.constants[name] = np.asarray(values)
        return name

    def _node(self, op_type: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output


def _reach(weight: Array, first: _Whole, axis: tuple[int, ...]) -> tuple[float, float]:
    """Between these lies every partial sum, in any order: of the least and of the greatest terms.

    The range of the activations includes 0.
    """
    total = weight.sum(axis=axis, dtype=np.int64)
    magnitude = np.abs(weight.astype(np.int16)).sum(axis=axis, dtype=np.int64)
    above, below = (magnitude + total) / 2, (total - magnitude) / 2
    low, high = first.low * above + first.high * below, first.high * above + first.low * below
    return float(low.min(initial=0.0)), float(high.max(initial=0.0))


def _single(reach: tuple[float, float]) -> bool:
    return max(-reach[0], reach[1]) <= EXACT_FLOAT32


def _shapes(program: Program) -> dict[str, tuple[int, ...]]:
    """Static shapes, as far as inference tells with the Ascend operators in the way: those keep their input's."""
    nodes = []
    for node in program.nodes:
        stand_in = NodeProto()
        stand_in.CopyFrom(node)
        if node.op_type in (QUANT, DEQUANT, ANTI_QUANT):
            del stand_in.input[1:], stand_in.attribute[:]
            stand_in.op_type = "Identity"
        nodes.append(stand_in)
    whole = (np.dtype(np.int8), np.dtype(np.int32))
    described, valued = [], {}
    for name, values in program.constants.items():
        if values.size <= _SHAPE_ELEMENTS and values.dtype == np.int64:
            valued[name] = values
        else:
            kind = np.dtype(np.float32) if values.dtype in whole else values.dtype
            number = helper.np_dtype_to_tensor_dtype(kind)
            described.append(helper.make_tensor_value_info(name, number, values.shape))
    bare = replace(
        program,
        nodes=tuple(nodes),
        constants=valued,
        inputs=(*program.inputs, *described),
    )
    inferred = shape_inference.infer_shapes(bare.proto()[0], data_prop=True)
    found = {}
    for value in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            found[value.name] = tuple(d.dim_value for d in dims)
    return found
