"""From a clip range to a scale and a zero point: AMCT's min-max rule (amct.md §4.1), in its float32 arithmetic."""

from __future__ import annotations

import math

import numpy as np

Range = tuple[float, float]
"""A clip range, low <= 0 <= high."""

SMALLEST_SCALE = 1.1920929e-7
"""float32 epsilon; a smaller scale becomes 1.0, since the tensor is as good as constant zero (amct.md §4)."""

_SMALLEST_NORMAL_HALF = 2.0**-14
_LARGEST_HALF = 65504.0
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


def int8_parameters(low: float, high: float, *, symmetric: bool) -> tuple[float, int]:
    """Scale (a float32 value) and zero point for a clip range; AMCT's rule (amct.md §4.1).

    Asymmetric: scale = (high - low) / 255, zero point = round(-128 - low / scale). Symmetric: the larger side B over
    127, or over 128 where it is the negative one, zero point 0. A range of (nearly) nothing gets scale 1. Every step
    is rounded to float32, as AMCT computes it.
    """
    low, high = float(np.float32(low)), float(np.float32(high))
    if symmetric:
        scale = float(np.float32(-low / 128 if -low > high else high / 127))
        return (scale, 0) if scale >= SMALLEST_SCALE else (1.0, 0)
    scale = float(np.float32(_as_float32(high - low) / 255))
    if scale < SMALLEST_SCALE:
        return 1.0, -128
    zero_point = round(float(np.float32(-128 - float(np.float32(low / scale)))))
    return scale, min(max(zero_point, -128), 127)


def as_half(scale: float) -> float:
    """A scale under AMCT's FORCE_FP16_QUANT: rounded to float16 (amct.md §4.7).

    Outside float16's normal range, the square of the rounded square root.
    """
    if _SMALLEST_NORMAL_HALF <= scale <= _LARGEST_HALF:
        return float(np.float16(scale))
    root = float(np.float16(math.sqrt(scale)))
    return float(np.float32(root * root))


def _as_float32(value: float) -> float:
    """Rounded to float32; left alone where the span of a range, and neither of its ends, is too large for float32."""
    return float(np.float32(value)) if value <= _LARGEST_SINGLE else value
