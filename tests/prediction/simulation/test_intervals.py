"""Intervals for a measurement: whether they hold services that are drawn from within the stated spreads."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.prediction.simulation.services import clients, exact, poisson
from workbench.prediction.simulation import figures, for_a_measurement, simulate
from workbench.values.measurement import BatchCurve, Estimate, ServiceFigures
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings

BINS = (16, 64)
LENGTHS = np.arange(4, 60)
CURVE = exact(lambda b, n: 0.5 + 0.02 * b * n, batches=(1, 4, 8), lengths=BINS)
HOST = HostCosts(request_ms=0.2, batch_ms=0.3, client_ms=0.1, capacity=(1.0, 1.6), origin="a test")
TWO_WORKERS = ServiceSettings(max_batch_size=8, batch_timeout_ms=2.0, workers=2)
REQUESTS = 1_500
Z = 1.96


def uncertain(curve: BatchCurve, points: float, speed: float) -> BatchCurve:
    """Args: points, speed: relative standard deviations."""

    def estimate(of: Estimate) -> Estimate:
        return replace(of, low=of.value * math.exp(-Z * points), high=of.value * math.exp(Z * points))

    return replace(curve, points=tuple(replace(p, p50_ms=estimate(p.p50_ms)) for p in curve.points), speed_spread=speed)


def predicted(
    load: ServiceLoad,
    *,
    points: float = 0.0,
    speed: float = 0.0,
    host: HostCosts = HOST,
    requests: int | None = REQUESTS,
    seed: int = 0,
) -> ServiceFigures:
    curve = uncertain(CURVE, points, speed)
    found = figures(simulate(curve, TWO_WORKERS, load, host, LENGTHS, BINS, requests=20_000, seed=seed))
    return for_a_measurement(found, curve, host, LENGTHS, BINS, requests=requests, seed=seed)


@pytest.mark.parametrize("load", [clients(1), clients(40), poisson(250)], ids=str)
def test_a_measurement_of_a_service_within_the_spreads_is_held(load: ServiceLoad) -> None:
    """At least nine in ten of 40 services, each drawn apart from the draws that made the interval."""
    spread = replace(HOST, spread=0.04, capacity_spread=(0.0, 0.06))
    promise = predicted(load, points=0.03, speed=0.02, host=spread)
    generator, held = np.random.default_rng(7), {"throughput": 0, "p50": 0, "p99": 0}
    for number in range(40):
        speed, costs, together, *points = np.exp(
            generator.normal(scale=[0.02, 0.04, 0.06, *[0.03] * len(CURVE.points)]).clip(-0.2, 0.2)
        )
        curve = replace(
            CURVE,
            points=tuple(
                replace(p, quantiles_ms=tuple(q * speed * own for q in p.quantiles_ms))
                for p, own in zip(CURVE.points, points, strict=True)
            ),
        )
        host = replace(
            HOST,
            request_ms=HOST.request_ms * costs,
            batch_ms=HOST.batch_ms * costs,
            client_ms=HOST.client_ms * costs,
            capacity=(1.0, min(2.0, 1.6 * together)),
        )
        found = simulate(curve, TWO_WORKERS, load, host, LENGTHS, BINS, requests=REQUESTS, seed=1000 + number)
        for name, estimate, measured in (
            ("throughput", promise.throughput_per_s, found.throughput_per_s),
            ("p50", promise.p50_ms, float(np.median(found.latency_ms))),
            ("p99", promise.p99_ms, found.p99_ms),
        ):
            held[name] += estimate.low <= measured <= estimate.high

    assert min(held.values()) >= 36, held
