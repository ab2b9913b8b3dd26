"""From a clip range to int8 parameters: AMCT's rule and its float32 arithmetic."""

import numpy as np
import pytest

from workbench.quantization.scales import as_half, int8_parameters


@pytest.mark.parametrize(
    ("low", "high", "symmetric", "scale", "zero_point"),
    [
        pytest.param(-1.0, 1.0, True, 1 / 127, 0, id="symmetric, positive side at a tie"),
        pytest.param(-2.0, 1.0, True, 2 / 128, 0, id="symmetric, negative side"),
        pytest.param(0.0, 5.1, False, 5.1 / 255, -128, id="one-sided"),
        pytest.param(-5.1, 0.0, False, 5.1 / 255, 127, id="one-sided, negative"),
        pytest.param(-1.0, 4.1, False, 5.1 / 255, -78, id="two-sided"),
        pytest.param(0.0, 0.0, False, 1.0, -128, id="nothing, asymmetric"),
        pytest.param(0.0, 1e-9, True, 1.0, 0, id="next to nothing, symmetric"),
    ],
)
def test_scales_follow_amcts_rule(low: float, high: float, symmetric: bool, scale: float, zero_point: int) -> None:
    assert (float(np.float32(scale)), zero_point) == int8_parameters(low, high, symmetric=symmetric)


def test_scales_in_the_range_of_float16_are_rounded_to_it_and_others_through_their_root() -> None:
    assert as_half(0.02495) == float(np.float16(0.02495))
    assert as_half(1e-6) == float(np.float32(float(np.float16(1e-3)) ** 2))
    assert as_half(1e6) == float(np.float32(float(np.float16(1e3)) ** 2))
