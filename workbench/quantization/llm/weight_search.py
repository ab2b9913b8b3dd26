"""Scales of weights with the least squared error instead of the widest range: ours, and the vendor's ssz."""

from __future__ import annotations

import torch

from workbench.quantization.llm.affine import HIGHEST, LOWEST, SMALLEST_SCALE

_COARSE = tuple(2.0 ** (-step / 12) for step in range(20))  # 1 down to 0.33
_FINE = tuple(2.0 ** (step / 72) for step in range(-5, 6))
_ROWS_AT_ONCE = 1 << 20
"""Values looked at together; a few mebibytes of scratch."""


_REFINED_ENOUGH = 1e-10


def refined_scale(weight: torch.Tensor, widest: torch.Tensor, steps: int, dtype: torch.dtype) -> torch.Tensor:
    """ssz: the integers give the scale with the least squared error, which gives new integers, and so on.

    It ends when no row gains 1e-10, in all or relative to an error of 1e-4. A row keeps the best scale that it had.
    Sums are along the first axis of the transposed weight, as in the vendor's tool, whose order they have.

    Args:
        weight: [N, K].
        widest: the min-max scale, [N, 1], symmetric.
        dtype: of errors.
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
    rows_at_once = max(1, _ROWS_AT_ONCE // weight.shape[1])
    if widest.shape[0] == 1 < weight.shape[0]:
        flat = weight.reshape(1, -1)
        spread = None if importance is None else importance.repeat(weight.shape[0])
        return searched_scale(flat, widest, spread)
    best = widest.clone()
    for start in range(0, weight.shape[0], rows_at_once):
        part = slice(start, start + rows_at_once)
        coarse = _least(weight[part], widest[part], _COARSE, importance)
        best[part] = _least(weight[part], coarse, _FINE, importance, most=widest[part])
    return best


def _least(
    rows: torch.Tensor,
    scale: torch.Tensor,
    factors: tuple[float, ...],
    importance: torch.Tensor | None,
    most: torch.Tensor | None = None,
) -> torch.Tensor:
    wide = rows.to(torch.float32)
    found = least = None
    for factor in sorted(factors, reverse=True):
        tried = (scale * factor).clamp(min=SMALLEST_SCALE)
        if most is not None:
            tried = torch.minimum(tried, most)
        steps = tried.to(torch.float32)
        error = (torch.round(wide / steps).clamp_(-HIGHEST, HIGHEST) * steps - wide).pow_(2)
        total = error.sum(1, keepdim=True) if importance is None else (error @ importance.to(torch.float32))[:, None]
        if found is None or least is None:
            found, least = tried, total
            continue
        better = total < least
        found, least = torch.where(better, tried, found), torch.where(better, total, least)
    assert found is not None  # there is a factor
    return found
