"""Exact ranks of a stream: compared with sorting everything."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.quantization import order_statistics
from workbench.quantization.order_statistics import OrderStatistics

Floats = npt.NDArray[np.float32]


def fed(parts: list[Floats], largest: int, smallest: int) -> OrderStatistics:
    ranks = OrderStatistics()
    for part in parts:
        ranks.add(part)
    if ranks.prepare(largest, smallest):
        for part in reversed(parts):  # the order does not matter
            ranks.refine(part)
    return ranks


@settings(max_examples=60)
@given(
    values=hnp.arrays(
        np.float32,
        st.integers(1, 300),
        elements=st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=True),
    ),
    pieces=st.integers(1, 5),
    data=st.data(),
)
def test_ranks_are_those_of_the_sorted_values(values: Floats, pieces: int, data: st.DataObject) -> None:
    largest, smallest = (data.draw(st.integers(1, values.size)) for _ in "ab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_statistics, "KEPT", 8)  # so that most ranks take the second pass

        ranks = fed(np.array_split(values, pieces), largest, smallest)

        ordered = np.sort(values)
        assert ranks.largest(largest) == ordered[-largest]
        assert ranks.smallest(smallest) == ordered[smallest - 1]
        assert ranks.count == values.size
