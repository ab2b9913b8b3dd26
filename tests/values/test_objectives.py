"""Directions, constraints, the Pareto front and the volume it dominates."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluations import estimate, evaluation, service
from workbench.values.agreement import Agreement, Agreements, OutputAgreement
from workbench.values.errors import ConfigError
from workbench.values.metrics import metrics
from workbench.values.objectives import (
    METRICS,
    Closest,
    Constraint,
    Direction,
    Objective,
    closest_to_feasible,
    feasible,
    nondominated,
    pareto_front,
    violations,
)

DIRECTIONS: tuple[Direction, ...] = ("minimize", "maximize")
small = st.integers(0, 6).map(float)
points_3d = st.lists(st.tuples(small, small, small), max_size=10)


def test_every_metric_is_one_that_an_evaluation_can_have() -> None:
    own_unit = {"accuracy_loss"}  # of a metric that is no share, in place of accuracy_loss_pp
    of_language_models = {"perplexity", "kl", "prefill_ms", "decode_ms", "kv_kb_per_token"}
    of_retrievals = {"accuracy_loss_pp_float_index"}
    output = OutputAgreement(
        output="logits", samples=8, elements=32, worst_cosine=0.99, mean_cosine=0.999, max_abs=0.02, mae=0.003
    )
    served = Agreement(
        path="served", reference="float32", outputs=(output,), samples=8, top1=estimate(1.0, 0.0), accuracy={}
    )
    found = Agreements(candidate_id="c", data="validation", paths=(served,), missing={})
    known = replace(evaluation(drop_pp=0.1, scheme="static", served=service()), agreement=found)

    assert set(METRICS) - own_unit - of_language_models - of_retrievals <= set(metrics(known))


def test_the_sense_of_a_constraint_follows_the_direction_of_its_metric() -> None:
    drop, speedup = Constraint(metric="accuracy_loss_pp", limit=0.5), Constraint(metric="speedup", limit=2)

    assert drop.violation(0.75) == 0.25
    assert drop.violation(0.5) == 0
    assert drop.violation(-1) == -1.5
    assert speedup.violation(1.5) == 0.5
    assert speedup.violation(2.5) == -0.5
    assert (str(drop), str(speedup)) == ("accuracy_loss_pp <= 0.5 pp", "speedup >= 2 x")


def test_what_is_no_metric_or_no_number_is_no_limit_and_breaks_none_in_silence() -> None:
    with pytest.raises(ConfigError, match=r"'latency_p5_ms' is not a metric.*'latency_p50_ms'"):
        Objective(metric="latency_p5_ms")
    with pytest.raises(ConfigError, match=r"'sizemb' is not a metric.*'size_mb'"):
        Constraint(metric="sizemb", limit=3)
    for limit in (float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="not a finite number"):
            Constraint(metric="size_mb", limit=limit)
    with pytest.raises(ValueError, match="latency_p50_ms is NaN"):
        Constraint(metric="latency_p50_ms", limit=3).violation(float("nan"))


def test_what_was_not_measured_is_absent_from_the_violations_and_not_feasible() -> None:
    constraints = (Constraint(metric="size_mb", limit=10), Constraint(metric="latency_p99_ms", limit=5))

    assert violations(constraints, {"size_mb": 8.0}) == {"size_mb": -2.0}
    assert not feasible(constraints, {"size_mb": 8.0})
    assert feasible(constraints, {"size_mb": 8.0, "latency_p99_ms": 5.0})
    assert feasible((), {})


def test_closest_adds_violations_as_shares_of_their_limits_and_prefers_whom_everything_is_known_of() -> None:
    constraints = (Constraint(metric="latency_p50_ms", limit=20), Constraint(metric="accuracy_loss_pp", limit=0.5))
    violated = {
        "slow": {"latency_p50_ms": 4.0, "accuracy_loss_pp": -0.1},
        "wrong": {"latency_p50_ms": -3.0, "accuracy_loss_pp": 0.2},
        "both": {"latency_p50_ms": 1.0, "accuracy_loss_pp": 0.1},
    }

    assert closest_to_feasible(constraints, violated) == Closest(
        candidate_id="slow", violations={"latency_p50_ms": 4.0}
    )
    constraints = (Constraint(metric="latency_p50_ms", limit=20), Constraint(metric="accuracy_loss_pp", limit=0))
    stopped, complete = {"accuracy_loss_pp": 0.1}, {"latency_p50_ms": 9.0, "accuracy_loss_pp": 0.6}

    assert closest_to_feasible(constraints, {"a": stopped, "b": complete, "c": {}}) == Closest(
        candidate_id="b", violations=complete
    )
    assert closest_to_feasible(constraints, {"a": stopped}) == Closest(
        candidate_id="a", violations=stopped, unknown=("latency_p50_ms",)
    )
    assert closest_to_feasible(constraints, {"c": {}}) is None


@given(points_3d, st.tuples(*[st.sampled_from(DIRECTIONS)] * 3))
def test_the_front_is_what_nobody_dominates_and_dominates_the_rest(
    points: list[tuple[float, ...]], directions: tuple[Direction, ...]
) -> None:
    front = pareto_front(points, directions)

    def beats(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
        better = [(x < y) if d == "minimize" else (x > y) for x, y, d in zip(a, b, directions, strict=True)]
        worse = [(x > y) if d == "minimize" else (x < y) for x, y, d in zip(a, b, directions, strict=True)]
        return any(better) and not any(worse)

    assert front == sorted(front)
    for i, point in enumerate(points):
        assert (i in front) != any(beats(points[j], point) for j in front)


def test_equal_points_are_all_on_the_front() -> None:
    assert pareto_front([(1, 5), (2, 2), (1, 5), (2, 1)], ("minimize", "maximize")) == [0, 2]
    assert pareto_front([], ("minimize",)) == []
    points = np.array([[2.0, 2.0], [1.0, 3.0], [2.0, 2.0], [3.0, 2.0]])
    assert nondominated(points).tolist() == [[1.0, 3.0], [2.0, 2.0]], "once"
