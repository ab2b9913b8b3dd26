"""Differences of all pairs at once: right as often as said, and blind to what is the same."""

import numpy as np
import pytest

from workbench.values.simultaneous import all_pairs


def drawn(models: int, samples: int, seed: int, spread: float = 1.0) -> np.ndarray:
    """Models that are equally good: what is hard is hard for all of them."""
    random = np.random.default_rng(seed)
    return 3 + random.normal(size=samples) + spread * random.normal(size=(models, samples)) / 5


@pytest.mark.parametrize("samples", [6, 40])
def test_equal_models_are_all_alike_in_about_95_of_100_sets_of_samples(samples: int) -> None:
    tries = 120
    right = sum(
        bool(all_pairs(drawn(5, samples, seed), np.ones(samples), resamples=1000).alike.all()) for seed in range(tries)
    )
    assert right >= 105  # of 120; fewer has a probability of 0.002 where 95 of 100 are meant


def test_a_model_that_is_worse_everywhere_is_told_apart_from_all_others() -> None:
    values = drawn(4, 20, 1, spread=0.1)
    values[2] += 0.5
    pairs = all_pairs(values, np.ones(20))
    assert pairs.alike.tolist() == [[i == j or 2 not in (i, j) for j in range(4)] for i in range(4)]
    assert pairs.difference[2, 0] == pytest.approx(0.5, abs=0.05)


def test_intervals_are_antisymmetric_and_depend_on_nothing_but_the_arguments() -> None:
    values, weights = drawn(3, 12, 2), np.linspace(1, 2, 12)
    a, b = all_pairs(values, weights), all_pairs(values, weights)
    assert np.array_equal(a.low, b.low)
    assert np.allclose(a.low, -a.high.T)


def test_the_same_model_twice_is_alike_and_one_sample_tells_nothing() -> None:
    values = drawn(2, 10, 4)[[0, 0, 1]]
    pairs = all_pairs(values, np.ones(10))
    assert pairs.alike[0, 1]
    assert pairs.high[0, 1] == 0
    assert all_pairs(values[:, :1], np.ones(1)).alike.all()
