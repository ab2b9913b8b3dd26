"""Scales, offsets and integers of 8 bits, every step in the dtype of the tensors given (msmodelslim.md §4).

The two generations of the vendor's tool differ in the order of operations, so in the last bit: 'v0' divides the
difference of the bounds, 'v1' subtracts the divided bounds. Rounding is half to even. Scales of weights may also be
those of the least squared error: ours, and the vendor's ssz.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Scale and offset of ranges, which are widened to hold zero first."""
    low, high = low.clamp(max=0), high.clamp(min=0)
    if symmetric:
        scale = (torch.maximum(-low, high) / HIGHEST).clamp(min=SMALLEST_SCALE)
        return Affine(scale=scale, offset=torch.zeros_like(scale))
    width = (high - low) / 255 if generation == "v0" else high / 255 - low / 255
    scale = width.clamp(min=SMALLEST_SCALE)
    return Affine(scale=scale, offset=torch.round(-low / scale) + LOWEST)


def rounded(x: torch.Tensor, by: Affine) -> torch.Tensor:
    """The integers of x as values of its dtype: clamp(round(x / scale + offset))."""
    return torch.round(x / by.scale + by.offset).clamp_(LOWEST, HIGHEST)


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


_COARSE = tuple(2.0 ** (-step / 12) for step in range(20))  # 1 down to 0.33
_FINE = tuple(2.0 ** (step / 72) for step in range(-5, 6))
_ROWS_AT_ONCE = 1 << 20
"""Values looked at together; a few mebibytes of scratch."""


_REFINED_ENOUGH = 1e-10


def refined_scale(weight: torch.Tensor, widest: torch.Tensor, steps: int, dtype: torch.dtype) -> torch.Tensor:
    """ssz: the integers give the scale with the least squared error, which gives new integers, and so on.

    It ends when no row gains 1e-10, in all or relative to an error of 1e-4. A row keeps the best scale that it had.
    Sums are along the first axis of the transposed weight, as in the vendor's tool, whose order they have.
    """

    def integers(scale: torch.Tensor) -> torch.Tensor:
        return torch.round(columns / scale).clamp(LOWEST, HIGHEST)

    def error(scale: torch.Tensor, quantized: torch.Tensor) -> torch.Tensor:
        return (columns - (quantized * scale).to(dtype)).abs().pow(2).mean(0)

    columns = weight.T
    best = widest.flatten()
    quantized = integers(best)
    least = error(best, quantized)
    for _ in range(steps):
        scale = (columns * quantized).sum(0) / (quantized * quantized).sum(0).clamp(min=1e-30)
        quantized = integers(scale)
        found = error(scale, quantized)
        gain = least - found
        if not bool(((gain / least.clamp(min=1e-4) >= _REFINED_ENOUGH) & (gain.abs() >= _REFINED_ENOUGH)).any()):
            break
        better = found < least
        best, least = torch.where(better, scale, best), torch.where(better, found, least)
    return best[:, None]


def searched_scale(weight: torch.Tensor, widest: torch.Tensor, importance: torch.Tensor | None) -> torch.Tensor:
    """Per row the scale with the least Σ_k importance_k · (q·s − w)²; a tie keeps the larger.

    Tried are the widest scale times 20 factors from 1 down to 0.33 in twelfths of an octave, then ten finer ones
    around the best. Candidates are rounded to the dtype of the weight first, so that what is judged is what is stored.

    Args:
        weight: [N, K].
        widest: the min-max scale, [N, 1] or [1, 1], symmetric.
        importance: [K], not negative; 1 for all when None.
    """
    if widest.shape[0] == 1 < weight.shape[0]:
        importance = None if importance is None else importance.repeat(weight.shape[0])
        weight = weight.reshape(1, -1)

    def least(rows: torch.Tensor, scale: torch.Tensor, most: torch.Tensor, factors: Sequence[float]) -> torch.Tensor:
        wide, errors = rows.to(torch.float32), []
        tried = [
            torch.minimum((scale * each).clamp(min=SMALLEST_SCALE), most) for each in sorted(factors, reverse=True)
        ]
        for each in tried:
            steps = each.to(torch.float32)
            error = (torch.round(wide / steps).clamp_(-HIGHEST, HIGHEST) * steps - wide).pow_(2)
            errors.append(error.sum(1) if importance is None else error @ importance.to(torch.float32))
        return torch.cat(tried, 1).gather(1, torch.stack(errors, 1).argmin(1, keepdim=True))

    at_once = max(1, _ROWS_AT_ONCE // weight.shape[1])
    parts = zip(*(torch.split(each, at_once) for each in (weight, widest)), strict=True)
    return torch.cat([least(rows, least(rows, most, most, _COARSE), most, _FINE) for rows, most in parts])
