"""Expected errors from histograms: compared with the values themselves."""

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.quantization.histograms import histogram_of
from workbench.quantization.algorithms import minmax_range
from workbench.quantization.density import expected_error
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
