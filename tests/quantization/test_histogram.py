"""Histograms: exact counts in any order, any split, any range."""

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.quantization.histograms import content, histogram_of
from workbench.quantization.histogram import BINS_PER_SIDE, HistogramCounter

Floats = npt.NDArray[np.float32]
finite = hnp.arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=True),
)
"""Any float32 there is: denormals, huge outliers, both zeros."""


def exact_counts(values: Floats, exponent: int) -> dict[int, int]:
    """Bin → count by integer arithmetic, without floating point."""
    counts: dict[int, int] = {}
    for value in values.tolist():
        numerator, denominator = value.as_integer_ratio()
        if exponent >= 0:
            denominator <<= exponent
        else:
            numerator <<= -exponent
        if value != 0:
            counts[numerator // denominator] = counts.get(numerator // denominator, 0) + 1
    return counts


@given(values=finite)
def test_every_value_is_in_the_bin_that_exact_arithmetic_says(values: Floats) -> None:
    histogram = histogram_of(values)

    seen = {int(i) - BINS_PER_SIDE: int(histogram.counts[i]) for i in np.flatnonzero(histogram.counts)}
    assert exact_counts(values, histogram.exponent) == seen
    assert int(np.count_nonzero(values == 0)) == histogram.zeros
    ends = (histogram.count, histogram.minimum, histogram.maximum)
    assert ends == (values.size, float(values.min()), float(values.max()))


@given(values=finite, data=st.data())
def test_any_split_in_any_order_gives_the_same_bits(values: Floats, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, values.size), max_size=4)))
    parts = data.draw(st.permutations(np.split(values, cuts)))

    assert content(histogram_of(*parts)) == content(histogram_of(values))


def test_values_are_counted_however_they_lie_in_memory() -> None:
    values = np.linspace(-3, 5, 24, dtype=np.float32)
    fixed = values.copy()
    fixed.flags.writeable = False
    spread = np.zeros((24, 5), np.float32)
    spread[:, 2] = values
    counted = []
    for form in (values, fixed, spread[:, 2], values[::-1]):
        counter = HistogramCounter()
        counter.add(form, -3.0, 5.0)
        counted.append(counter.histogram())
    assert all(np.array_equal(one.counts, counted[0].counts) for one in counted)
