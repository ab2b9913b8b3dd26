"""Accumulators: statistics of one tensor while they grow, run after run. One thread at a time may add to one."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from workbench.quantization.histogram import EMPTY, Histogram, histogram_of, merge
from workbench.quantization.moments import Doubles, Pair, add_pairs, sum_of_rows
from workbench.quantization.statistics import NOTHING, ChannelStatistics, Range, TensorStatistics

_Floats = npt.NDArray[np.float32]

_BLOCK = 16
"""Positions added up in float32 before float64 takes over."""


class NotFiniteError(ValueError):
    """A value is NaN or infinite."""


class TensorAccumulator:
    """Statistics of one activation tensor.

    Args:
        axis: of the channels: None (there are none), -1 (last) or 1.
    """

    def __init__(self, axis: int | None) -> None:
        self.axis = axis
        self.histogram: Histogram = EMPTY
        self.channels: _Channels | None = None
        self.samples = 0
        self.minimum_sum: Pair = (np.zeros(()), np.zeros(()))
        self.maximum_sum: Pair = (np.zeros(()), np.zeros(()))
        self.halves: list[Range] = [NOTHING, NOTHING]

    def add(self, values: _Floats, halves: npt.NDArray[np.bool_]) -> None:
        """Take the values of one run.

        Args:
            values: [batch, ...] or [batch * anything, ...]. A tensor without a batch dimension counts for every
                sample of its run.
            halves: bool[batch], which half of the data each sample belongs to.

        Raises:
            NotFiniteError: NaN or infinity; nothing was added.
        """
        if values.size == 0:
            return
        groups = len(halves) if values.ndim and values.shape[0] % len(halves) == 0 else 1
        if self.axis is None or values.ndim < 2:
            flat = values.reshape(groups, -1)
            minima, maxima = flat.min(axis=1), flat.max(axis=1)
            channels = None
        else:
            cube = _cube(values, self.axis, groups)
            low, high = cube.min(axis=2), cube.max(axis=2)  # [groups, folds, channels]
            minima, maxima = low.min(axis=(1, 2)), high.max(axis=(1, 2))
            channels = (cube, low.min(axis=(0, 1)), high.max(axis=(0, 1)))
        lowest, highest = float(minima.min()) + 0.0, float(maxima.max()) + 0.0
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            raise NotFiniteError(f"values range from {lowest} to {highest}")
        if channels is not None:
            self._add_channels(*channels)
        self._add_extremes(minima, maxima, halves)
        self.histogram = merge(self.histogram, histogram_of(values, minimum=lowest, maximum=highest))

    def statistics(self) -> TensorStatistics:
        """What has been seen so far."""
        return TensorStatistics(
            histogram=self.histogram,
            channels=None if self.channels is None else self.channels.statistics(),
            samples=self.samples,
            minimum_sum=(float(self.minimum_sum[0]), float(self.minimum_sum[1])),
            maximum_sum=(float(self.maximum_sum[0]), float(self.maximum_sum[1])),
            halves=(self.halves[0], self.halves[1]),
        )

    def _add_extremes(self, minima: _Floats, maxima: _Floats, halves: npt.NDArray[np.bool_]) -> None:
        if len(minima) != len(halves):
            minima, maxima = np.repeat(minima, len(halves)), np.repeat(maxima, len(halves))
        self.samples += len(halves)
        self.minimum_sum = add_pairs(self.minimum_sum, sum_of_rows(minima.astype(np.float64)))
        self.maximum_sum = add_pairs(self.maximum_sum, sum_of_rows(maxima.astype(np.float64)))
        for half, low, high in zip(halves.tolist(), minima.tolist(), maxima.tolist(), strict=True):
            lowest, highest = self.halves[half]
            self.halves[half] = (min(lowest, low + 0.0), max(highest, high + 0.0))

    def _add_channels(self, cube: _Floats, minima: _Floats, maxima: _Floats) -> None:
        if self.channels is None:
            self.channels = _Channels(minima.size)
        self.channels.add(cube, minima, maxima)


class _Channels:
    def __init__(self, count: int) -> None:
        self.minima = np.full(count, np.inf, np.float32)
        self.maxima = np.full(count, -np.inf, np.float32)
        self.sums: Pair = (np.zeros(count), np.zeros(count))
        self.squares: Pair = (np.zeros(count), np.zeros(count))
        self.rows = 0

    def add(self, cube: _Floats, minima: _Floats, maxima: _Floats) -> None:
        groups, folds, positions, count = cube.shape
        np.minimum(self.minima, minima, out=self.minima)
        np.maximum(self.maxima, maxima, out=self.maxima)
        sums, squares = np.zeros((groups, folds, count)), np.zeros((groups, folds, count))
        for start in range(0, positions, _BLOCK):
            block = cube[:, :, start : start + _BLOCK]
            sums += np.add.reduce(block, axis=2)
            squares += np.add.reduce(block * block, axis=2)
        self.sums = add_pairs(self.sums, sum_of_rows(_per_sample(sums)))
        self.squares = add_pairs(self.squares, sum_of_rows(_per_sample(squares)))
        self.rows += groups * folds * positions

    def statistics(self) -> ChannelStatistics:
        return ChannelStatistics(
            minima=self.minima + np.float32(0),  # -0.0 and 0.0 are one value and must be one stored form
            maxima=self.maxima + np.float32(0),
            sums=self.sums[0],
            squares=self.squares[0],
            rows=self.rows,
            sums_error=self.sums[1],
            squares_error=self.squares[1],
        )


def _cube(values: _Floats, axis: int, groups: int) -> _Floats:
    """A view [groups, folds, positions, channels]; `folds` is what else the first dimension holds per sample."""
    folds = values.shape[0] // groups
    if axis == 1:
        by_channel = values.reshape(groups, folds, values.shape[1], -1)
        return by_channel.transpose(0, 1, 3, 2)
    return values.reshape(groups, folds, -1, values.shape[-1])


def _per_sample(sums: Doubles) -> Doubles:
    """[groups, folds, channels] → [groups, channels]."""
    total: Doubles = sums[:, 0] if sums.shape[1] == 1 else sums.sum(axis=1)
    return total
