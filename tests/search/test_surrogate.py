"""What is expected of candidates that nobody has measured, and what is worth measuring next."""

import numpy as np
import pytest

from tests.spaces import space_of_choices
from workbench.search.parts import Costs, Ranking, Seen, match_classes, rank
from workbench.search.surrogate import Axes, axes_of, fit
from workbench.space.space import combinations
from workbench.values.objectives import Constraint, Objective

FOUR: Axes = axes_of(
    space_of_choices(algorithm=("minmax", "mse", "kl"), layers=(0, 2, 4, 8), graph=("all", "basic"), odd=(1, 7))
)


def drawn(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, len(places), count) for places in FOUR.places], axis=1)


def truth(codes: np.ndarray) -> np.ndarray:
    """Depends on algorithm and layers alone."""
    return np.array([0.0, 0.7, -0.4])[codes[:, 0]] - 0.3 * codes[:, 1] + 5.0


def test_parameters_that_make_no_difference_lose_their_weight_and_what_is_known_holds_for_all_their_choices() -> None:
    codes = drawn(30, 3)
    found = fit(FOUR, codes, truth(codes), np.zeros(30))
    assert found.weights[2:].max() < 0.5 * found.weights[:2].min()
    mean, deviation = found.predict(drawn(48, 4))
    assert np.abs(mean - truth(drawn(48, 4))).max() < 0.1
    assert deviation.max() < 0.2


def test_intervals_hold_what_was_not_measured() -> None:
    held = []
    for seed in range(20):
        codes, unseen = drawn(14, seed), drawn(48, 100 + seed)
        noisy = truth(codes) + np.random.default_rng(seed).normal(0, 0.05, 14)
        mean, deviation = fit(FOUR, codes, noisy, np.full(14, 0.05)).predict(unseen)
        held += list(np.abs(mean - truth(unseen)) <= 1.96 * deviation + 1e-6)
    assert np.mean(held) >= 0.9


CHOICES: dict[str, tuple[object, ...]] = {
    "algorithm": ("minmax", "mse", "kl"),
    "layers": (0, 2, 4),
    "graph": ("all", "basic"),
    "fusion": ("on", "off"),
}
SPACE = space_of_choices(**CHOICES)
EVERY = list(combinations(SPACE))
AXES: Axes = axes_of(SPACE)
OBJECTIVES = (Objective(metric="throughput_per_s"), Objective(metric="accuracy"))
CONSTRAINTS = (Constraint(metric="accuracy_loss_pp", limit=0.5),)


def seen(place: int, *, drop: float | None = None, failed: bool = False) -> Seen:
    """Scores follow algorithm and layers, times the layers and the graph; the fusion changes nothing."""
    a = EVERY[place]
    algorithm, layers = CHOICES["algorithm"].index(a["algorithm"]), CHOICES["layers"].index(a["layers"])
    lost = 0.2 * algorithm - 0.1 * layers if drop is None else drop
    serves = 100 * (1 - 0.1 * layers) * (1 if a["graph"] == "all" else 0.8)
    numbers = {"throughput_per_s": serves, "accuracy": 0.9 - lost / 100, "accuracy_loss_pp": lost}
    return Seen(
        assignment=a,
        numbers={} if failed else numbers,
        errors={},
        numerics=f"{algorithm} {layers}",
        time=f"{layers} {a['graph']}",
        failed=failed,
    )


def ranked_by(known: list[Seen], costs: Costs | None = None) -> Ranking:
    at = OBJECTIVES, CONSTRAINTS, AXES, AXES.codes(EVERY)
    return rank(*at, known, costs or Costs(), np.random.default_rng(0))


def test_what_is_known_of_a_class_is_known_of_its_other_members() -> None:
    known = [seen(place) for place in (*range(0, len(EVERY), 2), 1, 15, 23)]  # three with the fusion off
    found = ranked_by(known)
    told = match_classes(AXES.codes([s.assignment for s in known]), [s.time for s in known], AXES.codes(EVERY))
    assert told.new.max() < 0.2
    for place in range(1, len(EVERY), 2):
        mean, deviation = (each[place] for each in found.predicted["throughput_per_s"])
        assert np.exp(mean) == pytest.approx(seen(place).numbers["throughput_per_s"], rel=0.02)
        assert deviation < 0.05


def test_a_candidate_of_known_classes_costs_little_and_one_of_new_ones_all() -> None:
    found = ranked_by([seen(p) for p in range(4)], Costs(each_s=1, numerics_s=10, time_s=100))
    other = next(p for p, a in enumerate(EVERY) if a["algorithm"] == "kl" and a["layers"] == 4)
    assert found.cost[:4].max() < 5 < found.cost[other]


def test_where_a_compiler_takes_minutes_its_runs_are_what_a_candidate_costs() -> None:
    known = [seen(p) for p in range(0, 20, 3)]
    found = ranked_by(known, Costs(runs=lambda place: 24 if EVERY[place]["fusion"] == "on" else 0))
    assert EVERY[int(found.order[0])]["fusion"] == "off"
