"""Accumulators: every figure against NumPy in float64, for every layout, order and split; sums exact in any order."""

import numpy as np
import numpy.typing as npt
import pytest

from tests.quantization.histograms import content, histogram_of
from workbench.quantization.algorithms import moving_average_range
from workbench.quantization.observe import Accumulator
from workbench.quantization.statistics import TensorStatistics

Floats = npt.NDArray[np.float32]


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def seen(values: Floats, axis: int | None, samples: int) -> TensorStatistics:
    accumulator = Accumulator("x", axis)
    accumulator.add(values, np.arange(samples) % 2 == 1)
    return accumulator.statistics()


def check_channels(statistics: TensorStatistics, by_channel: Floats) -> None:
    """Against [channels, values]."""
    channels, exact = statistics.channels, by_channel.astype(np.float64)
    np.testing.assert_array_equal(by_channel.min(axis=1), channels.minima)
    np.testing.assert_array_equal(by_channel.max(axis=1), channels.maxima)
    np.testing.assert_array_equal(np.abs(by_channel).max(axis=1), np.maximum(-channels.minima, channels.maxima))
    scale = np.abs(exact).sum(axis=1)
    assert (np.abs(channels.sums - exact.sum(axis=1)) <= 4e-6 * scale).all()
    np.testing.assert_allclose(channels.squares, (exact**2).sum(axis=1), rtol=4e-6)
    assert channels.rows == by_channel.shape[1]
    assert [channels.sums.dtype.name, channels.squares.dtype.name] == ["float64", "float64"]


def test_channels_of_an_axis_are_measured() -> None:
    """Also of more positions than are added in float32, of a sample and of a position larger than one block."""
    last = ((4, 16, 24), (3, 200, 40), (2, 3, 5, 24), (4, 6), (2, 3000, 100), (2, 1, 131_079))
    for axis, shapes in ((-1, last), (1, ((2, 5, 6, 7), (2, 40, 90, 90), (3, 5)))):
        for shape in shapes:
            values = normal(*shape)
            statistics = seen(values, axis, shape[0])
            check_channels(statistics, np.moveaxis(values, axis, 0).reshape(shape[axis], -1))
            assert content(histogram_of(values)) == content(statistics.histogram), shape


@pytest.mark.parametrize("axis", [None, -1, 1])
def test_extremes_of_the_samples_are_averaged(axis: int | None) -> None:
    values = normal(6, 4, 5)

    statistics = seen(values, axis, 6)

    samples = values.reshape(6, -1).astype(np.float64)
    extremes = samples.min(axis=1).mean(), samples.max(axis=1).mean()
    assert moving_average_range(statistics) == pytest.approx(extremes, rel=1e-15)
    assert (statistics.channels is None) == (axis is None)
