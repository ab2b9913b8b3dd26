"""Expected errors from histograms: compared with the values themselves."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.quantization.histograms import histogram_of
from workbench.quantization.algorithms import minmax_range
from workbench.quantization.density import Density, expected_error
from workbench.quantization.scales import int8_parameters

Floats = npt.NDArray[np.float32]


def dequantized(values: Floats, scale: float, zero_point: int) -> npt.NDArray[np.float64]:
    integers = np.clip(np.rint(values.astype(np.float64) / scale) + zero_point, -128, 127)
    return (integers - zero_point) * scale


@given(values=hnp.arrays(np.float32, st.integers(200, 400), elements=st.floats(-50, 50, width=32)), sharp=st.booleans())
def test_the_expected_error_is_the_error_up_to_the_width_of_a_bin(values: Floats, sharp: bool) -> None:
    histogram = histogram_of(values)
    low, high = minmax_range(histogram)
    scale, zero_point = int8_parameters(low / (2 if sharp else 1), high, symmetric=False)

    actual = np.abs(dequantized(values, scale, zero_point) - values)

    # a value may lie anywhere in its bin: each error is known up to a width
    bound = float(np.mean(2 * actual * histogram.width + histogram.width**2))
    assert abs(expected_error(histogram, scale, zero_point) - np.square(actual).mean()) <= bound + 1e-12


counts = hnp.arrays(np.int64, 12, elements=st.integers(0, 50))


@given(counts=counts, first=st.integers(-20, 5), levels=st.lists(st.floats(-25, 25), min_size=1, max_size=6))
def test_the_error_of_levels_is_the_integral_of_the_squared_distance(
    counts: npt.NDArray[np.int64], first: int, levels: list[float]
) -> None:
    ordered = np.array(sorted(levels))
    fine = (np.arange(12 * 2000) + 0.5) / 2000 + first

    errors = Density(counts, first).errors(ordered[None, :])

    nearest = np.abs(fine[:, None] - ordered).min(axis=1)
    assert errors[0] == pytest.approx(float((np.repeat(counts, 2000) / 2000) @ np.square(nearest)), rel=1e-3, abs=1e-3)


@given(counts=counts, first=st.integers(-20, 5), low=st.floats(-25, 0), width=st.floats(0, 25))
def test_what_lies_outside_costs_its_distance_to_the_range(
    counts: npt.NDArray[np.int64], first: int, low: float, width: float
) -> None:
    fine = (np.arange(12 * 2000) + 0.5) / 2000 + first

    cost = Density(counts, first).outside(np.array([low]), np.array([low + width]))

    distance = np.maximum(np.maximum(low - fine, fine - low - width), 0)
    assert cost[0] == pytest.approx(float((np.repeat(counts, 2000) / 2000) @ np.square(distance)), rel=1e-3, abs=1e-2)
