"""How far an order rests on an unchecked clock: planted cases whose answer is known."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.modelled import CLOCK, call, latency, service
from workbench.prediction.robustness import Contender, robustness
from workbench.values.clocks.figures import with_intervals
from workbench.values.clocks.measured import at_measured
from workbench.values.clocks.robustness import Robustness
from workbench.values.clocks.statement import CallCosts
from workbench.values.measurement import Measurement
from workbench.values.objectives import Constraint, Objective

FASTEST = (Objective(metric="latency_p50_ms"),)


def contender(name: str, costs: CallCosts, *, served: bool = False, **numbers: float) -> Contender:
    timed = with_intervals(latency(costs))
    measurement = Measurement(latency=timed, service=service(costs) if served else None)
    return Contender(id=name, measurement=measurement, numbers={"latency_p50_ms": timed.p50_ms.value, **numbers})


INT8 = contender("int8", call(int8=100))
FLOAT = contender("float", call(float16=50))
"""Half the work of float16: exactly as fast where INT8 gains twice, as the clock that is run says."""


def known(one: Contender, measured: Mapping[str, float]) -> Contender:
    return replace(one, measurement=at_measured(one.measurement, measured))


def judged(*contenders: Contender, objectives: tuple[Objective, ...] = FASTEST, **more: object) -> Robustness:
    found = robustness(contenders, objectives, (), lead=objectives[0].metric, **more)
    assert found is not None
    return found


def test_an_order_that_int8s_gain_decides_is_a_toss_and_its_micro_benchmark_is_named() -> None:
    found = judged(INT8, FLOAT)

    shares = {share.candidate_id: share for share in found.shares}
    assert shares["int8"].on_front == pytest.approx(0.5, abs=0.06)
    assert shares["float"].on_front == pytest.approx(0.5, abs=0.06)
    assert shares["int8"].best + shares["float"].best == pytest.approx(1)
    assert found.certainty < 0.6
    assert [one.unknown for one in found.benchmarks] == ["int8_gain"]
    assert found.benchmarks[0].command == "python -m measure int8_gain --to clock.json"
    assert 0.4 < found.benchmarks[0].changed_under < 0.6


@pytest.mark.parametrize(("gain", "faster"), [(1.5, "float"), (2.6, "int8")])
def test_a_clock_of_which_that_is_known_makes_it_decisive(gain: float, faster: str) -> None:
    found = judged(*(known(one, {"int8_gain": gain}) for one in (INT8, FLOAT)))

    assert [(share.candidate_id, share.on_front, share.best) for share in found.shares] == [(faster, 1.0, 1.0)]
    assert (found.certainty, found.benchmarks) == (1.0, ())


def test_what_all_candidates_have_in_common_decides_nothing() -> None:
    """Launches may take half or twice as long; fewer of them are faster all the same."""
    found = judged(contender("few", call(float16=100, launches=10)), contender("many", call(float16=100, launches=11)))

    assert [(share.candidate_id, share.on_front) for share in found.shares] == [("few", 1.0)]
    assert found.certainty == 1.0


def test_an_order_that_two_things_decide_needs_both_and_lists_the_more_telling_first() -> None:
    found = judged(contender("int8", call(int8=100)), contender("float", call(float16=30, launches=20)))

    assert {one.unknown for one in found.benchmarks[:2]} <= {"int8_gain", "matrix", "launch"}
    assert len(found.benchmarks) > 1
    shares = [one.changed_under for one in found.benchmarks]
    assert shares == sorted(shares, reverse=True)


def test_a_front_of_two_objectives_keeps_who_is_better_in_what_no_clock_moves() -> None:
    both = (*FASTEST, Objective(metric="accuracy"))
    found = judged(
        contender("quick", call(int8=50), accuracy=0.90),
        contender("exact", call(float16=100), accuracy=0.95),
        contender("neither", call(float16=101), accuracy=0.94),
        objectives=both,
    )

    assert {share.candidate_id: share.on_front for share in found.shares} == {"quick": 1.0, "exact": 1.0}


def test_a_limit_on_time_is_kept_under_some_clocks_only() -> None:
    limit = Constraint(metric="latency_p50_ms", limit=INT8.numbers["latency_p50_ms"] * 0.9)
    found = robustness([INT8], FASTEST, (limit,), lead="latency_p50_ms")
    assert found is not None

    assert 0.3 < found.shares[0].on_front < 0.8
    assert found.shares[0].best == found.shares[0].on_front


def test_equal_times_are_the_recommended_ones_lead() -> None:
    twins = [contender(name, call(int8=100)) for name in ("a", "b")]

    found = judged(*twins, recommended="b")

    assert {share.candidate_id: share.best for share in found.shares} == {"a": 0.0, "b": 1.0}


def test_a_services_throughput_is_judged_by_the_scale_of_its_calls() -> None:
    objective = (Objective(metric="service_throughput_per_s"),)
    found = judged(
        contender("int8", call(int8=100), served=True, service_throughput_per_s=1000.0),
        contender("float", call(float16=50), served=True, service_throughput_per_s=1000.0),
        objectives=objective,
    )

    assert found.shares[0].on_front == pytest.approx(0.5, abs=0.08)
    assert [one.unknown for one in found.benchmarks] == ["int8_gain"]


def test_the_same_question_has_the_same_answer() -> None:
    assert judged(INT8, FLOAT) == judged(INT8, FLOAT)


def test_measured_times_and_times_of_two_clocks_are_not_judged() -> None:
    other = replace(CLOCK, name="another card")
    foreign = Contender(
        id="other", measurement=Measurement(latency=latency(call(int8=1), clock=other)), numbers={"latency_p50_ms": 1.0}
    )
    measured = Contender(id="m", measurement=Measurement(), numbers={"latency_p50_ms": 1.0})

    for contenders in ([INT8, foreign], [INT8, measured], []):
        assert robustness(contenders, FASTEST, (), lead="latency_p50_ms") is None


def test_a_known_clock_prices_what_was_kept() -> None:
    found = known(INT8, {"int8_gain": 1.0, "launch": 20.0}).measurement.latency
    kept = INT8.measurement.latency
    assert found is not None
    assert kept is not None

    assert found.p50_ms.value == pytest.approx(2 * kept.p50_ms.value)
    assert found.speedup.value == pytest.approx(kept.speedup.value / 2)
    assert found.baseline_p50_ms == pytest.approx(kept.baseline_p50_ms)
    assert (found.speedup.high - found.speedup.low) == pytest.approx(0, abs=1e-9)


def test_a_service_moves_with_the_calls_that_it_makes() -> None:
    one = contender("int8", call(int8=100), served=True)

    found = known(one, {"int8_gain": 1.0}).measurement.service
    assert found is not None
    assert found.best is not None

    assert found.best.throughput_per_s.value == pytest.approx(500)
    assert found.best.p99_ms.value == pytest.approx(40)
    assert np.allclose([each.scale for each in found.modelled.scaled], [0.25, 0.5, 1.0])  # type: ignore[union-attr]  # it was modelled before
