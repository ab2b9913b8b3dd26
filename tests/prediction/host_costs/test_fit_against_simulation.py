"""Measured loads held against their simulation, on runs whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from workbench.prediction.host_costs.fit import LoadedRun, Probe, Rehearsal, unexplained, with_wait, with_waking
from workbench.prediction.simulation import simulate
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings, Unexplained

COSTS = HostCosts(
    request_ms=0.2, batch_ms=0.5, worker_batch_ms=0.15, client_ms=0.05, capacity=(1.0, 1.9), origin="known"
)
PROBE = Probe(call_ms=4.0, lengths=np.array([10, 20, 40]), bins=(16, 32, 64))
CROWD = ServiceSettings(max_batch_size=2, workers=2)


def run_of(
    costs: HostCosts,
    settings: ServiceSettings,
    clients: int,
    *,
    seed: int,
    requests: int = 1500,
    rate_per_s: float | None = None,
) -> LoadedRun:
    """What a load of a service with these costs would have given."""
    curve = PROBE.curve(settings.max_batch_size)
    found = simulate(
        curve,
        settings,
        ServiceLoad(concurrency=clients)
        if rate_per_s is None
        else ServiceLoad(arrivals="poisson", rate_per_s=rate_per_s),
        costs,
        PROBE.lengths,
        PROBE.bins,
        requests=requests,
        seed=seed,
    )
    p50, p99 = np.percentile(found.latency_ms, [50, 99])
    return LoadedRun(
        clients=clients,
        window_s=requests / found.throughput_per_s,
        requests=requests,
        batches=len(found.batch_rows),
        front_s=0.1,
        workers_s=0.1,
        client_s=0.1,
        model_s=PROBE.call_ms * len(found.batch_rows) / 1000,
        p50_ms=float(p50),
        p99_ms=float(p99),
        rate_per_s=rate_per_s,
    )


def crowd(costs: HostCosts) -> Rehearsal:
    return Rehearsal(settings=CROWD, runs=tuple(run_of(costs, CROWD, 16, seed=seed) for seed in (1, 2, 3)))


@pytest.mark.parametrize("wait_ms", [0.0, 1.5, 4.0])
def test_the_wait_is_found_under_which_as_many_requests_are_answered(wait_ms: float) -> None:
    found = with_wait(COSTS, crowd(replace(COSTS, wait_ms=wait_ms)), PROBE)

    assert found.wait_ms == pytest.approx(wait_ms, abs=0.3, rel=0.25)
    assert found.wait_spread < 0.3


def test_loads_as_simulated_leave_nothing_unexplained() -> None:
    alone = ServiceSettings(max_batch_size=16)
    runs = [
        Rehearsal(settings=alone, runs=tuple(run_of(COSTS, alone, clients, seed=seed) for seed in (1, 2, 3)))
        for clients in (1, 3, 32)
    ]

    left = unexplained(COSTS, [*runs, crowd(COSTS)], PROBE)

    assert max(*left.throughput, *left.p50, *left.p99) < 0.02


def test_what_is_slower_than_simulated_widens_the_side_on_which_it_lies() -> None:
    slower = replace(COSTS, batch_ms=COSTS.batch_ms + 1.0)

    left = unexplained(COSTS, [crowd(slower)], PROBE)

    assert left.throughput[0] > 0.03
    assert left.throughput[1] == 0.0
    assert left.p50[1] > 0.03
    assert left.p50[0] == 0.0
    assert Unexplained() == Unexplained(throughput=(0.0, 0.0), p50=(0.0, 0.0), p99=(0.0, 0.0))


def test_what_waking_costs_is_found_from_loads_that_leave_the_service_asleep() -> None:
    truth = replace(COSTS, after_idle=((12.0, 0.6), (46.0, 2.0)))
    alone = ServiceSettings(max_batch_size=16)
    seldom = [
        Rehearsal(settings=alone, runs=tuple(run_of(truth, alone, 0, seed=seed, rate_per_s=rate) for seed in (1, 2, 3)))
        for rate in (60.0, 20.0)
    ]

    found = with_waking(COSTS, seldom, PROBE)

    (short_ms, less_ms), (long_ms, more_ms) = found.after_idle
    assert (short_ms, long_ms) == pytest.approx((12.7, 46.0), abs=0.1)
    assert 0.3 < less_ms < 1.1
    assert 1.0 < more_ms <= 2.1
    assert with_waking(COSTS, [], PROBE).after_idle == ()
