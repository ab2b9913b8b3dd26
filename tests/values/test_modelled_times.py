"""Times of costed calls, their intervals by the errors of a timing model, and what two candidates differ by."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import evaluations
from tests.modelled import CLOCK, call, latency, service
from workbench.values.documents.canonical import DecodeError, decode, encode
from workbench.values.measurement import Latency
from workbench.values.modelled_times.figures import (
    Priced,
    at_errors,
    interval,
    latency_figures,
    ratio,
    served_with_intervals,
    service_figures,
    with_intervals,
)
from workbench.values.modelled_times.statement import Unknown, Work, summed


@given(vector=st.floats(0.1, 1e4), count=st.integers(1, 9), factor=st.floats(0.01, 100))
def test_a_call_takes_what_its_parts_take(vector: float, count: int, factor: float) -> None:
    work = Work(count=count, amounts=(("launch", 1.0), ("vector", vector)))

    priced = Priced(prices={"vector": np.array([1.0, factor]), "launch": np.ones(2)})

    found = priced.call_ms([summed([work])])[0]

    assert found == pytest.approx(np.array([count * (1 + vector * price) / 1000 for price in (1.0, factor)]))


def test_independent_errors_are_added_in_quadrature() -> None:
    """Of CLOCK: products within 1.6, launches within 2."""
    matrix, launch, both = (
        interval(at_errors(CLOCK).call_ms([call(**amounts)])[0])
        for amounts in ({"float16": 100}, {"launches": 100}, {"float16": 100, "launches": 100})
    )

    assert (matrix.low, matrix.value, matrix.high) == pytest.approx((1 / 1.6, 1.0, 1.6))
    assert (launch.low, launch.high) == pytest.approx((0.5, 2))
    moved = np.log([(1 + 1.6) / 2, (1 + 2) / 2])
    assert both.high / both.value == pytest.approx(np.exp(np.linalg.norm(moved)))


def test_a_speed_up_has_the_interval_of_the_clocks_and_a_model_against_itself_none() -> None:
    quicker, itself = with_intervals(latency(call(int8=100))), with_intervals(latency(call(float16=100)))

    assert quicker.speedup.low < quicker.speedup.value < quicker.speedup.high
    assert (itself.speedup.low, itself.speedup.high) == (1.0, 1.0)
    assert itself.p50_ms.low < itself.p50_ms.value < itself.p50_ms.high


def test_two_candidates_are_compared_clock_by_clock_and_not_by_their_intervals() -> None:
    """Their intervals overlap nearly whole; yet one launch more is slower on any device."""
    one, other = (with_intervals(latency(call(float16=100, launches=n))) for n in (10, 11))

    assert one.p50_ms.high > other.p50_ms.value > other.p50_ms.low
    between = ratio(other, one, "speedup")
    assert between.low < between.high < 1
    gains, launches = latency(call(int8=100)), latency(call(float16=50, launches=20))
    between = ratio(gains, launches, "latency_p50_ms")
    assert between.low < 1 < between.high, "some clocks see it the other way round"
    measured = replace(latency(call(float16=1)), modelled=None, clock="host")
    assert ratio(measured, measured, "speedup") is None
    assert with_intervals(measured) is measured


def test_percentiles_move_with_the_calls_that_they_lie_at() -> None:
    """Nine of ten calls are launches alone, the tenth a product: only the tail knows of the product's clock."""
    short, long = call(launches=10), call(float16=1e4)
    kept = latency(short)
    modelled = replace(kept.modelled, candidate=(short, long), baseline=(short,), pairs=((0, 0, 90), (1, 0, 10)))
    mixed: Latency = replace(kept, modelled=modelled)
    product_only = replace(CLOCK, unknowns=CLOCK.unknowns[:2])

    found = latency_figures(replace(mixed, modelled=replace(modelled, clock=product_only)))

    assert np.ptp(found["latency_p50_ms"]) == 0
    assert np.ptp(found["latency_p95_ms"]) > 0


def test_a_service_is_read_off_between_the_speeds_that_were_simulated_and_has_the_interval_of_the_clocks() -> None:
    shown = service(call(float16=100, launches=0))
    clocks = at_errors(CLOCK)

    found = service_figures(shown)

    scale = clocks.prices["float16"] / clocks.prices["float16"][0]
    inside = (scale > 0.5) & (scale < 2)
    assert found["service_throughput_per_s"][0] == pytest.approx(shown.closest.throughput_per_s.value)
    assert found["service_throughput_per_s"][inside] == pytest.approx(1000 / scale[inside])
    assert found["service_p99_ms"][inside] == pytest.approx(20 * scale[inside])
    shown = served_with_intervals(service(call(float16=100)))
    assert shown.best.throughput_per_s.low < 900
    assert shown.best.throughput_per_s.high > 1100


def test_costs_of_earlier_files_are_read_and_those_of_a_roofline_refused_in_few_words() -> None:
    """A bundle that was exported before is verified as it was."""
    earlier = {"count": 2, "before": [["launch", 1.0]], "beside": [], "products": []}
    roofline = {**earlier, "beside": [[["vector", 3.0]]]}

    assert decode(Work, earlier) == Work(count=2, amounts=(("launch", 1.0),))
    benchmarked = {"data_sheet": 1.0, "value": 1.0, "unit": "us", "reads": "time", "settled_by": "a command"}
    assert decode(Unknown, encode(CLOCK.unknowns[0]) | benchmarked) == CLOCK.unknowns[0]
    with pytest.raises(DecodeError, match=r"^Work: unknown key 'beside'$"):
        decode(Work, roofline)
    with pytest.raises(DecodeError) as refused:
        decode(Latency, {**encode(evaluations.latency(1.0, 1.0)), "p99_ms": ["a long value"] * 1000})
    assert len(str(refused.value)) < 700
