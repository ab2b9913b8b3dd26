"""Scales that are searched for: the error of a group's output decides (msmodelslim.md §5 m2, m3, m6; §6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from workbench.quantization.llm.affine import Generation, affine, by_token, extremes, fake_quantized
from workbench.quantization.llm.smoothing.statistics import ChannelStatistics

_GRID = 0.05
_STEPS = 21
_THRESHOLDS = 100


def searched_exponents(
    scale: Callable[[float, float], torch.Tensor],
    weights: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    *,
    per_token: bool,
    generation: Generation,
) -> tuple[float, float]:
    """(alpha, beta) with the least relative output error: alpha first with beta = 1 − alpha, then beta; ties go late.

    Args:
        scale: of an exponent pair, over the group's input channels.
        weights: [N, K] of the group's linears.
        inputs: [tokens, K] of every sample.
    """
    weight = torch.cat(list(weights), 0)
    x = torch.cat(list(inputs), 0)
    exact = F.linear(x, weight)
    size = exact.pow(2).mean().sqrt()

    def error(alpha: float, beta: float) -> float:
        by = scale(alpha, beta)
        scaled = weight * by
        given = x / by
        q = (
            by_token(given, symmetric=True, generation=generation)
            if per_token
            else affine(*extremes(given), symmetric=False, generation=generation)
        )
        fake = fake_quantized(scaled, affine(*extremes(scaled, -1), symmetric=True, generation=generation))
        out = F.linear(fake_quantized(given, q), fake)
        return float((out - exact).pow(2).mean().sqrt() / size)

    def best(tried: Callable[[float], tuple[float, float]]) -> float:
        found, least = 0.0, float("inf")
        for step in range(_STEPS):
            value = step * _GRID
            if (now := error(*tried(value))) <= least:
                found, least = value, now
        return found

    alpha = best(lambda value: (value, 1 - value))
    return alpha, best(lambda value: (alpha, value))


def threshold_scale(seen: ChannelStatistics, widest: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """m2, after Outlier Suppression+: √above / √widest for channels beyond a threshold, 1 for the others.

    Of 100 thresholds from the deviation up, the one with the least squared error of the outputs for the first sample,
    its input quantized by tensor, symmetric; the first of those with equal errors. The weights stay float while errors
    are compared, although msmodelslim.md §5 has them quantized: so 17 of 18 searches in the vendor's files choose the
    same channels. The scales are the vendor's in 10 of 18 groups, in the others a rounding step of the dtype away.
    """
    x = seen.inputs[0]
    weight = torch.cat(list(weights), 0)
    exact = F.linear(x, weight)
    largest = seen.above.max()
    found, least, tried = torch.ones_like(widest), float("inf"), -1
    for step in range(_THRESHOLDS):
        threshold = seen.deviation + (largest - seen.deviation) * step / _THRESHOLDS
        beyond = seen.above > threshold
        if int(beyond.sum()) == tried:  # a higher threshold beyond which are the same channels
            continue
        tried = int(beyond.sum())
        by = torch.where(beyond, seen.above.sqrt() / widest.sqrt(), torch.ones_like(widest))
        given = x / by
        fake = fake_quantized(given, affine(*extremes(given), symmetric=True, generation="v0"))
        error = float((F.linear(fake, weight * by) - exact).to(torch.float32).pow(2).sum())
        if error < least:
            found, least = by, error
    return found
