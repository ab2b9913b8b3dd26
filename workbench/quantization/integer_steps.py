"""The integer nodes of a deploy model as NumPy steps: AscendQuant, the layer, its bias, AscendDequant (amct.md §6).

Between an AscendQuant and its AscendDequant a value is held as q - offset: a whole number in floating point, in which
zero padding is real zero (amct.md §6.5). Bounds on every sum are known beforehand, so that it is added in a type that
holds it exactly (integer_kernels.py) and can be shown to fit the device's int32, or is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper, numpy_helper

from workbench.errors import LoweringError, MeasureError
from workbench.quantization.integer_kernels import (
    EXACT_FLOAT64,
    Attributes,
    Integers,
    average_pool,
    conv,
    conv_transpose,
    exact_type,
    product,
)

QUANT, DEQUANT, ANTI_QUANT = "AscendQuant", "AscendDequant", "AscendAntiQuant"

Array = npt.NDArray[Any]
Values = dict[str, Array]

_INT8_MIN, _INT8_MAX = -128, 127
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_INT16_MIN, _INT16_MAX = -(2**15), 2**15 - 1
_FP16_FACTOR_MASK = np.uint64(0xFFFFE000)
_SMALLEST_NORMAL_FP16, _LARGEST_FP16 = np.float32(2.0**-14), np.float32(65504.0)
_ROUNDINGS: Mapping[str, np.ufunc] = {"Round": np.rint, "Floor": np.floor, "Ceil": np.ceil, "Trunc": np.trunc}
_DTYPES = {0: TensorProto.FLOAT, 1: TensorProto.FLOAT16}  # GE's numbers (amct.md §6.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """What may differ from plain float32 factors.

    Attributes:
        truncate_deq_scale: AscendDequant's factors lose their low 13 mantissa bits, as on chips with fixpipe; for
            910B3 that is [inferred] (amct.md §6.6).
        force_fp16: AMCT's FORCE_FP16 simulation: both ends compute in half precision, factors are truncated too.
    """

    truncate_deq_scale: bool = False
    force_fp16: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerTensor:
    """What is known beforehand of a tensor between AscendQuant and AscendDequant.

    Attributes:
        kind: 'mean' is what AveragePool leaves: no whole numbers.
        bound: no magnitude is larger; infinite where only the feeds tell.
        offset: of int8 values, which are held as q - offset.
        channel_axis: the axis that factors per channel run along.
    """

    kind: Literal["int8", "int32", "mean"]
    bound: float
    offset: int = 0
    channel_axis: int = -1

    def stored(self, values: Array) -> Array:
        """The values as the device holds them: int8, int32, or float32 means."""
        if self.kind == "int8":
            return (values + self.offset).astype(np.int8)
        return values.astype(np.int32 if self.kind == "int32" else np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node: what it reads and writes, and how from the tensors so far.

    Attributes:
        integer: None where floats come out, of `element_type` then.
    """

    inputs: tuple[str, ...]
    output: str
    compute: Callable[[Values], Array]
    integer: IntegerTensor | None
    element_type: int = TensorProto.FLOAT


def integer_step(
    node: NodeProto,
    known: Mapping[str, TensorProto],
    integers: Mapping[str, IntegerTensor],
    arithmetic: Arithmetic,
) -> Step:
    """The step of a node that is an Ascend operator or reads an integer tensor.

    Raises:
        LoweringError: an operator, attribute or input that the deploy form does not have.
    """
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in (QUANT, DEQUANT, ANTI_QUANT) and attributes.get("sqrt_mode", 0):
        raise LoweringError(f"{node.name}: sqrt_mode is not interpreted. Write the factor itself, with sqrt_mode 0.")
    if node.op_type == QUANT:
        return _quantize(node, attributes, arithmetic)
    if node.input[0] not in integers:
        raise LoweringError(f"{node.name}: {node.op_type} reads {node.input[0]!r}, which no AscendQuant leads to.")
    first = integers[node.input[0]]
    if node.op_type == DEQUANT:
        return _dequantize(node, attributes, _constant(node, 1, known), first, arithmetic)
    if node.op_type == ANTI_QUANT:
        return _anti_quantize(node, attributes, first)
    if node.op_type == "AveragePool" and first.kind == "int8":
        return _pool(node, attributes, first)
    if node.op_type in ("Conv", "ConvTranspose") and first.kind == "int8":
        return _convolve(node, attributes, known, first)
    if node.op_type in ("MatMul", "Gemm") and first.kind == "int8":
        if node.op_type == "MatMul" and node.input[1] in integers:
            return _multiply(node, first, integers[node.input[1]])
        return _multiply_constant(node, attributes, known, first)
    if node.op_type == "Add" and first.kind == "int32":
        return _add(node, known, first)
    raise LoweringError(
        f"{node.name}: {node.op_type} on {first.kind} values is not part of a deploy model (amct.md §6)."
    )


def _quantize(node: NodeProto, attributes: Attributes, arithmetic: Arithmetic) -> Step:
    kind = _text(attributes.get("dst_type", "INT8"))
    if kind != "INT8":
        raise LoweringError(f"{node.name}: dst_type {kind} is not interpreted, only INT8.")
    mode = _text(attributes.get("round_mode", "Round"))
    if mode not in _ROUNDINGS:
        raise LoweringError(f"{node.name}: round_mode {mode!r} is unknown. Valid: {', '.join(_ROUNDINGS)}.")
    rounded, source = _ROUNDINGS[mode], node.input[0]
    scale, offset = np.float32(attributes.get("scale", 0.0)), float(attributes.get("offset", 0.0))
    if not offset.is_integer() or not _INT8_MIN <= offset <= _INT8_MAX:
        raise LoweringError(f"{node.name}: offset {offset:g} is no whole number from -128 to 127.")
    low, high = _INT8_MIN - offset, _INT8_MAX - offset
    half_scale = _half_precision_scale(scale)

    def compute(values: Values) -> Array:
        x = values[source]
        if x.dtype not in (np.float32, np.float16):
            raise MeasureError(f"{node.name}: its input {source!r} is {x.dtype}; AscendQuant takes float32 or float16.")
        if arithmetic.force_fp16:
            # every step in half precision, the offset before the rounding (amct.md §6.6)
            q = _half(_half(_half(x) * half_scale) + np.float32(offset))
            rounded(q, out=q)
            q -= np.float32(offset)
        else:
            q = np.multiply(x, scale, dtype=np.float32)
            rounded(q, out=q)
        # clip(q + offset, -128, 127) - offset, in one pass
        np.clip(q, np.float32(low), np.float32(high), out=q)
        if np.isnan(q.max(initial=low)):
            raise MeasureError(f"{node.name}: its input {source!r} holds NaN.")
        return q

    bound = max(abs(low), abs(high))
    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=compute,
        integer=IntegerTensor(kind="int8", bound=bound, offset=int(offset)),
    )


def _dequantize(
    node: NodeProto, attributes: Attributes, param: Array, first: IntegerTensor, arithmetic: Arithmetic
) -> Step:
    if param.dtype != np.uint64 or param.ndim != 1 or (param >> np.uint64(40)).any():
        raise LoweringError(
            f"{node.name}: its parameter {node.input[1]!r} is no vector of uint64 words with zero from bit 40 up."
        )
    dtype = int(attributes.get("dtype", 0))
    if dtype not in _DTYPES:
        raise LoweringError(f"{node.name}: dtype {dtype} is not interpreted, only 0 (float32) and 1 (float16).")
    words = param & _FP16_FACTOR_MASK if arithmetic.truncate_deq_scale or arithmetic.force_fp16 else param
    factors = (words & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
    shifts = np.ldexp(np.float32(1), ((param >> np.uint64(32)) & np.uint64(0xFF)).astype(np.int32))
    shifted = bool((shifts != 1).any())
    source = node.input[0]

    def compute(values: Values) -> Array:
        y = values[source]
        shape = [1] * y.ndim
        shape[first.channel_axis] = -1
        factor, shift = factors.reshape(shape), shifts.reshape(shape)
        if shifted:  # amct.md §6.6: a channel with shift 0 keeps its int32
            narrow = np.clip(np.floor(y / shift.astype(np.float64)), _INT16_MIN, _INT16_MAX)
            result = np.where(shift == 1, y, narrow).astype(np.float32) * factor * shift
        else:
            result = y.astype(np.float32, copy=False) * factor
        if attributes.get("relu_flag", 0):
            result = np.maximum(result, np.float32(0))
        if arithmetic.force_fp16:
            result = _half(result)
        return result.astype(np.float32 if dtype == 0 else np.float16, copy=False)

    return Step(
        inputs=tuple(node.input), output=node.output[0], compute=compute, integer=None, element_type=_DTYPES[dtype]
    )


def _anti_quantize(node: NodeProto, attributes: Attributes, first: IntegerTensor) -> Step:
    """(q - offset) · scale: ATC's plugin negates the ONNX offset (amct.md §6.2)."""
    if first.kind != "int8" or attributes.get("dtype", 0):
        raise LoweringError(f"{node.name}: only int8 to float32 (dtype 0) is interpreted.")
    scale = np.float32(attributes.get("scale", 0.0))
    difference = np.float32(first.offset - float(attributes.get("offset", 0.0)))
    source = node.input[0]
    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=lambda values: (values[source] + difference) * scale,
        integer=None,
    )


def _pool(node: NodeProto, attributes: Attributes, first: IntegerTensor) -> Step:
    source = node.input[0]
    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=lambda values: average_pool(values[source], attributes),
        integer=IntegerTensor(kind="mean", bound=first.bound, channel_axis=1),
    )


def _convolve(node: NodeProto, attributes: Attributes, known: Mapping[str, TensorProto], first: IntegerTensor) -> Step:
    weight = _weight(node, known)
    source, groups = node.input[0], int(attributes.get("group", 1))
    if node.op_type == "Conv":
        kernel, reach = conv, np.abs(weight).sum(axis=tuple(range(1, weight.ndim)), dtype=np.float64)
    else:
        split = np.abs(weight).reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        kernel, reach = conv_transpose, split.sum(axis=(1, 3), dtype=np.float64).reshape(-1)
    bound = _checked_bound(node, first.bound * float(reach.max()))
    bias = None
    if len(node.input) > 2 and node.input[2]:
        bias = _bias(node, 2, known).reshape(-1, *[1] * (weight.ndim - 2))
        reach = first.bound * reach + np.abs(bias.reshape(-1))
    total = float(reach.max()) if bias is not None else bound

    def compute(values: Values) -> Array:
        return _finish(node, kernel(values[source], weight, attributes, bound), bias, total)

    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=compute,
        integer=IntegerTensor(kind="int32", bound=total, channel_axis=1),
    )


def _multiply_constant(
    node: NodeProto, attributes: Attributes, known: Mapping[str, TensorProto], first: IntegerTensor
) -> Step:
    plain = attributes.get("alpha", 1.0) == 1.0 == attributes.get("beta", 1.0) and not attributes.get("transA", 0)
    if not plain:
        raise LoweringError(f"{node.name}: a Gemm of a deploy model has alpha = beta = 1 and transA = 0.")
    weight = _weight(node, known)
    if attributes.get("transB", 0):
        weight = np.ascontiguousarray(weight.T)
    source = node.input[0]
    reach = np.abs(weight).sum(axis=-2 if weight.ndim > 1 else 0, dtype=np.float64)
    bound = _checked_bound(node, first.bound * float(np.max(reach, initial=0.0)))
    has_bias = node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]
    bias = _bias(node, 2, known) if has_bias else None
    total = bound if bias is None else bound + float(np.abs(bias).max(initial=0.0))

    def compute(values: Values) -> Array:
        return _finish(node, product(values[source], weight, bound), bias, total)

    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=compute,
        integer=IntegerTensor(kind="int32", bound=total),
    )


def _multiply(node: NodeProto, first: IntegerTensor, second: IntegerTensor) -> Step:
    left, right = node.input

    def compute(values: Values) -> Array:
        a, b = values[left], values[right]
        bound = first.bound * second.bound * a.shape[-1]
        return _finish(node, product(a, b, bound), None, bound)

    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=compute,
        integer=IntegerTensor(kind="int32", bound=math.inf),
    )


def _add(node: NodeProto, known: Mapping[str, TensorProto], first: IntegerTensor) -> Step:
    bias = _bias(node, 1, known)
    total = first.bound + float(np.abs(bias).max(initial=0.0))
    source = node.input[0]
    return Step(
        inputs=tuple(node.input),
        output=node.output[0],
        compute=lambda values: _finish(node, values[source], bias, total),
        integer=IntegerTensor(kind="int32", bound=total, channel_axis=first.channel_axis),
    )


def _finish(node: NodeProto, sums: Integers, bias: Integers | None, bound: float) -> Integers:
    """Sums with their bias, in a type that holds them; refused where the device's int32 would not hold them."""
    if bias is not None:
        kind = exact_type(bound)
        sums = sums.astype(kind, copy=False) + bias.astype(kind, copy=False)
    if bound > _INT32_MAX and sums.size:
        low, high = float(sums.min()), float(sums.max())
        if low < _INT32_MIN or high > _INT32_MAX:
            raise MeasureError(
                f"{node.name}: a sum reaches {high if high > _INT32_MAX else low:.0f}, outside int32. "
                "The device would wrap or saturate; keep this layer in float."
            )
    return sums


def _checked_bound(node: NodeProto, bound: float) -> float:
    if bound > EXACT_FLOAT64:
        raise LoweringError(f"{node.name}: sums may reach {bound:.3g}, beyond 2**53; no exact sum is possible here.")
    return bound


def _weight(node: NodeProto, known: Mapping[str, TensorProto]) -> npt.NDArray[np.float32]:
    values = _constant(node, 1, known)
    if values.dtype != np.int8:
        raise LoweringError(f"{node.name}: its weight {node.input[1]!r} is {values.dtype}, not int8.")
    return values.astype(np.float32)


def _bias(node: NodeProto, position: int, known: Mapping[str, TensorProto]) -> npt.NDArray[np.float64]:
    values = _constant(node, position, known)
    if values.dtype != np.int32:
        raise LoweringError(f"{node.name}: its bias {node.input[position]!r} is {values.dtype}, not int32.")
    return values.astype(np.float64)


def _constant(node: NodeProto, position: int, known: Mapping[str, TensorProto]) -> Array:
    if len(node.input) <= position or node.input[position] not in known:
        raise LoweringError(f"{node.name}: {node.op_type} needs a constant as input {position}.")
    return numpy_helper.to_array(known[node.input[position]])


def _half_precision_scale(scale: np.float32) -> np.float32:
    """Of a scale outside half precision's normal numbers, AMCT squares the rounded square root (amct.md §4.7)."""
    if _SMALLEST_NORMAL_FP16 <= scale <= _LARGEST_FP16:
        return np.float32(np.float16(scale))
    return np.float32(np.float16(np.sqrt(scale))) ** 2


def _half(values: Array) -> npt.NDArray[np.float32]:
    """Values rounded to float16, in float32; beyond its range infinite, which the clipping takes care of."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
