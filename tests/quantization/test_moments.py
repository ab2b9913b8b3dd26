"""Sums with their rounding errors: exact where 106 bits are enough, and the same number in any order."""

import math

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.quantization.statistics import add_pairs, add_rows

Doubles = npt.NDArray[np.float64]
activations = hnp.arrays(
    np.float64, st.integers(1, 60), elements=st.floats(-(2.0**20), 2.0**20, width=32, allow_subnormal=False)
).map(lambda values: np.where(np.abs(values) < 2.0**-40, 0.0, values))
"""Float32 values over 60 binary orders of magnitude, both signs: what sums over activations meet at worst."""


def zero() -> tuple[Doubles, Doubles]:
    return np.zeros(1), np.zeros(1)


def summed(values: Doubles) -> tuple[Doubles, Doubles]:
    pair = zero()
    add_rows(pair, values[:, None])
    return pair


@given(values=activations, data=st.data())
def test_sums_are_rounded_once_whatever_the_order_and_the_split(values: Doubles, data: st.DataObject) -> None:
    shuffled = np.array(data.draw(st.permutations(values.tolist())))
    cuts = sorted(data.draw(st.lists(st.integers(0, values.size), max_size=3)))
    pair = zero()
    for part in np.split(shuffled, cuts):
        pair = add_pairs(pair, summed(part))

    assert pair[0][0] == math.fsum(values.tolist())
    assert add_pairs(summed(values), zero())[0][0] == pair[0][0]
