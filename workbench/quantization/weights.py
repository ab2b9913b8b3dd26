"""Scales of constant weights: symmetric int8, per tensor or per output channel."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto

from workbench.graph.apart import array_of
from workbench.graph.layers import Layer
from workbench.graph.read import constants
from workbench.quantization.recipe import WeightRecipe
from workbench.quantization.record import SMALLEST_SCALE, WeightScale, int8_parameters

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

_COARSE = 2.0 ** (-np.arange(15) / 6)  # 1 down to 0.2
_FINE = 2.0 ** (np.linspace(1, -1, 13) / 6)
_ELEMENTS_AT_ONCE = 65536  # scratch that stays in the cache


def weight_scale(values: Floats, recipe: WeightRecipe, layer: Layer) -> WeightScale:
    """The scale of one weight, found on its values.

    'minmax': max|w| / 127. 'arq': the same, but / 128 where the negative side is the larger (amct.md §4.4). 'mse':
    the smallest squared error. 'adaround': the scale of 'mse'; its rounding is learned later. An empty or all-zero
    channel gets scale 1.

    Args:
        values: float32, as stored in the model.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    rows = weight_rows(values, layer, per_channel=recipe.per_channel)
    minima, maxima = rows.min(axis=1, initial=0), rows.max(axis=1, initial=0)
    if not (np.isfinite(minima).all() and np.isfinite(maxima).all()):
        raise ValueError(f"weight {layer.weight!r} of layer {layer.name!r} holds NaN or infinity")
    if recipe.algorithm in ("mse", "adaround"):
        scales = _least_squares(rows, minima, maxima)
    else:
        if recipe.algorithm == "minmax":
            minima, maxima = np.zeros_like(minima), np.maximum(maxima, -minima)
        pairs = zip(minima.tolist(), maxima.tolist(), strict=True)
        scales = np.array([int8_parameters(low, high, symmetric=True)[0] for low, high in pairs])
    return WeightScale(scales=tuple(scales.tolist()), axis=layer.output_axis if recipe.per_channel else None)


def weights_of(proto: ModelProto, layers: Sequence[Layer]) -> Mapping[str, Floats]:
    """Layer name → values of its constant weight as stored, for the layers that have one; read when asked for."""
    known = constants(proto)
    return _Weights({layer.name: known[layer.weight] for layer in layers if layer.weight is not None})


class _Weights(Mapping[str, Floats]):
    """One layer's weight at a time: nothing is held between two questions."""

    def __init__(self, tensors: Mapping[str, TensorProto]) -> None:
        self._tensors = tensors

    def __getitem__(self, layer: str) -> Floats:
        return array_of(self._tensors[layer])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def weight_rows(values: Floats, layer: Layer, *, per_channel: bool) -> Floats:
    """The weight as [output channels, rest], or as one row.

    Output channels of a grouped ConvTranspose are those of all groups in order, as AMCT regroups them (amct.md §4).
    """
    if not per_channel:
        return values.reshape(1, -1)
    grouped = grouped_weight(values, layer)
    return grouped.reshape(grouped.shape[0] * grouped.shape[1], -1)


def grouped_weight(values: Floats, layer: Layer) -> Floats:
    """A layer's weight as [groups, Cout / groups, Cin / groups, kernel elements], whatever the operator stores.

    A MatMul and a Gemm have one group and one kernel element.
    """
    if layer.op_type == "Conv":  # stored [Cout, Cin / groups, kernel...]
        return values.reshape(layer.groups, values.shape[0] // layer.groups, values.shape[1], -1)
    if layer.op_type == "ConvTranspose":  # stored [Cin, Cout / groups, kernel...]
        stored = values.reshape(layer.groups, values.shape[0] // layer.groups, values.shape[1], -1)
        return stored.transpose(0, 2, 1, 3)
    matrix = values if layer.transposed else values.T
    return matrix[None, :, :, None]


def integers_of(values: Floats, scale: WeightScale, groups: int = 1) -> npt.NDArray[np.int8]:
    """The int8 form of a constant weight, clipped to [-128, 127], as every lowering writes it.

    Without learned rounding: round half to even of w / scale, computed in float32. With it: floor(w / scale) plus the
    recorded bit (record.py says how they are stored).

    Args:
        values: float32, as stored in the model.
        groups: of a ConvTranspose.

    Raises:
        ValueError: the number of scales or of rounding bits does not fit the weight.
    """
    steps = scales_along(scale, values.shape, groups)
    quotients = values / steps
    if scale.rounding is None:
        rounded = np.rint(quotients)
    elif steps.size > len(scale.scales):
        raise ValueError("learned rounding of a grouped ConvTranspose has no known order")
    else:
        packed, size = np.frombuffer(base64.b64decode(scale.rounding, validate=True), np.uint8), values.size
        if packed.size != -(-size // 8):
            raise ValueError(f"learned rounding of {packed.size} bytes does not fit a weight of {size} elements")
        rounded = np.floor(quotients) + np.unpackbits(packed, count=size).reshape(values.shape)
    integers: npt.NDArray[np.int8] = np.clip(rounded, -128, 127).astype(np.int8)
    return integers


def rounded_weight(values: Floats, scale: WeightScale, layer: Layer) -> Floats:
    """The weight that an INT8 layer multiplies with, in float32, as stored; see `integers_of` (amct.md §4.4)."""
    groups = layer.groups if layer.op_type == "ConvTranspose" else 1
    rounded: Floats = integers_of(values, scale, groups) * scales_along(scale, values.shape, groups)
    return rounded


def encoded_bits(bits: npt.NDArray[np.bool_]) -> str:
    """q - floor(w / scale) of every weight in C order, as `WeightScale.rounding` keeps it."""
    return base64.b64encode(np.packbits(bits).tobytes()).decode("ascii")


def scales_along(scale: WeightScale, shape: tuple[int, ...], groups: int = 1) -> Floats:
    """The float32 scales, shaped so that they broadcast over a weight of `shape`.

    Args:
        groups: of a ConvTranspose, stored [Cin, Cout / groups, ...]; scales run through the groups in order
            (amct.md §4.10).

    Raises:
        ValueError: the number of scales does not fit the axis.
    """
    scales = np.asarray(scale.scales, np.float32)
    if scale.axis is None:
        return scales.reshape(())
    if groups > 1 and scale.axis == 1 and scales.size == groups * shape[1]:
        rows = np.repeat(scales.reshape(groups, -1), shape[0] // groups, axis=0)
        return rows.reshape(*shape[:2], *[1] * (len(shape) - 2))
    if not -len(shape) <= scale.axis < len(shape) or shape[scale.axis] != scales.size:
        raise ValueError(f"{scales.size} scales on axis {scale.axis} do not fit a weight of shape {shape}")
    return scales.reshape([-1 if axis == scale.axis % len(shape) else 1 for axis in range(len(shape))])


# --- the three rules -----------------------------------------------------------------------------------------------


def _least_squares(rows: Floats, minima: Floats, maxima: Floats) -> Doubles:
    """Per row, of all scales tried, the one with the smallest Σ (q - w)²; a tie keeps the larger scale.

    Tried are the arq scale, and max|w| / 127 times 15 factors from 1 down to 0.2 in sixths of an octave, then 13
    finer ones around the best. A row of many values has its optimum in between: with n values and one outlier A the
    best clip is about A / (1 + n / 193,548).
    """
    largest = np.maximum(maxima, -minima)
    widest = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
    arq = np.where(-minima > maxima, largest / np.float32(128), widest).astype(np.float32)
    best = np.empty(len(rows), np.float32)
    rows_at_once = max(1, _ELEMENTS_AT_ONCE // max(rows.shape[1], 1))
    for start in range(0, len(rows), rows_at_once):
        part = slice(start, start + rows_at_once)
        coarse = np.append(widest[part, None] * _COARSE.astype(np.float32), arq[part, None], axis=1)
        found = _smallest(rows[part], coarse)
        fine = np.append(found[:, None], found[:, None] * _FINE.astype(np.float32), axis=1)
        best[part] = _smallest(rows[part], np.minimum(fine, widest[part, None]))
    scales: Doubles = np.where(best >= np.float32(SMALLEST_SCALE), best, np.float32(1)).astype(np.float64)
    return scales


def _smallest(rows: Floats, scales: Floats) -> Floats:
    """Of the scales [rows, candidates], the first with the smallest error, per row."""
    errors = np.zeros(scales.shape)
    for start in range(0, rows.shape[1], _ELEMENTS_AT_ONCE):
        values = np.ascontiguousarray(rows[:, start : start + _ELEMENTS_AT_ONCE])
        difference = np.empty_like(values)
        for at in range(scales.shape[1]):
            steps = np.maximum(scales[:, at : at + 1], np.finfo(np.float32).tiny)
            np.multiply(values, np.float32(1) / steps, out=difference)
            np.rint(difference, out=difference)
            np.minimum(difference, np.float32(127), out=difference)
            np.maximum(difference, np.float32(-128), out=difference)
            difference *= steps
            difference -= values
            errors[:, at] += np.einsum("ij,ij->i", difference, difference)
    chosen: Floats = np.take_along_axis(scales, errors.argmin(axis=1)[:, None], axis=1)[:, 0]
    return chosen
