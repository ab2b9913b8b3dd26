"""Counting in machine code: the same counts as with NumPy, to the last one."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from workbench.quantization import histogram
from workbench.quantization.histogram import Histogram, HistogramCounter

pytest.importorskip("numba", reason="the extra [fast] is not installed")

finite = arrays.arrays(
    np.float32, st.integers(1, 3000), elements=st.floats(-(2.0**10), 2.0**10, width=32, allow_subnormal=True)
)


def with_numpy(values: npt.NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> Histogram:
    with monkeypatch.context() as patch:
        patch.setattr(histogram, "compiled_count", lambda: None)
        return counted(values)


def counted(values: npt.NDArray[np.float32]) -> Histogram:
    counter = HistogramCounter()
    counter.add(values, float(values.min()), float(values.max()))
    return counter.histogram()


@given(values=finite)
def test_machine_code_and_numpy_count_alike(values: npt.NDArray[np.float32]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert counted(values) == with_numpy(values, patch)


@pytest.mark.parametrize("largest", [1e-44, 1e-38, 1e-30, 1.0, 2.0**-3, 4095.99, 4096.0, 1e30])
def test_every_magnitude_is_counted_alike(largest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    values = (np.linspace(-1, 1, 5001) * largest).astype(np.float32)
    values[::7] = 0

    assert counted(values) == with_numpy(values, monkeypatch)
