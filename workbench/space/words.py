"""Bins by word: a choice such as 'optimal 4', to which only the lengths of a dataset's texts give numbers."""

from __future__ import annotations

from typing import TypeGuard

from workbench.values.bins import IntArray, optimal_bins
from workbench.values.dimension import Dimension, Scalar

MOST_BINS = 16
"""What a word may ask for: each is a queue of its own, and on targets with fixed shapes a file for each batch."""
_OPTIMAL = "optimal "
_STAND_IN = 100_003
"""A length that nobody writes down, so that candidates of different words and lists are told apart."""


def is_word(value: Scalar, dimension: Dimension | None) -> TypeGuard[str]:
    """Whether a choice stands for bins that a dataset's lengths decide: 'optimal 4'."""
    if dimension is None or not dimension.lengths_in or not isinstance(value, str):
        return False
    count = value.removeprefix(_OPTIMAL)
    return count != value and count.isascii() and count.isdecimal() and 1 <= int(count) <= MOST_BINS


def stand_in(word: str) -> tuple[int, ...]:
    """As many bins as a word asks for, before there is a dataset: for counting candidates, never for data."""
    return tuple(_STAND_IN * number for number in range(1, int(word.removeprefix(_OPTIMAL)) + 1))


def bins_of(word: str, dimension: Dimension, lengths: IntArray, max_length: int) -> tuple[int, ...]:
    """The bins a word stands for, given the tokens of a dataset's texts; the last is `max_length`."""
    return optimal_bins(lengths, int(word.removeprefix(_OPTIMAL)), max_length, multiple=dimension.lengths_in)
