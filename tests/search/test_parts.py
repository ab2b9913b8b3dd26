"""What is worth measuring next: by classes, limits, failures, and what it costs."""

from pathlib import Path

import numpy as np
import pytest

from workbench.search.parts import Costs, Goals, Ranking, Seen, match_classes, rank
from workbench.search.surrogate import Axes, axes_of
from workbench.space.space import Parameter, SearchSpace, combinations
from workbench.values.objectives import Constraint, Objective

CHOICES: dict[str, tuple[object, ...]] = {
    "algorithm": ("minmax", "mse", "kl"),
    "layers": (0, 2, 4),
    "graph": ("all", "basic"),
    "fusion": ("on", "off"),
}
SPACE = SearchSpace(
    path=Path("space.yaml"),
    targets=("onnxruntime",),
    parameters=tuple(Parameter(name=n, choices=c, when={}, about="") for n, c in CHOICES.items()),  # type: ignore[arg-type]  # texts and numbers
    forbid=(),
    presets=(),
)
EVERY = list(combinations(SPACE))
AXES: Axes = axes_of(SPACE)
QUESTION = Goals(
    objectives=(Objective(metric="throughput_per_s"), Objective(metric="accuracy")),
    constraints=(Constraint(metric="accuracy_drop_pp", limit=0.5),),
)


def seen(place: int, *, drop: float | None = None, failed: bool = False) -> Seen:
    """Scores follow algorithm and layers, times the layers and the graph; the fusion changes nothing."""
    a = EVERY[place]
    algorithm, layers = CHOICES["algorithm"].index(a["algorithm"]), CHOICES["layers"].index(a["layers"])
    lost = 0.2 * algorithm - 0.1 * layers if drop is None else drop
    serves = 100 * (1 - 0.1 * layers) * (1 if a["graph"] == "all" else 0.8)
    numbers = {"throughput_per_s": serves, "accuracy": 0.9 - lost / 100, "accuracy_drop_pp": lost}
    return Seen(
        assignment=a,
        numbers={} if failed else numbers,
        errors={},
        numerics=f"{algorithm} {layers}",
        time=f"{layers} {a['graph']}",
        failed=failed,
    )


def judge(known: list[Seen], costs: Costs | None = None) -> Ranking:
    return rank(QUESTION, AXES, AXES.codes(EVERY), known, costs or Costs(), np.random.default_rng(0))


def test_what_is_known_of_a_class_is_known_of_its_other_members() -> None:
    known = [seen(place) for place in (*range(0, len(EVERY), 2), 1, 15, 23)]  # three with the fusion off
    found = judge(known)
    told = match_classes(AXES.codes([s.assignment for s in known]), [s.time for s in known], AXES.codes(EVERY))
    assert told.new.max() < 0.2
    for place in range(1, len(EVERY), 2):
        mean, deviation = (each[place] for each in found.predicted["throughput_per_s"])
        assert np.exp(mean) == pytest.approx(seen(place).numbers["throughput_per_s"], rel=0.02)
        assert deviation < 0.05


def test_a_candidate_of_known_classes_costs_little_and_one_of_new_ones_all() -> None:
    found = judge([seen(p) for p in range(4)], Costs(each_s=1, numerics_s=10, time_s=100))
    other = next(p for p, a in enumerate(EVERY) if a["algorithm"] == "kl" and a["layers"] == 4)
    assert found.cost[:4].max() < 5 < found.cost[other]


@pytest.mark.parametrize("drop", [2.0, 0.1])
def test_there_is_an_order_whether_or_not_anything_keeps_the_limits(drop: float) -> None:
    found = judge([seen(p, drop=drop + 0.1 * p) for p in (0, 5, 11, 17)])
    assert sorted(found.order) == list(range(len(EVERY)))
    assert np.isfinite(found.gain).all()


def test_where_everything_failed_that_was_tried_what_is_least_like_it_comes_first() -> None:
    found = judge([seen(p, failed=True) for p in range(12)])
    first = EVERY[int(found.order[0])]
    assert first["algorithm"] != "minmax"


def test_where_a_compiler_takes_minutes_its_runs_are_what_a_candidate_costs() -> None:
    known = [seen(p) for p in range(0, 20, 3)]
    found = judge(known, Costs(runs=lambda place: 24 if EVERY[place]["fusion"] == "on" else 0))
    assert EVERY[int(found.order[0])]["fusion"] == "off"
