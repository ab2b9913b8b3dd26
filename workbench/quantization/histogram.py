"""Histogram: the values of one tensor, at constant memory, independent of how the data was split.

Bins are `2**exponent` wide and aligned at zero; the exponent is the smallest at which the largest |x| seen fits into
`BINS_PER_SIDE` bins per side. When the range grows, neighbours are added in pairs. An index is halved by a shift, and
scaling by a power of two is exact, so the histogram of all data is the same bits whatever the order of the batches
and however they were merged: `merge` is associative and commutative, and the histogram of nothing is its neutral
element. There is no running sum of floats in here for the same reason; means and energies follow from the bins.

Resolution: the largest |x| lies in the upper half of the bins, so a bin is at most 1/2048 of it, an eighth of an
INT8 step of the full range at worst.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

BINS_PER_SIDE = 4096
MIN_EXPONENT = -126
"""Below this bin width 2**-exponent is no float32; tensors that small (max |x| < 5e-35) fill fewer bins."""

CHUNK = 65536
"""Elements counted at a time: the scratch of so many stays in the L2 cache."""

_MAX_FLOAT32_EXPONENT = 0  # from here on a scaled float32 may underflow to zero and so change sides


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

    @property
    def absolute_maximum(self) -> float:
        """Largest |x|, 0.0 while nothing was seen."""
        return max(-self.minimum, self.maximum, 0.0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return (self.exponent, self.zeros, self.minimum, self.maximum) == (
            other.exponent,
            other.zeros,
            other.minimum,
            other.maximum,
        ) and np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        return hash((self.exponent, self.zeros, self.minimum, self.maximum, self.counts.tobytes()))


class Scratch:
    """Buffers of one chunk. Counters of one thread share them: fresh ones would cost a fifth of the time."""

    def __init__(self) -> None:
        self.floats = np.empty(CHUNK, np.float32)
        self.doubles = np.empty(0, np.float64)  # made when a tensor is too large for float32 arithmetic
        self.indices = np.empty(CHUNK, np.uint16)
        self.flags = np.empty(CHUNK, np.bool_)


class HistogramCounter:
    """A histogram that grows in place; for one thread at a time.

    The result is `merge` of the histograms of everything added, without the cost of building each.
    """

    def __init__(self, scratch: Scratch | None = None) -> None:
        self._scratch = scratch or Scratch()
        self._counts = np.zeros(2 * BINS_PER_SIDE, np.int64)
        self._exponent = MIN_EXPONENT
        self._zeros = 0
        self._minimum, self._maximum = math.inf, -math.inf

    def add(self, values: npt.NDArray[np.float32], low: float, high: float) -> None:
        """Count float32[n] whose smallest and largest values are `low` and `high`; n is best near `CHUNK`.

        Raises:
            ValueError: one of them is NaN or infinite. Then nothing was counted.
        """
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"values range from {low} to {high}")
        low, high = low + 0.0, high + 0.0  # -0.0 and 0.0 are one value and must be one stored form
        exponent = _exponent(max(-low, high))
        if exponent > self._exponent:
            self._counts = _coarsened(self._counts, exponent - self._exponent)
            self._exponent = exponent
        self._minimum, self._maximum = min(self._minimum, low), max(self._maximum, high)
        for start in range(0, values.size, CHUNK):
            self._count(values[start : start + CHUNK], low, high)

    def histogram(self) -> Histogram:
        """What was counted so far."""
        return Histogram(
            exponent=self._exponent,
            counts=self._counts.copy(),
            zeros=self._zeros,
            minimum=self._minimum,
            maximum=self._maximum,
        )

    def _count(self, values: npt.NDArray[np.float32], low: float, high: float) -> None:
        width = math.ldexp(1.0, self._exponent)
        count = compiled_count()
        if count is None or self._exponent > _MAX_FLOAT32_EXPONENT:
            self._count_with_numpy(values, low, high, width)
        else:
            self._zeros += count(values, np.float32(1 / width), -BINS_PER_SIDE, self._counts)

    def _count_with_numpy(self, values: npt.NDArray[np.float32], low: float, high: float, width: float) -> None:
        scratch, size = self._scratch, values.size
        scaled: npt.NDArray[np.floating[Any]] = scratch.floats[:size]
        if self._exponent > _MAX_FLOAT32_EXPONENT:
            if scratch.doubles.size == 0:
                scratch.doubles = np.empty(CHUNK, np.float64)
            scaled = scratch.doubles[:size]
        exact = scaled.dtype.type
        first = math.floor(low / width)  # a power of two divides exactly
        np.multiply(values, exact(1 / width), out=scaled)
        if low <= 0 <= high:
            zeros = int(np.count_nonzero(np.equal(scaled, 0, out=scratch.flags[:size])))
            self._counts[BINS_PER_SIDE] -= zeros
            self._zeros += zeros
        if low < 0:
            np.floor(scaled, out=scaled)  # where nothing is negative, the cast below does it
        if first != 0:
            np.subtract(scaled, exact(first), out=scaled)
        indices = scratch.indices[:size]
        np.copyto(indices, scaled, casting="unsafe")
        found = np.bincount(indices)
        first += BINS_PER_SIDE
        self._counts[first : first + found.size] += found


def merge(a: Histogram, b: Histogram) -> Histogram:
    """The histogram of both data sets together; exact, in any order."""
    exponent = max(a.exponent, b.exponent)
    return Histogram(
        exponent=exponent,
        counts=_coarsened(a.counts, exponent - a.exponent) + _coarsened(b.counts, exponent - b.exponent),
        zeros=a.zeros + b.zeros,
        minimum=min(a.minimum, b.minimum),
        maximum=max(a.maximum, b.maximum),
    )


def _coarsened(counts: npt.NDArray[np.int64], shift: int) -> npt.NDArray[np.int64]:
    if shift == 0:
        return counts
    filled = np.flatnonzero(counts)
    # an arithmetic shift is floor division by 2**shift, so negative bins stay on their side
    target = ((filled - BINS_PER_SIDE) >> min(shift, 63)) + BINS_PER_SIDE
    coarser = np.zeros_like(counts)
    np.add.at(coarser, target, counts[filled])
    return coarser


def _exponent(largest: float) -> int:
    """Smallest exponent with largest < BINS_PER_SIDE * 2**exponent, not below MIN_EXPONENT."""
    if largest == 0.0:
        return MIN_EXPONENT
    _, power = math.frexp(largest)  # largest < 2**power, and at least half of it
    return max(power - BINS_PER_SIDE.bit_length() + 1, MIN_EXPONENT)


# --- counting in machine code ----------------------------------------------------------------------------------------
#
# NumPy's `bincount` holds the interpreter's lock, and needs the bin numbers in an array of 64-bit integers first:
# 2.9 ns a value in all. The loop below takes 1.0 ns, holds no lock, and gives the same counts to the last one.

Count = Callable[[npt.NDArray[np.float32], np.float32, int, npt.NDArray[np.int64]], int]
"""(values, 1 / bin width, number of counts[0]'s bin, counts) → how many were zero, which are not counted."""
_TOGETHER = 1024  # values whose bin numbers stay in the first-level cache


@functools.cache
def compiled_count() -> Count | None:
    """The loop in machine code; None where numba is not installed.

    Compiled at the first call (about a second), and read from numba's own cache on disk later.
    """
    if importlib.util.find_spec("numba") is None:
        return None
    import numba

    types = numba.types
    values = types.Array(types.float32, 1, "C", readonly=True)
    signature = types.int64(values, types.float32, types.int64, types.int64[::1])
    try:
        compiled: Count = numba.njit(signature, nogil=True, cache=True)(_count)
    except RuntimeError:  # numba finds no place for its cache: neither this folder nor the user's can be written
        compiled = numba.njit(signature, nogil=True)(_count)
    return compiled


def _count(
    values: npt.NDArray[np.float32], inverse_width: np.float32, first: int, counts: npt.NDArray[np.int64]
) -> int:
    # Two short loops: the first one is vectorized, the second one only adds.
    zeros = 0
    bins = np.empty(_TOGETHER, np.uint32)
    for start in range(0, values.size, _TOGETHER):
        size = min(_TOGETHER, values.size - start)
        for place in range(size):
            scaled = values[start + place] * inverse_width
            zeros += scaled == np.float32(0)
            bins[place] = np.uint32(np.int32(np.floor(scaled)) - np.int32(first))
        for place in range(size):
            counts[bins[place]] += 1
    counts[-first] -= zeros  # they were counted into the bin that begins at zero
    return zeros
