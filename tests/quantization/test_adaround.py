"""The search for a rounding: against brute force where that is possible, never worse than nearest anywhere."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.quantization.rounding import Rounding, best_rounding, losses, nearest, problem

Floats = npt.NDArray[np.float32]


def correlated(seed: int, rows: int, size: int, outputs: int) -> tuple[Rounding, Floats, Floats]:
    """Weights in coarse steps, and inputs that lie near a space of half their dimensions, as activations do."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, max(1, size // 2))) @ random.normal(size=(max(1, size // 2), size))
    x = (x + 0.3 * random.normal(size=x.shape) + random.normal(size=size)).astype(np.float32)
    w = random.normal(size=(outputs, size)).astype(np.float32)
    steps = (np.abs(w).max(axis=1, keepdims=True) / 15).astype(np.float32)
    return problem(w, steps), x, x.T @ x / np.float32(rows)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 24), st.integers(1, 8))
def test_no_channel_gets_worse_than_nearest(seed: int, size: int, outputs: int) -> None:
    rounding, _, moments = correlated(seed, 50, size, outputs)

    found = best_rounding(rounding, moments)

    assert ((found == rounding.lower) | (found == rounding.upper)).all()
    assert (losses(rounding, moments, found) <= losses(rounding, moments, nearest(rounding))).all()


@pytest.mark.parametrize("seed", range(4))
def test_small_problems_come_close_to_the_best_of_all_roundings(seed: int) -> None:
    rounding, _, moments = correlated(seed, 100, 8, 4)
    choices = np.array(list(itertools.product((0, 1), repeat=8)), np.float32)
    exhaustive = []
    for row in range(4):
        one = problem(
            np.repeat(rounding.weights[row : row + 1], 256, axis=0), np.repeat(rounding.steps[row], 256)[:, None]
        )
        exhaustive.append(losses(one, moments, one.lower + choices).min())

    found = losses(rounding, moments, best_rounding(rounding, moments)).sum()
    plain = losses(rounding, moments, nearest(rounding)).sum()

    best = np.sum(exhaustive)
    assert best * (1 - 1e-4) <= found
    assert found - best < 0.5 * (plain - best)


def test_clipped_weights_and_silent_inputs_are_no_trouble() -> None:
    """Weights beyond the integers have one choice only; without any input every rounding is as good."""
    weights = np.array([[200.0, -300.0, 127.4, 0.5, 127.0]], np.float32)
    rounding = problem(weights, np.ones((1, 1), np.float32))
    moments = np.diag(np.array([1, 1, 1, 0, 1], np.float32))

    found = best_rounding(rounding, moments)

    np.testing.assert_array_equal(found[0, [0, 1, 2, 4]], [127, -128, 127, 127])
    nothing = best_rounding(rounding, np.zeros((5, 5), np.float32))
    np.testing.assert_array_equal(nothing, nearest(rounding))
