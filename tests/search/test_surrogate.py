"""The process over choices: its gradient, what it learns of parameters that do not matter, and its intervals."""

import numpy as np
import pytest

from tests.spaces import space_of_choices
from workbench.search.surrogate import Axes, axes_of, fit

AXES: Axes = axes_of(
    space_of_choices(algorithm=("minmax", "mse", "kl"), layers=(0, 2, 4, 8), graph=("all", "basic"), odd=(1, 7))
)


def drawn(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, len(places), count) for places in AXES.places], axis=1)


def truth(codes: np.ndarray) -> np.ndarray:
    """Depends on algorithm and layers alone."""
    return np.array([0.0, 0.7, -0.4])[codes[:, 0]] - 0.3 * codes[:, 1] + 5.0


def test_what_counts_is_ordered_and_what_does_not_is_one_apart() -> None:
    assert AXES.ordered == (False, True, False, False)
    a, b = AXES.codes([{"algorithm": "kl", "layers": 0, "graph": "all"}, {"algorithm": "mse", "layers": 4, "odd": 7}])
    apart = AXES.distances(a[None], b[None])[:, 0, 0]
    assert apart.tolist() == [1.0, pytest.approx(2 / 3), 1.0, 1.0]


def test_parameters_that_make_no_difference_lose_their_weight_and_what_is_known_holds_for_all_their_choices() -> None:
    codes = drawn(30, 3)
    found = fit(AXES, codes, truth(codes), np.zeros(30))
    assert found.weights[2:].max() < 0.5 * found.weights[:2].min()
    mean, deviation = found.predict(drawn(48, 4))
    assert np.abs(mean - truth(drawn(48, 4))).max() < 0.1
    assert deviation.max() < 0.2


def test_what_another_sweep_measured_counts_less_where_it_does_not_agree() -> None:
    wide = AXES.with_sources([0.9])
    here, there = drawn(20, 5), drawn(40, 6)
    codes = np.vstack([wide.of_source(here, None), wide.of_source(there, 0)])
    asked = wide.of_source(drawn(48, 7), None)

    misled = fit(wide, codes, np.concatenate([truth(here), -truth(there)]), np.zeros(60))

    assert np.abs(misled.predict(asked)[0] - truth(drawn(48, 7))).max() < 0.5


def test_intervals_hold_what_was_not_measured() -> None:
    held = []
    for seed in range(20):
        codes, unseen = drawn(14, seed), drawn(48, 100 + seed)
        noisy = truth(codes) + np.random.default_rng(seed).normal(0, 0.05, 14)
        mean, deviation = fit(AXES, codes, noisy, np.full(14, 0.05)).predict(unseen)
        held += list(np.abs(mean - truth(unseen)) <= 1.96 * deviation + 1e-6)
    assert np.mean(held) >= 0.9
