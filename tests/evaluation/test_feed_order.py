"""The order in which feeds are visited."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.feeds import feeds_of
from workbench.evaluation.measure import scattered


@given(st.integers(0, 56))
def test_any_eight_neighbours_hold_short_and_long_feeds(start: int) -> None:
    lengths = np.random.default_rng(0).permutation(np.arange(1, 65))

    near = lengths[scattered(feeds_of(*lengths))][start : start + 8]

    assert near.min() <= 16
    assert near.max() >= 49
    assert 24 <= near.mean() <= 41
