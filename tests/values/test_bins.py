"""Bins from lengths: the best there are, against every other choice of as many."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.inputs.dataset.batch import IntArray
from workbench.values.bins import ATTENTION, optimal_bins, timed_length

LENGTHS = st.lists(st.integers(1, 90), min_size=1, max_size=40).map(np.array)


def work(bins: tuple[int, ...], lengths: IntArray) -> float:
    padded = [min(b for b in bins if b >= min(length, bins[-1])) for length in lengths]
    return sum(b + ATTENTION * b * b for b in padded)


@settings(deadline=None)
@given(lengths=LENGTHS, count=st.integers(1, 5), max_length=st.integers(1, 80), multiple=st.sampled_from([8, 16]))
def test_no_other_bins_take_less_work_and_they_ascend_to_the_longest_text(
    lengths: IntArray, count: int, max_length: int, multiple: int
) -> None:
    found = optimal_bins(lengths, count, max_length, multiple=multiple)
    edges = range(multiple, max_length, multiple)
    least = min(
        work((*chosen, max_length), lengths)
        for size in range(min(count, len(edges) + 1))
        for chosen in itertools.combinations(edges, size)
    )

    assert work(found, lengths) == pytest.approx(least, rel=1e-9)
    assert len(found) <= count
    assert list(found) == sorted(set(found))
    assert found[-1] == max_length
    assert all(size % multiple == 0 for size in found[:-1])
    assert optimal_bins(lengths[::-1], count, max_length, multiple=multiple) == found


def test_a_bin_that_saves_nothing_is_left_out() -> None:
    assert optimal_bins(np.array([100, 120, 128]), 4, 128) == (104, 120, 128)
    assert optimal_bins(np.array([128, 128]), 4, 128) == (128,)
    assert optimal_bins(np.array([5, 5, 5]), 8, 128) == (8, 128), "a longer text may come all the same"
    with pytest.raises(ValueError, match="4 bins of 0 lengths"):
        optimal_bins(np.array([], dtype=np.int64), 4, 128)


def test_a_question_about_one_length_is_asked_in_the_bin_that_holds_it() -> None:
    assert timed_length(12, (8, 24, 48)) == 24
    assert timed_length(60, (8, 24, 48)) == 60, "nothing holds it, which the session will say"
    assert timed_length(12, None) == 12
    assert timed_length(None, (8, 24)) is None
