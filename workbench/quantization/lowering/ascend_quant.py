"""AscendQuant, AscendDequant and AscendAntiQuant as NumPy steps (amct.md §6.2, §6.6).

Between an AscendQuant and its AscendDequant a value is held as q - offset: a whole number in floating point, in which
zero padding is real zero (amct.md §6.5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto

from workbench.quantization.integers.kernels import Attributes
from workbench.values.errors import LoweringError, MeasureError

QUANT, DEQUANT, ANTI_QUANT = "AscendQuant", "AscendDequant", "AscendAntiQuant"

FP16_FACTOR_MASK = 0xFFFFE000
"""Keeps sign, exponent and 10 bits of mantissa of a float32 (amct.md §4.7)."""

Array = npt.NDArray[Any]
Values = dict[str, Array]

_INT8_MIN, _INT8_MAX = -128, 127
_INT16_MIN, _INT16_MAX = -(2**15), 2**15 - 1
_LARGEST_SHIFT = 16  # amct.md §4.7
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


def quantize(node: NodeProto, attributes: Attributes, arithmetic: Arithmetic) -> Step:
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


def dequantize(
    node: NodeProto, attributes: Attributes, param: Array, first: IntegerTensor, arithmetic: Arithmetic
) -> Step:
    if param.dtype != np.uint64 or param.ndim != 1 or (param >> np.uint64(32)).max(initial=0) > _LARGEST_SHIFT:
        raise LoweringError(
            f"{node.name}: its parameter {node.input[1]!r} is no vector of uint64 words with a float32 factor in bits "
            f"31:0 and a shift of 0 to {_LARGEST_SHIFT} above."
        )
    dtype = int(attributes.get("dtype", 0))
    if dtype not in _DTYPES:
        raise LoweringError(f"{node.name}: dtype {dtype} is not interpreted, only 0 (float32) and 1 (float16).")
    bits = (param & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    if arithmetic.truncate_deq_scale or arithmetic.force_fp16:
        bits &= np.uint32(FP16_FACTOR_MASK)
    factors = bits.view(np.float32)
    shifts = np.ldexp(np.float32(1), (param >> np.uint64(32)).astype(np.int32))
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


def anti_quantize(node: NodeProto, attributes: Attributes, first: IntegerTensor) -> Step:
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
