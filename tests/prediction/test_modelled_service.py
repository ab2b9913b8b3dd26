"""A service whose calls have a modelled time, with its errors and under other loads."""

from dataclasses import replace

import numpy as np
import pytest

from tests import modelled
from tests.prediction.simulation.services import clients, exact
from workbench.prediction.search import best_settings, with_modelled_errors
from workbench.prediction.simulation import figures, simulate
from workbench.values.measurement import Estimate, ServiceFigures, ServiceResult
from workbench.values.modelled_times.figures import at_errors, interval
from workbench.values.service import HostCosts, ServiceChoices, ServiceQuestion

BINS = (32,)
LENGTHS = np.full(8, 20)
CURVE = exact(lambda b, n: 10.0 * b, batches=(1, 4), lengths=BINS)
COSTS = modelled.call(float16=100)


def loaded(request_ms: float) -> tuple[ServiceResult, ServiceFigures, HostCosts]:
    """One client of a service whose calls take ten milliseconds by its clock."""
    host = HostCosts(request_ms=request_ms, origin="a test")
    choices, question = ServiceChoices(max_batch_size=(1,)), ServiceQuestion(load=clients(1))
    found = best_settings(CURVE, choices, question, host, LENGTHS, BINS, seed=0)
    simulated = simulate(CURVE, found.best.settings, clients(1), host, LENGTHS, BINS, devices=1, requests=2_000, seed=0)
    return replace(found, modelled=modelled.service(COSTS).modelled), figures(simulated), host


def relative(estimate: Estimate) -> tuple[float, float]:
    return estimate.low / estimate.value, estimate.high / estimate.value


def test_a_service_that_waits_for_its_card_is_as_uncertain_as_the_clock() -> None:
    service, shown, host = loaded(request_ms=0.0)
    clocks = interval(at_errors(modelled.CLOCK).call_ms([COSTS])[0])

    found = with_modelled_errors(service, shown, host, LENGTHS, BINS, seed=0)

    assert found.p50_ms.value == pytest.approx(shown.p50_ms.value)
    assert relative(found.p50_ms) == pytest.approx(relative(clocks), rel=0.05)
    low, high = relative(clocks)
    assert relative(found.throughput_per_s) == pytest.approx((1 / high, 1 / low), rel=0.05)
    assert relative(found.p95_ms) == pytest.approx(relative(found.p50_ms), rel=0.05)


def test_what_the_host_costs_rests_on_no_clock_of_the_card() -> None:
    service, shown, host = loaded(request_ms=200.0)

    found = with_modelled_errors(service, shown, host, LENGTHS, BINS, seed=0)

    low, high = relative(found.p50_ms)
    assert 0.9 < low <= 1 <= high < 1.15
