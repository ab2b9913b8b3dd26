"""Learned rounding (AdaRound): whether each weight is better rounded down or up, found on calibration data."""

from __future__ import annotations

import base64

import numpy as np
import numpy.typing as npt

from workbench.quantization.record import WeightScale

_Floats = npt.NDArray[np.float32]


def integers_of(values: _Floats, scale: WeightScale) -> npt.NDArray[np.int8]:
    """The int8 form of a constant weight, clipped to [-128, 127], as every lowering writes it.

    Without learned rounding: round half to even of w / scale, computed in float32. With it: floor(w / scale) plus the
    recorded bit (record.py says how they are stored).

    Args:
        values: float32, in the layout in which the scale was derived.

    Raises:
        ValueError: the number of scales or of rounding bits does not fit the weight.
    """
    quotients = values / scales_along(scale, values.shape)
    if scale.rounding is None:
        rounded = np.rint(quotients)
    else:
        rounded = np.floor(quotients) + _bits(scale.rounding, values.size).reshape(values.shape)
    integers: npt.NDArray[np.int8] = np.clip(rounded, -128, 127).astype(np.int8)
    return integers


def scales_along(scale: WeightScale, shape: tuple[int, ...]) -> _Floats:
    """The float32 scales, shaped so that they broadcast over a weight of `shape`.

    Raises:
        ValueError: the number of scales does not fit the axis.
    """
    scales = np.asarray(scale.scales, np.float32)
    if scale.axis is None:
        return scales.reshape(())
    if not -len(shape) <= scale.axis < len(shape) or shape[scale.axis] != scales.size:
        raise ValueError(f"{scales.size} scales on axis {scale.axis} do not fit a weight of shape {shape}")
    return scales.reshape([-1 if axis == scale.axis % len(shape) else 1 for axis in range(len(shape))])


def encoded_bits(bits: npt.NDArray[np.bool_]) -> str:
    """q - floor(w / scale) of every weight in C order, as `WeightScale.rounding` keeps it."""
    return base64.b64encode(np.packbits(bits).tobytes()).decode("ascii")


def _bits(rounding: str, size: int) -> npt.NDArray[np.uint8]:
    packed = np.frombuffer(base64.b64decode(rounding, validate=True), np.uint8)
    if packed.size != -(-size // 8):
        raise ValueError(f"learned rounding of {packed.size} bytes does not fit a weight of {size} elements")
    return np.unpackbits(packed, count=size)
