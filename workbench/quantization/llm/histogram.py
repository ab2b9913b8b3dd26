"""Histograms of activations and the range of least error, as PyTorch's HistogramObserver finds it.

Two forms, since the vendor's tool has two (msmodelslim.md §4.4 and §4.7): PyTorch 1's, with bounds truncated to
integers, and today's. Both merge sample after sample, so the order of samples is part of the result. Everything is
float32 but for the running sums, as there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
import torch

BINS = 2048
LEVELS = 256
STEP = 1e-5
_OLD_UPSAMPLING, _UPSAMPLING = 128, 16

Range = tuple[torch.Tensor, torch.Tensor]


class TruncatedHistogram:
    """PyTorch 1's histogram with its flaw: bounds are truncated to integers when values are counted."""

    def __init__(self) -> None:
        self._counts: torch.Tensor | None = None
        self._low = self._high = torch.empty(0)

    def update(self, x: torch.Tensor) -> Range:
        """Count a sample; the range of least error of all so far, float32 of shape (1,)."""
        x = x.to(torch.float32)
        low, high = torch.aminmax(x)
        if self._counts is None:
            self._counts, self._low, self._high = _counted(x, int(low), int(high)), low, high
        else:
            self._merge(x, torch.minimum(low, self._low), torch.maximum(high, self._high))
        return least_error(self._counts, self._low, self._high)

    def _merge(self, x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> None:
        assert self._counts is not None  # update counts first
        fine = (self._high - self._low) / (BINS * _OLD_UPSAMPLING)
        if not bool(fine > 0):  # all values so far were one: there is no width to keep
            self._counts, self._low, self._high = _counted(x, int(low), int(high)), low, high
            return
        down = int(torch.ceil((high - low) / (BINS * fine)).item())
        excess = down * (BINS * fine) - (high - low)
        start = int(torch.round((self._low - low) / fine).item())
        high = high + excess
        counts = _counted(x, int(low), int(high))
        if bool(low == self._low) and bool(high == self._high):
            counts += self._counts
        else:
            wide = torch.zeros(BINS * down)
            wide[start : start + BINS * _OLD_UPSAMPLING] = self._counts.repeat_interleave(_OLD_UPSAMPLING)
            integral = torch.cumsum(wide, 0, dtype=torch.float64)[down - 1 :: down]
            before = torch.zeros(BINS)
            before[1:] = integral[:-1]
            counts = counts + ((integral - before) / _OLD_UPSAMPLING).to(torch.float32)
        self._counts, self._low, self._high = counts, low, high


class Histogram:
    """Today's histogram; the range it gives ends at values of the last sample (msmodelslim.md §4.7)."""

    def __init__(self) -> None:
        self._counts: torch.Tensor | None = None
        self._low = self._high = torch.empty(0)

    def update(self, x: torch.Tensor) -> Range:
        """Count a sample; its least and largest value within the range of least error, in its dtype, shape (1,)."""
        wide = x.to(torch.float32)
        low, high = torch.aminmax(wide)
        if self._counts is None:
            self._counts, self._low, self._high = _counted(wide, low.item(), high.item()), low, high
        else:
            low, high = torch.minimum(low, self._low), torch.maximum(high, self._high)
            counts = _counted(wide, low.item(), high.item())
            self._counts = counts + self._within(low, high)
            self._low, self._high = low, high
        least, most = least_error(self._counts, self._low, self._high)
        inside = x[(wide >= least) & (wide <= most)]
        if inside.numel() == 0:
            return least.to(x.dtype), most.to(x.dtype)
        found = torch.aminmax(inside)
        return found[0].reshape(1), found[1].reshape(1)

    def _within(self, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """What was counted so far, in the bins of a wider range."""
        assert self._counts is not None  # update counts first
        if bool(low == self._low) and bool(high == self._high):
            return self._counts
        if bool(self._low == self._high):
            return _counted(self._low, low.item(), high.item()) * self._counts.sum()
        fine = self._counts.repeat_interleave(_UPSAMPLING) / _UPSAMPLING
        width = (self._high - self._low) / (BINS * _UPSAMPLING)
        middles = torch.linspace(self._low.item(), self._high.item(), BINS * _UPSAMPLING + 1)[:-1] + 0.5 * width
        edges = torch.linspace(low.item(), high.item(), BINS + 1)
        places = (torch.bucketize(middles, edges, right=True) - 1).clamp_(0, BINS - 1)
        return torch.bincount(places, weights=fine, minlength=BINS)


def least_error(counts: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Range:
    """The range whose 256 levels give counted values the least squared error, float32 of shape (1,).

    Two quantiles move inwards in steps of 1e-5, the one whose bins reach further first; it ends when the error grows.

    Args:
        counts: float32 [2048] over low … high.
    """
    width = (high - low) / BINS
    total = counts.sum().item()
    # as torch compares a float32 tensor with a Python number: the number is rounded to float32
    sums: list[float] = torch.cumsum(counts, 0).tolist()
    lower, upper, start, end, least = 0.0, 1.0, 0, BINS - 1, float("inf")
    while lower < upper:
        next_lower, next_upper = lower + STEP, upper - STEP
        left = min(bisect_left(sums, _single(next_lower * total), start, end), end)
        right = max(bisect_right(sums, _single(next_upper * total), start, end + 1) - 1, start)
        next_start, next_end = start, end
        if left - start > end - right:
            next_start, lower = left, next_lower
        else:
            next_end, upper = right, next_upper
        if (next_start, next_end) == (start, end):
            continue
        error = _error(counts, (high.item() - low.item()) / BINS, next_start, next_end)
        if error > least:
            break
        least, start, end = error, next_start, next_end
    return (low + width * start).reshape(1), (low + width * (end + 1)).reshape(1)


def _single(value: float) -> float:
    return float(np.float32(value))


def _counted(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    return torch.histc(x, BINS, min=low, max=high)


def _error(counts: torch.Tensor, width: float, start: int, end: int) -> float:
    """Σ over bins of the squared error, values being spread evenly in each bin."""
    step = width * (end - start + 1) / LEVELS
    if step == 0.0:
        return 0.0
    begin = (torch.arange(BINS) - start) * width
    finish = begin + width
    of_begin = torch.clamp(torch.div(begin, step, rounding_mode="floor"), 0, LEVELS - 1)
    of_finish = torch.clamp(torch.div(finish, step, rounding_mode="floor"), 0, LEVELS - 1)
    density = counts / width
    half = torch.tensor(step / 2)
    error = torch.zeros(BINS)
    error += _spread(begin - (of_begin + 0.5) * step, torch.ones(BINS) * (step / 2), density)
    error += (of_finish - of_begin - 1) * _spread(-half, half, density)
    error += _spread(-half, finish - (of_finish * step + step / 2), density)
    return float(error.sum().item())


def _spread(begin: torch.Tensor, finish: torch.Tensor, density: torch.Tensor) -> torch.Tensor:
    return density * ((finish * finish * finish - begin * begin * begin) / 3)
