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


def add_rows(pair: Pair, rows: Doubles) -> None:
    """Add every row of float64[rows, n] to the (sum, error) of n elements, in place.

    The errors are summed up plainly (A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher
    Summen", ZAMM 54, 1974): half the work of a normalized pair per row. `add_pairs` normalizes.
    """
    sums, errors = pair
    total, of_row, rest = np.empty_like(sums), np.empty_like(sums), np.empty_like(sums)
    for row in rows:
        np.add(sums, row, out=total)
        np.subtract(total, sums, out=of_row)
        np.subtract(row, of_row, out=rest)
        np.subtract(total, of_row, out=of_row)
        np.subtract(sums, of_row, out=of_row)
        np.add(errors, rest, out=errors)
        np.add(errors, of_row, out=errors)
        sums[:] = total


def _renormalized(high: Doubles, low: Doubles) -> Pair:
    total = high + low
    return total, low - (total - high)
