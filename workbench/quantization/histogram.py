"""Histogram: the values of one tensor, at constant memory, independent of how the data was split.

Bins are `2**exponent` wide and aligned at zero; the exponent is the smallest at which the largest |x| seen fits into
`BINS_PER_SIDE` bins per side. When the range grows, neighbours are added in pairs. An index is halved by a shift, and
scaling by a power of two is exact, so the histogram of all data is the same bits whatever the order of the batches.
There is no running sum of floats in here for the same reason; means and energies follow from the bins.

Resolution: the largest |x| lies in the upper half of the bins, so a bin is at most 1/2048 of it, an eighth of an
INT8 step of the full range at worst.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

BINS_PER_SIDE = 4096
MIN_EXPONENT = -126
"""Below this bin width 2**-exponent is no float32; tensors that small (max |x| < 5e-35) fill fewer bins."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histogram:
    """Counts over [-BINS_PER_SIDE, BINS_PER_SIDE) bins.

    Attributes:
        exponent: bin `i` covers [(i - BINS_PER_SIDE), (i - BINS_PER_SIDE + 1)) times 2**exponent.
        counts: int64[2 * BINS_PER_SIDE], read-only; exact zeros are not in it.
        zeros: how many values were exactly zero. They cost nothing under any scale.
        minimum, maximum: exact; +inf and -inf while nothing was seen.
    """

    exponent: int
    counts: npt.NDArray[np.int64]
    zeros: int
    minimum: float
    maximum: float

    def __post_init__(self) -> None:
        if self.counts.shape != (2 * BINS_PER_SIDE,) or self.counts.dtype != np.int64:
            raise ValueError(f"histogram counts are {self.counts.dtype}{self.counts.shape}")
        if self.zeros < 0 or int(self.counts.min()) < 0:
            raise ValueError("a histogram count is negative")
        self.counts.flags.writeable = False

    @property
    def count(self) -> int:
        """All values seen, zeros included."""
        return int(self.counts.sum()) + self.zeros

    @property
    def width(self) -> float:
        return math.ldexp(1.0, self.exponent)

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        """The 2 * BINS_PER_SIDE + 1 bin edges, ascending."""
        return np.arange(-BINS_PER_SIDE, BINS_PER_SIDE + 1, dtype=np.float64) * self.width


class HistogramCounter:
    """A histogram that grows in place; for one thread at a time."""

    def __init__(self) -> None:
        self._counts = np.zeros(2 * BINS_PER_SIDE, np.int64)
        self._exponent = MIN_EXPONENT
        self._zeros = 0
        self._minimum, self._maximum = math.inf, -math.inf

    def add(self, values: npt.NDArray[np.float32], low: float, high: float) -> None:
        """Count float32[n] whose smallest and largest values are `low` and `high`.

        Raises:
            ValueError: one of them is NaN or infinite. Then nothing was counted.
        """
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"values range from {low} to {high}")
        low, high = low + 0.0, high + 0.0  # -0.0 and 0.0 are one value and must be one stored form
        exponent = _exponent(max(-low, high))
        if exponent > self._exponent:
            filled, finer = np.flatnonzero(self._counts), self._counts
            # an arithmetic shift is floor division by a power of two, so negative bins stay on their side
            target = ((filled - BINS_PER_SIDE) >> min(exponent - self._exponent, 63)) + BINS_PER_SIDE
            self._counts, self._exponent = np.zeros_like(finer), exponent
            np.add.at(self._counts, target, finer[filled])
        self._minimum, self._maximum = min(self._minimum, low), max(self._maximum, high)
        # from an exponent of 1 on a scaled float32 may underflow to zero and so change sides
        exact = np.float64 if self._exponent > 0 else np.float32
        values = np.require(values, requirements=["C", "W"])  # the only form that is compiled
        self._zeros += compiled_count()(values, exact(math.ldexp(1.0, -self._exponent)), self._counts)

    def histogram(self) -> Histogram:
        """What was counted so far."""
        return Histogram(
            exponent=self._exponent,
            counts=self._counts.copy(),
            zeros=self._zeros,
            minimum=self._minimum,
            maximum=self._maximum,
        )


def _exponent(largest: float) -> int:
    """Smallest exponent with largest < BINS_PER_SIDE * 2**exponent, not below MIN_EXPONENT."""
    if largest == 0.0:
        return MIN_EXPONENT
    _, power = math.frexp(largest)  # largest < 2**power, and at least half of it
    return max(power - BINS_PER_SIDE.bit_length() + 1, MIN_EXPONENT)


Count = Callable[[npt.NDArray[np.float32], np.floating[Any], npt.NDArray[np.int64]], int]
"""(values, 1 / bin width, counts) → how many were zero, which are not counted."""
_TOGETHER = 1024  # values whose bin numbers stay in the first-level cache


@functools.cache
def compiled_count() -> Count:
    """The loop in machine code, which holds no interpreter's lock as NumPy's `bincount` does.

    Compiled at the first call (about a second), and read from numba's own cache on disk later.
    """
    import numba

    types = numba.types
    values = types.Array(types.float32, 1, "C", readonly=True)
    signatures = [types.int64(values, kind, types.int64[::1]) for kind in (types.float32, types.float64)]
    try:
        compiled: Count = numba.njit(signatures, nogil=True, cache=True)(_count)
    except RuntimeError:  # numba finds no place for its cache: neither this folder nor the user's can be written
        compiled = numba.njit(signatures, nogil=True)(_count)
    return compiled


def _count(values: npt.NDArray[np.float32], inverse_width: np.floating[Any], counts: npt.NDArray[np.int64]) -> int:
    # Two short loops: the first one is vectorized, the second one only adds.
    zeros = 0
    bins = np.empty(_TOGETHER, np.uint32)
    for start in range(0, values.size, _TOGETHER):
        size = min(_TOGETHER, values.size - start)
        for place in range(size):
            scaled = values[start + place] * inverse_width
            zeros += scaled == 0
            bins[place] = np.uint32(np.int32(np.floor(scaled)) + np.int32(BINS_PER_SIDE))
        for place in range(size):
            counts[bins[place]] += 1
    counts[BINS_PER_SIDE] -= zeros  # they were counted into the bin that begins at zero
    return zeros


# --- the error of quantizing what was counted, its values taken as spread evenly inside each bin ---------------------
#
# Integrals over bins come from prefix sums, so one candidate costs its levels, not the histogram's bins.

Doubles = npt.NDArray[np.float64]


class Density:
    """Integrals of x⁰, x¹ and x² over neighbouring bins, with the bin width as unit of length.

    In that unit every quantity stays near 1 whatever the tensor's magnitude.
    """

    def __init__(self, counts: npt.NDArray[np.int64], first: int) -> None:
        """Bin `i` of `counts` covers [first + i, first + i + 1)."""
        self._counts = np.append(counts, 0).astype(np.float64)  # the last: past the end
        self._start, self._stop = float(first), float(first + counts.size)
        left = np.arange(first, first + counts.size, dtype=np.float64)
        inside = self._counts[:-1]
        powers = (inside, inside * (left + 0.5), inside * (left * left + left + 1 / 3))
        self._prefixes = tuple(np.concatenate([[0.0], np.cumsum(p)]) for p in powers)

    def errors(self, levels: Doubles) -> Doubles:
        """Summed squared distance of all values to their nearest level.

        Args:
            levels: [candidates, levels], each row ascending; equal neighbours count as one level.

        Returns:
            float64 [candidates], in squared bin widths.
        """
        borders = np.empty((len(levels), levels.shape[1] + 1))
        borders[:, 1:-1] = (levels[:, 1:] + levels[:, :-1]) / 2
        borders[:, 0], borders[:, -1] = self._start, self._stop  # beyond the outer levels everything goes to them
        np.clip(borders, self._start, self._stop, out=borders)
        zeroth, first, second = (np.diff(part, axis=1) for part in self._up_to(borders))
        errors: Doubles = (second - 2 * levels * first + levels * levels * zeroth).sum(axis=1)
        return np.maximum(errors, 0.0)

    def _up_to(self, x: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        floors = np.floor(x)
        bins = (floors - self._start).astype(np.int64)
        count, extent = self._counts[bins], x - floors
        zeroth, first, second = (prefix[bins] for prefix in self._prefixes)
        mass = count * extent
        middle = (floors + x) / 2
        return zeroth + mass, first + mass * middle, second + mass * (middle * middle + extent * extent / 12)


def density_of(histogram: Histogram) -> Density:
    """The density of the filled part of a histogram; exact zeros are not in it, they cost nothing."""
    filled = np.flatnonzero(histogram.counts)
    first, last = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (BINS_PER_SIDE, BINS_PER_SIDE)
    return Density(histogram.counts[first:last], first - BINS_PER_SIDE)


def int8_errors(density: Density, width: float, scales: Doubles, zero_points: Doubles) -> Doubles:
    """Summed squared error of int8 parameters, one entry per pair, in squared units of the tensor.

    Args:
        width: of a bin of `density`.
    """
    steps = (scales / width)[:, None]
    levels = (np.arange(-128.0, 128.0) - zero_points[:, None]) * steps
    return density.errors(levels) * width**2


def expected_error(histogram: Histogram, scale: float, zero_point: int) -> float:
    """Mean squared error of quantizing all values seen, exact for values spread evenly inside each bin."""
    if histogram.count == 0:
        return 0.0
    errors = int8_errors(density_of(histogram), histogram.width, np.array([scale]), np.array([float(zero_point)]))
    return float(errors[0]) / histogram.count
