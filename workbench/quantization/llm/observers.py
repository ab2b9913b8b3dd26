"""Ranges of a static input, renewed with every sample."""

from __future__ import annotations

from typing import Protocol

import torch

from workbench.quantization.llm.affine import extremes
from workbench.quantization.llm.histogram import Histogram, Range, TruncatedHistogram
from workbench.quantization.llm.recipe import Observer

SURVEYED_SAMPLES = 5
MOST_SPREAD = 50.0
"""msmodelslim.md §4.4: 'automatic' takes the histogram up to this ratio of the largest value to the deviation."""


class Ranging(Protocol):
    """What observes one tensor."""

    def update(self, x: torch.Tensor) -> Range:
        """See one more sample; least and largest value so far, shape (1,)."""


class MeanExtremes:
    """The mean of the samples' least values, and of their largest, in the dtype of the samples."""

    def __init__(self) -> None:
        self._lows: list[torch.Tensor] = []
        self._highs: list[torch.Tensor] = []

    def update(self, x: torch.Tensor) -> Range:
        low, high = extremes(x)
        self._lows.append(low)
        self._highs.append(high)
        return torch.cat(self._lows).mean().reshape(1), torch.cat(self._highs).mean().reshape(1)


class WideMeanExtremes:
    """The same with the sums in float64 (`aggregation_type: mean`)."""

    def __init__(self) -> None:
        self._seen = 0
        self._sums: Range | None = None

    def update(self, x: torch.Tensor) -> Range:
        low, high = (each.to(torch.float64) for each in extremes(x))
        self._sums = (low, high) if self._sums is None else (self._sums[0] + low, self._sums[1] + high)
        self._seen += 1
        return (self._sums[0] / self._seen).to(x.dtype), (self._sums[1] / self._seen).to(x.dtype)


class Extremes:
    """The least and the largest value of all samples."""

    def __init__(self) -> None:
        self._range: Range | None = None

    def update(self, x: torch.Tensor) -> Range:
        low, high = extremes(x)
        if self._range is not None:
            low, high = torch.minimum(low, self._range[0]), torch.maximum(high, self._range[1])
        self._range = (low, high)
        return self._range


def observing(kind: Observer, spread: float | None) -> Ranging:
    """A fresh observer.

    Args:
        spread: of the float input, which 'automatic' decides by (`spread_of`).
    """
    if kind == "automatic":
        assert spread is not None, "a survey goes before an automatic choice"
        kind = "truncated_histogram" if spread <= MOST_SPREAD else "mean_extremes"
    made: dict[Observer, type[Ranging]] = {
        "mean_extremes": MeanExtremes,
        "extremes": Extremes,
        "mean_wide": WideMeanExtremes,
        "truncated_histogram": TruncatedHistogram,
        "histogram": Histogram,
    }
    return made[kind]()


class Spread:
    """How far the largest value stands out: max |x| / the largest standard deviation of a sample.

    The deviation is that of x − (high + low) of every channel of the sample: twice the middle, as the tool has it
    (found by comparison with it).
    """

    def __init__(self) -> None:
        self._seen = 0
        self._largest: torch.Tensor | None = None
        self._deviation: torch.Tensor | None = None

    def update(self, x: torch.Tensor) -> None:
        """See a sample [batch, tokens, K]; those after the fifth change nothing."""
        self._seen += 1
        if self._seen > SURVEYED_SAMPLES:
            return
        rows = x.reshape(-1, x.shape[-1])
        low, high = torch.aminmax(rows, dim=0)
        largest, deviation = rows.abs().max(), (rows - (high + low)).std()
        self._largest = largest if self._largest is None else torch.maximum(largest, self._largest)
        self._deviation = deviation if self._deviation is None else torch.maximum(deviation, self._deviation)

    @property
    def value(self) -> float:
        """0 where nothing was seen."""
        if self._largest is None or self._deviation is None:
            return 0.0
        return float(self._largest / self._deviation)
