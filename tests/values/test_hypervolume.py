"""The dominated volume, held against counting cells of a grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.values.objectives import hypervolume, nondominated


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_it_is_the_number_of_cells_below_the_reference_that_some_point_dominates(axes: int, n: int, seed: int) -> None:
    points = np.random.default_rng(seed).integers(0, 6, size=(n, axes))
    cells = np.stack(np.meshgrid(*[np.arange(5)] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
    counted = (points[:, None, :] <= cells[None]).all(axis=2).any(axis=0).sum() if n else 0
    assert hypervolume(points.astype(float), [5.0] * axes) == pytest.approx(counted)


def test_points_at_or_beyond_the_reference_add_nothing() -> None:
    assert hypervolume([[1.0, 9.0], [2.0, 2.0]], [4.0, 3.0]) == 2.0
    assert hypervolume([[4.0, 1.0]], [4.0, 3.0]) == 0.0


def test_equal_points_stand_once_among_those_that_none_dominates() -> None:
    points = np.array([[2.0, 2.0], [1.0, 3.0], [2.0, 2.0], [3.0, 2.0]])
    assert nondominated(points).tolist() == [[1.0, 3.0], [2.0, 2.0]]


def test_what_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        hypervolume([[float("nan"), 1.0]], [2.0, 2.0])
