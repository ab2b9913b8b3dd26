"""The order in which feeds are visited."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.feeds import feeds_of
from workbench.evaluation.feed_order import scattered


@given(st.lists(st.integers(1, 64), min_size=1, max_size=70))
@settings(max_examples=60, deadline=None)
def test_feeds_are_visited_once_each(lengths: list[int]) -> None:
    assert sorted(scattered(feeds_of(*lengths))) == list(range(len(lengths)))


@given(st.integers(0, 56))
def test_any_eight_neighbours_hold_short_and_long_feeds(start: int) -> None:
    lengths = np.random.default_rng(0).permutation(np.arange(1, 65))

    near = lengths[scattered(feeds_of(*lengths))][start : start + 8]

    assert near.min() <= 16
    assert near.max() >= 49
    assert 24 <= near.mean() <= 41
