"""Simulated services against what queueing theory says of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.prediction.simulation.services import clients, exact, exponential, poisson, served
from workbench.values.measurement import BatchCurve
from workbench.values.service import HostCosts

MANY = 400_000


def test_two_workers_wait_as_erlang_says() -> None:
    rate, servers = 1.4, 2
    waits = rate**2 / 2 / (1 - rate / servers)
    wait_ms = waits / (1 + rate + waits) / (servers - rate)

    simulated = served(exponential(1.0), poisson(1000 * rate), workers=servers, requests=MANY)

    assert simulated.latency_ms.mean() == pytest.approx(1 + wait_ms, rel=0.03)
    assert simulated.worker_busy == pytest.approx(rate / servers, rel=0.02)


def test_calls_that_share_a_device_take_together_what_one_takes_alone() -> None:
    """M/M/1 with processor sharing: as long as anything runs, work is done at one rate."""
    rate = 0.6
    curve = exponential(1.0)
    shared = served(_on_device(curve), poisson(1000 * rate), workers=4, requests=MANY)

    assert shared.latency_ms.mean() == pytest.approx(1 / (1 - rate), rel=0.03)


def test_a_lone_client_waits_for_the_sum_of_all_parts() -> None:
    host = HostCosts(
        request_ms=0.5,
        batch_ms=0.25,
        worker_batch_ms=0.125,
        worker_row_ms=0.0625,
        client_ms=1.0,
        transport_ms=2.0,
        network_ms=4.0,
        origin="assumed in a test",
    )
    parts_ms = 0.5 + 0.25 + 0.125 + 0.0625 + 1 + 2 + 4 + 10

    simulated = served(exact(lambda *_: 10.0), clients(1), host=host, requests=500)

    assert simulated.latency_ms == pytest.approx(parts_ms)
    assert simulated.throughput_per_s == pytest.approx(1000 / parts_ms)
    assert simulated.front_end_busy == pytest.approx(0.75 / parts_ms)
    assert simulated.worker_busy == pytest.approx(10.1875 / parts_ms)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("timeout_ms", [0.0, 5.0])
def test_clients_do_not_stay_in_step_for_ever_because_they_began_together(timeout_ms: float, seed: int) -> None:
    """Sixteen that begin at one moment would always make one batch of sixteen; of others half wait while half are run.

    A batch is 20 ms on its device, and the other half is there before it is back: 8 answers every 20 ms.
    """
    host = HostCosts(request_ms=0.2, capacity=(1.0, 2.0, 3.0), origin="assumed in a test")
    curve = _on_device(exact(lambda *_: 20.0, batches=(1, 16)))

    simulated = served(
        curve, clients(16), max_batch_size=16, batch_timeout_ms=timeout_ms, host=host, requests=4000, seed=seed
    )

    assert simulated.batch_rows.mean() == pytest.approx(8, rel=0.01)
    assert simulated.throughput_per_s == pytest.approx(400, rel=0.01)


services = st.fixed_dictionaries(
    {
        "max_batch_size": st.sampled_from([1, 2, 4, 8]),
        "batch_timeout_ms": st.sampled_from([1.0, 3.0, 10.0]),
        "workers": st.integers(1, 3),
        "host": st.builds(
            lambda parts, capacity: HostCosts(
                request_ms=parts[0],
                batch_ms=parts[1],
                worker_batch_ms=parts[2],
                client_ms=parts[3],
                transport_ms=parts[4],
                network_ms=parts[5],
                capacity=capacity,
                origin="drawn in a test",
            ),
            st.tuples(*[st.sampled_from([0.0, 0.1, 0.5])] * 6),
            st.sampled_from([(1.0,), (1.0, 1.2), (1.0, 2.0, 3.0, 4.0)]),
        ),
        "lengths": st.lists(st.integers(1, 64), min_size=1, max_size=20).map(np.array),
        "bins": st.sampled_from([(64,), (16, 32, 64)]),
        "seed": st.integers(0, 2**32),
    }
)
CURVE = exact(lambda batch, length: 0.3 + 0.01 * batch * length, batches=(1, 4, 8), lengths=(16, 32, 64))
THREADED = exact(lambda batch, length: 0.3 + 0.01 * batch * length, batches=(8,), lengths=(64,), threads=2)


@settings(deadline=None, max_examples=60)
@given(service=services, count=st.integers(1, 60), curve=st.sampled_from([CURVE, THREADED]))
def test_clients_are_throughput_times_latency(service: dict, count: int, curve: object) -> None:
    """Little's law: in a closed loop every client always waits for one answer."""
    simulated = served(curve, clients(count), requests=6000, **service)

    assert simulated.throughput_per_s * simulated.latency_ms.mean() / 1000 == pytest.approx(count, rel=0.03)


def _on_device(curve: BatchCurve) -> BatchCurve:
    return replace(curve, threads=0)
