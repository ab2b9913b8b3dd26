"""Expected quantization error of a histogram whose values are taken as spread evenly inside each bin.

Integrals over bins come from prefix sums, so one candidate costs its levels, not the histogram's bins.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from workbench.quantization.histogram import BINS_PER_SIDE, Histogram

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
