"""The best service settings: against trying everything with many requests, and rules that decide ties and limits."""

from dataclasses import replace

import numpy as np
import pytest

from tests.evaluations import evaluation
from tests.prediction.simulation.services import NO_LENGTHS, NOTHING, clients, exact, exponential, poisson
from workbench.prediction.search import best_settings
from workbench.prediction.simulation import figures, simulate
from workbench.values.measurement import BatchCurve, ServiceResult
from workbench.values.metrics import metrics
from workbench.values.service import HostCosts, ServiceChoices, ServiceLoad, ServiceQuestion, ServiceSettings

BINS = (16, 32, 64)
LENGTHS = np.arange(4, 60)
CURVE = exact(lambda b, n: 0.4 + 0.02 * b * n, batches=(1, 4, 16), lengths=BINS)
HOST = HostCosts(request_ms=0.2, batch_ms=0.3, client_ms=0.1, transport_ms=0.2, capacity=(1.0, 1.2), origin="a test")
CHOICES = ServiceChoices(max_batch_size=(1, 4, 16), batch_timeout_ms=(0.0, 2.0, 10.0), workers=(1, 2))


def asked(question: ServiceQuestion, choices: ServiceChoices = CHOICES, curve: BatchCurve = CURVE) -> ServiceResult:
    return best_settings(curve, choices, question, HOST, LENGTHS, BINS, seed=0)


def without_lengths(question: ServiceQuestion, choices: ServiceChoices, curve: BatchCurve) -> ServiceResult:
    return best_settings(curve, choices, question, NOTHING, NO_LENGTHS, (), seed=0)


@pytest.mark.parametrize(
    "question",
    [
        ServiceQuestion(load=clients(50)),
        ServiceQuestion(load=clients(50), p99_ms=90.0),
        ServiceQuestion(load=clients(8), goal="p99"),
        ServiceQuestion(load=poisson(300), goal="p99"),
    ],
    ids=["throughput", "throughput with a limit", "p99", "p99 of independent users"],
)
def test_the_search_finds_what_trying_everything_finds(question: ServiceQuestion) -> None:
    everything = [
        figures(simulate(CURVE, one, question.load, HOST, LENGTHS, BINS, requests=20_000, seed=1))
        for one in CHOICES.settings()
    ]
    keeping = [f for f in everything if question.p99_ms is None or f.p99_ms.value <= question.p99_ms]

    best = asked(question).best

    if question.goal == "throughput":
        most = max(f.throughput_per_s.value for f in keeping)
        assert best.throughput_per_s.value >= 0.98 * most
    else:
        stable = [f for f in keeping if f.reliable]
        assert best.p99_ms.value <= 1.05 * min(f.p99_ms.value for f in stable)
    if question.p99_ms is not None:
        assert best.p99_ms.value <= question.p99_ms
        assert len(keeping) < len(everything), "the limit must exclude something"


def test_the_result_says_what_nobody_tuned_would_give() -> None:
    result = asked(ServiceQuestion(load=clients(50)))

    assert result.untuned.settings == CHOICES.untuned == ServiceSettings()
    assert result.best.throughput_per_s.value > 1.3 * result.untuned.throughput_per_s.value
    assert result.tried == len(CHOICES.settings())
    assert result.confirmed is None
    again = asked(ServiceQuestion(load=clients(50)))
    assert again == result, "a function of its arguments"


def test_a_limit_that_nothing_keeps_leaves_the_closest() -> None:
    result = asked(ServiceQuestion(load=clients(50), p99_ms=1.0))

    assert result.best is None
    assert result.closest.p99_ms.value == pytest.approx(
        asked(ServiceQuestion(load=clients(50), goal="p99")).best.p99_ms.value, rel=0.02
    )


def test_ties_go_to_fewer_workers_smaller_batches_and_smaller_timeouts() -> None:
    """One client: no setting is better than any other but by its timeout."""
    choices = ServiceChoices(max_batch_size=(8, 1, 4), batch_timeout_ms=(0.0,), workers=(4, 1, 2))

    result = without_lengths(ServiceQuestion(load=clients(1)), choices, exact(lambda *_: 5.0, batches=(1, 8)))

    assert result.best.settings == ServiceSettings(max_batch_size=1, workers=1)
    assert result.untuned.settings == ServiceSettings(max_batch_size=8, workers=4)
    choices = ServiceChoices(max_batch_size=(1, 4), batch_timeout_ms=(0.0, 5.0), workers=(1, 4))
    within = without_lengths(ServiceQuestion(load=poisson(20)), choices, exact(lambda *_: 5.0, batches=(1, 4)))
    assert within.best.settings == ServiceSettings(), "what everyone can serve is a tie too"


def test_the_highest_rate_of_a_single_server_is_the_one_theory_gives() -> None:
    """M/M/1 at 1000/s: P99 is ln(100) / (1 - rate) ms, 20 ms at 769.7/s."""
    result = without_lengths(
        ServiceQuestion(load=None, p99_ms=20.0), ServiceChoices(), exponential(1.0, quantiles=2001)
    )

    assert result.best.load.rate_per_s == pytest.approx(1000 * (1 - np.log(100) / 20), rel=0.025)
    assert result.best.throughput_per_s.value == pytest.approx(result.best.load.rate_per_s, rel=0.02)
    assert result.best.p99_ms.value <= 20
    assert result.best.reliable


def test_the_highest_rate_is_sought_over_all_settings() -> None:
    question = ServiceQuestion(load=None, p99_ms=40.0)

    result = asked(question, replace(CHOICES, batch_timeout_ms=(0.0, 2.0)))

    assert result.best.p99_ms.value <= 40
    assert result.best.load.rate_per_s > 1.2 * result.untuned.load.rate_per_s
    beyond = ServiceLoad(arrivals="poisson", rate_per_s=1.06 * result.best.load.rate_per_s)
    more = asked(ServiceQuestion(load=beyond, p99_ms=40.0), replace(CHOICES, batch_timeout_ms=(0.0, 2.0)))
    assert more.best is None, "a setting keeps the limit at a higher rate"


@pytest.mark.parametrize("load", [None, clients(8)], ids=["highest rate", "given load"])
def test_nothing_is_a_multiple_of_what_misses_the_limit(load: ServiceLoad | None) -> None:
    """A batch takes longer than the limit, one request does not."""
    question = ServiceQuestion(load=load, p99_ms=18.0)
    curve = exact(lambda b, _: 1.0 + 20.0 * (b > 1), batches=(1, 16))
    waiting = ServiceSettings(max_batch_size=16, batch_timeout_ms=40.0, workers=1)
    choices = replace(CHOICES, max_batch_size=(1, 16), batch_timeout_ms=(0.0, 40.0), today=waiting)
    missed = without_lengths(question, choices, curve)
    kept = without_lengths(question, replace(choices, today=ServiceSettings()), curve)

    assert "service_gain" in of_service(kept)
    assert kept.untuned_missed == ""
    assert missed.best is not None
    assert missed.untuned_missed.startswith("misses the limit on P99 of 18 ms: ")
    assert "service_gain" not in of_service(missed)


def of_service(found: ServiceResult) -> dict[str, float]:
    return metrics(evaluation(served=found))


def test_no_rate_at_all_is_said() -> None:
    result = without_lengths(ServiceQuestion(load=None, p99_ms=3.0), ServiceChoices(), exact(lambda *_: 5.0))

    assert result.best is None
    assert result.closest.p99_ms.value >= 5
    assert "no rate was found that keeps P99 <= 3 ms" in result.closest.note


def test_a_trace_that_ends_in_a_burst_keeps_the_limit_if_its_latencies_do() -> None:
    """Nothing grows without end in a trace: sixty at once are answered within 240 ms, and then it is over."""
    moments_ms = [*range(0, 500, 10), *([500] * 60)]
    load = ServiceLoad(arrivals="trace", trace_s=tuple(moment / 1000 for moment in moments_ms))

    result = without_lengths(ServiceQuestion(load=load, p99_ms=250.0), ServiceChoices(), exact(lambda *_: 4.0))

    assert result.best.p99_ms.value == pytest.approx(236, abs=4)
