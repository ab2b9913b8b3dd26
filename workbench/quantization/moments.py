"""Sums that do not depend on the order of their terms: every sum of float64 values carries its own rounding error.

A pair (sum, error) stands for `sum + error` with about 106 bits (T. J. Dekker, "A floating-point technique for
extending the available precision", Numerische Mathematik 18, 1971; D. E. Knuth, "The Art of Computer Programming",
vol. 2, §4.2.2, theorem B). Terms of one tensor rarely span more bits than that, so its rounded sum is the same
number in any order. That is no proof: terms of both signs that cancel over more than 100 bits may still differ.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Pair = tuple[Doubles, Doubles]


def two_sum(a: Doubles, b: Doubles) -> Pair:
    """The rounded sum and its exact rounding error, elementwise."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def add_pairs(a: Pair, b: Pair) -> Pair:
    """(sum, error) of both, with the sum the float64 nearest to the total."""
    total, error = two_sum(a[0], b[0])
    low, lower = two_sum(a[1], b[1])
    total, error = _renormalized(total, error + low)
    return _renormalized(total, error + lower)


def add_terms(a: Pair, terms: Doubles) -> Pair:
    """(sum, error) after one more float64 term per element."""
    total, error = two_sum(a[0], terms)
    return _renormalized(total, error + a[1])


def sum_of_rows(terms: Doubles) -> Pair:
    """(sum, error) over the first axis."""
    pair = (np.zeros(terms.shape[1:]), np.zeros(terms.shape[1:]))
    for row in terms:
        pair = add_terms(pair, row)
    return pair


def _renormalized(high: Doubles, low: Doubles) -> Pair:
    total = high + low
    return total, low - (total - high)
