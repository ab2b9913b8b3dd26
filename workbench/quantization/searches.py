"""Streaming searches: one tensor's scale from its values themselves, in as many passes over the data as that takes.

    pass 1    HFMG: AMCT's histogram.  IFMR: order statistics.  Others: the histogram that `observe` makes.
    pass 2    IFMR only, and only where a percentile lies deep inside the values: the second digit of its ranks
    pass 3    IFMR only: the squared errors of all candidates

What a search keeps does not grow with the data. Values must arrive in the same order in every pass only for HFMG,
which depends on it as AMCT's does.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from workbench.quantization.accumulate import Accumulator
from workbench.quantization.algorithms import activation_scale, scale_of
from workbench.quantization.hfmg import HfmgHistogram, extended, first_histogram, search
from workbench.quantization.ifmr import Candidates, candidates, clip_ends, parameters, squared_errors, tail_rank
from workbench.quantization.order_statistics import OrderStatistics
from workbench.quantization.recipe import ActivationRecipe
from workbench.quantization.record import ActivationScale
from workbench.values.errors import CalibrationError

Floats = npt.NDArray[np.float32]

_VALUES_AT_ONCE = 262_144
_TENSOR = "x"


class Search(Protocol):
    """How one tensor's scale is found. `begin` a pass, `add` every value, and so on until `begin` says no."""

    def begin(self) -> bool:
        """Start the next pass; False where no pass is left."""

    def add(self, values: Floats, samples: int) -> None:
        """Take finite float32 values of any shape, of `samples` samples."""

    def scale(self, tensor: str) -> ActivationScale:
        """The result, after the last pass."""


def search_for(recipe: ActivationRecipe) -> Search:
    """A fresh search by the recipe's algorithm."""
    if recipe.algorithm == "ifmr":
        return IfmrSearch(recipe)
    if recipe.algorithm == "hfmg":
        return HfmgSearch(recipe)
    return HistogramSearch(recipe)


class IfmrSearch:
    """IFMR on every value (amct.md §4.2): exact order statistics, then exact errors."""

    def __init__(self, recipe: ActivationRecipe) -> None:
        self._recipe = recipe
        self._ranks = OrderStatistics()
        self._stage = "new"
        self._tried: Candidates | None = None
        self._losses: npt.NDArray[np.float64] = np.zeros(0)
        self._measured = 0

    def begin(self) -> bool:
        largest = tail_rank(self._ranks.count, self._recipe.max_percentile)
        smallest = tail_rank(self._ranks.count, self._recipe.min_percentile)
        if self._stage == "new":
            self._stage = "ranks"
        elif self._stage == "ranks" and self._ranks.count and self._ranks.prepare(largest, smallest):
            self._stage = "digits"
        elif self._stage in ("ranks", "digits") and self._ranks.count:
            self._stage = "errors"
            low, high = self._ranks.smallest(smallest), self._ranks.largest(largest)
            self._tried = candidates(low, high, self._recipe)
            self._losses = np.zeros(self._tried.scales.size)
        else:
            return False
        return True

    def add(self, values: Floats, samples: int) -> None:
        if self._stage == "ranks":
            self._ranks.add(values)
        elif self._stage == "digits":
            self._ranks.refine(values)
        elif self._tried is not None:
            flat = values.reshape(-1)
            self._measured += flat.size
            for start in range(0, flat.size, _VALUES_AT_ONCE):
                self._losses += squared_errors(flat[start : start + _VALUES_AT_ONCE], self._tried)

    def scale(self, tensor: str) -> ActivationScale:
        if self._tried is None:
            return scale_of(tensor, 0.0, 0.0, symmetric=self._recipe.symmetric)
        if self._measured != self._ranks.count:
            raise CalibrationError(
                f"tensor {tensor!r} had {self._ranks.count} values in the first pass over the data and "
                f"{self._measured} in the last one. The batches must be the same in every pass."
            )
        best = int(np.argmin(self._losses))
        scale, zero_point = parameters(self._tried, best)
        low, high = clip_ends(self._tried, best)
        return ActivationScale(tensor=tensor, scale=scale, zero_point=zero_point, low=low, high=high)


class _OnePass:
    def __init__(self, recipe: ActivationRecipe) -> None:
        self._recipe = recipe
        self._begun = False

    def begin(self) -> bool:
        begun, self._begun = self._begun, True
        return not begun


class HfmgSearch(_OnePass):
    """HFMG on AMCT's own histogram (amct.md §4.3), batch by batch as they are fed."""

    _histogram: HfmgHistogram | None = None

    def add(self, values: Floats, samples: int) -> None:
        if values.size == 0:
            return
        if self._histogram is None:
            self._histogram = first_histogram(values, self._recipe.bins)
        else:
            self._histogram = extended(self._histogram, values)

    def scale(self, tensor: str) -> ActivationScale:
        low, high = (0.0, 0.0) if self._histogram is None else search(self._histogram)
        return scale_of(tensor, min(low, 0.0), max(high, 0.0), symmetric=self._recipe.symmetric)


class HistogramSearch(_OnePass):
    """Any algorithm of ranges.py, on the statistics that `observe` would collect. AMCT has none of these."""

    def __init__(self, recipe: ActivationRecipe) -> None:
        super().__init__(recipe)
        self._seen = Accumulator({_TENSOR: None})

    def add(self, values: Floats, samples: int) -> None:
        self._seen.add([values], np.zeros(samples, np.bool_))

    def scale(self, tensor: str) -> ActivationScale:
        return activation_scale(tensor, self._seen.statistics()[_TENSOR], self._recipe)
