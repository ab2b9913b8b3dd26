"""Ranges of a static input, renewed with every sample: extremes, and PyTorch's histograms of least error.

Histograms have two forms, since the vendor's tool has two (msmodelslim.md §4.4 and §4.7): PyTorch 1's, with bounds
truncated to integers, and today's. Both merge sample after sample, so the order of samples is part of the result.
Everything is float32 but for the running sums, as there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from workbench.quantization.llm.affine import extremes
from workbench.quantization.llm.recipe import Observer
from workbench.values.errors import ConfigError

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
    """Today's histogram as the newer generation uses it; its range ends at values of the last sample (§4.7).

    float16 is counted in float16, as there: beyond 2048 counts of a bin are rounded.
    """

    def __init__(self) -> None:
        self._counts: torch.Tensor | None = None
        self._low = self._high = torch.empty(0)

    def update(self, x: torch.Tensor) -> Range:
        """Count a sample; its least and largest value within the range that is found, shape (1,).

        The range is float32 for bfloat16 samples, else of their dtype. Values that are not finite are left out. A
        sample of one value is not counted: its value is the range.
        """
        x = x[torch.isfinite(x)]
        if x.numel() == 0:
            raise ConfigError("no value of a sample is finite.", hint="Quantize a bfloat16 copy of the model.")
        low, high = torch.aminmax(x)
        if bool(low == high):
            return low.reshape(1), high.reshape(1)
        x = x if x.dtype == torch.float16 else x.to(torch.float32)
        self._count(x)
        assert self._counts is not None  # it was counted just now
        least, most = crossed_search(self._counts, self._low, self._high)
        inside = x[(x >= least) & (x <= most)]
        if inside.numel():
            least, most = torch.aminmax(inside)
        return least.reshape(1), most.reshape(1)

    def _count(self, x: torch.Tensor) -> None:
        low, high = (each.to(torch.float32) for each in torch.aminmax(x))
        if self._counts is None:
            self._counts, self._low, self._high = _counted(x, low.item(), high.item()), low, high
            return
        low, high = torch.minimum(low, self._low), torch.maximum(high, self._high)
        counts = _counted(x, low.item(), high.item())
        self._counts = (counts + self._within(low, high)).to(x.dtype)
        self._low, self._high = low, high

    def _within(self, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """What was counted so far, in the bins of a wider range."""
        assert self._counts is not None  # update counts first
        if bool(low == self._low) and bool(high == self._high):
            return self._counts
        fine = self._counts.repeat_interleave(_UPSAMPLING) / _UPSAMPLING
        width = (self._high - self._low) / (BINS * _UPSAMPLING)
        middles = torch.linspace(self._low.item(), self._high.item(), BINS * _UPSAMPLING + 1)[:-1] + 0.5 * width
        edges = torch.linspace(low.item(), high.item(), BINS + 1)
        places = (torch.bucketize(middles, edges, right=True) - 1).clamp_(0, BINS - 1)
        return torch.bincount(places, weights=fine, minlength=BINS)


def least_error(counts: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Range:
    """The range whose 256 levels give counted values the least squared error, float32 of shape (1,).

    Two quantiles move inwards in steps of 1e-5, the one whose bins reach further first; it ends when the error grows.
    """
    width = (high - low) / BINS
    start, end = _searched(counts, (high.item() - low.item()) / BINS, crossed=False)
    return (low + width * start).reshape(1), (low + width * (end + 1)).reshape(1)


def crossed_search(counts: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> Range:
    """The range that the newer generation of the tool takes, float32 scalars.

    There the two ends are exchanged when one is moved: the upper end jumps to the lower quantile's bin or the lower end
    to the upper one's. The error grows at once unless values are so rare that both quantiles lie far on one side, so
    the whole range is the usual answer (found in its files and by comparison with the tool).
    """
    width = high / BINS - low / BINS
    start, end = _searched(counts, high.item() / BINS - low.item() / BINS, crossed=True)
    return low + width * start, (end + 1) * (low / (end + 1) + width)


def _searched(counts: torch.Tensor, width: float, *, crossed: bool) -> tuple[int, int]:
    """First and last bin of the range that is kept."""
    total = counts.sum().item()
    sums = torch.cumsum(counts, 0).numpy()  # may fall a little: merged counts are rounded differences

    def limit(quantile: float) -> np.floating[Any]:
        # as torch compares a tensor with a Python number: the number is rounded to the tensor's dtype
        rounded: np.floating[Any] = sums.dtype.type(quantile * total)
        return rounded

    lower, upper, start, end = 0.0, 1.0, 0, BINS - 1
    least = _error(counts, width, start, end) if crossed else float("inf")
    while lower < upper:
        next_lower, next_upper = lower + STEP, upper - STEP
        reached = sums[start:end] >= limit(next_lower)
        left = start + int(reached.argmax()) if reached.any() else end
        below = sums[end:start:-1] <= limit(next_upper)
        right = end - int(below.argmax()) if below.any() else start
        next_start, next_end = start, end
        if crossed and right - start > end - left:
            next_end, upper = left, next_upper
        elif crossed:
            next_start, lower = right, next_lower
        elif left - start > end - right:
            next_start, lower = left, next_lower
        else:
            next_end, upper = right, next_upper
        if (next_start, next_end) == (start, end):
            continue
        error = _error(counts, width, next_start, next_end)
        if error > least:
            break
        least, start, end = error, next_start, next_end
    return start, end


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


SURVEYED_SAMPLES = 5
MOST_SPREAD = 50.0
"""msmodelslim.md §4.4: 'automatic' takes the histogram up to this ratio of the largest value to the deviation."""


class Extremes:
    """The least and the largest value of all samples; or the mean of the samples' least values and that of their
    largest, summed in the dtype of the samples or, for 'mean_wide' (`aggregation_type: mean`), in float64."""

    def __init__(self, kind: Observer = "extremes") -> None:
        self._kind, self._lows, self._highs = kind, list[torch.Tensor](), list[torch.Tensor]()

    def update(self, x: torch.Tensor) -> Range:
        low, high = extremes(x)
        self._lows.append(low)
        self._highs.append(high)
        lows, highs = torch.cat(self._lows), torch.cat(self._highs)
        if self._kind == "extremes":
            return lows.min().reshape(1), highs.max().reshape(1)
        wide = torch.float64 if self._kind == "mean_wide" else x.dtype
        return lows.to(wide).mean().to(x.dtype).reshape(1), highs.to(wide).mean().to(x.dtype).reshape(1)


Ranging = TruncatedHistogram | Histogram | Extremes
"""What observes one tensor: each sample renews its least and largest value, shape (1,)."""


def observing(kind: Observer, spread: float | None) -> Ranging:
    """A fresh observer."""
    if kind == "automatic":
        assert spread is not None, "a survey goes before an automatic choice"
        kind = "truncated_histogram" if spread <= MOST_SPREAD else "mean_extremes"
    if kind == "truncated_histogram":
        return TruncatedHistogram()
    return Histogram() if kind == "histogram" else Extremes(kind)


class Spread:
    """How far the largest value stands out: max |x| / the largest standard deviation of a sample.

    The deviation is that of x − (high + low) of every channel of the sample: twice the middle, as the tool has it
    (found by comparison with it).
    """

    def __init__(self) -> None:
        self._seen: list[Range] = []

    def update(self, x: torch.Tensor) -> None:
        """See a sample [batch, tokens, K]; those after the fifth change nothing."""
        if len(self._seen) < SURVEYED_SAMPLES:
            rows = x.reshape(-1, x.shape[-1])
            low, high = torch.aminmax(rows, dim=0)
            self._seen.append((rows.abs().max(), (rows - (high + low)).std()))

    @property
    def value(self) -> float:
        """0 where nothing was seen."""
        if not self._seen:
            return 0.0
        largest, deviation = (torch.stack(each).max() for each in zip(*self._seen, strict=True))
        return float(largest / deviation)
