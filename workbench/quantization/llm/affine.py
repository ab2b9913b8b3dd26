"""Scales, offsets and integers of 8 bits, every step in the dtype of the tensors given (msmodelslim.md §4).

The two generations of the vendor's tool differ in the order of operations, so in the last bit: 'v0' divides the
difference of the bounds, 'v1' subtracts the divided bounds. Rounding is half to even.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

Generation = Literal["v0", "v1"]
LOWEST, HIGHEST = -128, 127
SMALLEST_SCALE = 2.0**-23
"""float32's epsilon, rounded to the dtype of the scale (msmodelslim.md §4.2); float16 has it as a subnormal number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """x ≈ (q − offset) · scale.

    Attributes:
        scale, offset: of one shape that broadcasts over x; integers in `offset`, both in the dtype of x.
    """

    scale: torch.Tensor
    offset: torch.Tensor


def affine(low: torch.Tensor, high: torch.Tensor, *, symmetric: bool, generation: Generation) -> Affine:
    """Scale and offset of ranges, which are widened to hold zero first.

    Args:
        low, high: of one shape; the result has it too.
    """
    low, high = low.clamp(max=0), high.clamp(min=0)
    if symmetric:
        scale = (torch.maximum(-low, high) / HIGHEST).clamp(min=SMALLEST_SCALE)
        return Affine(scale=scale, offset=torch.zeros_like(scale))
    width = (high - low) / 255 if generation == "v0" else high / 255 - low / 255
    scale = width.clamp(min=SMALLEST_SCALE)
    return Affine(scale=scale, offset=torch.round(-low / scale) + LOWEST)


def rounded(x: torch.Tensor, by: Affine, *, lowest: int = LOWEST) -> torch.Tensor:
    """The integers of x as values of its dtype: clamp(round(x / scale + offset))."""
    return torch.round(x / by.scale + by.offset).clamp_(lowest, HIGHEST)


def fake_quantized(x: torch.Tensor, by: Affine) -> torch.Tensor:
    """x as its integers mean it, in its dtype; a wider scale widens the steps between."""
    return ((rounded(x, by) - by.offset) * by.scale).to(x.dtype)


def extremes(x: torch.Tensor, axis: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Least and largest value: of the tensor, with shape (1,), or along an axis that is kept with size 1."""
    if axis is None:
        low, high = torch.aminmax(x)
        return low.reshape(1), high.reshape(1)
    low, high = torch.aminmax(x, dim=axis, keepdim=True)
    return low, high


def by_token(x: torch.Tensor, *, symmetric: bool, generation: Generation) -> Affine:
    """The range of every token, which is what the last axis holds (msmodelslim.md §4.5)."""
    return affine(*extremes(x, -1), symmetric=symmetric, generation=generation)
