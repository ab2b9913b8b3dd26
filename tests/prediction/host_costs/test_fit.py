"""Costs from runs whose truth is known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.prediction.host_costs.fit import LoadedRun, fit_costs
from workbench.values.service import HostCosts

TRUTH = HostCosts(
    request_ms=0.3,
    batch_ms=0.2,
    worker_batch_ms=0.15,
    worker_row_ms=0.02,
    client_ms=0.1,
    transport_ms=0.25,
    capacity=(1.0, 1.5),
    origin="known",
)
MODEL_MS = 0.05


def run_of(costs: HostCosts, clients: int, requests: int, batches: int, *, window_s: float, speed: float) -> LoadedRun:
    """The seconds that known costs take when every second does `speed` of the work."""
    front_ms = requests * costs.request_ms + batches * costs.batch_ms
    worker_ms = batches * costs.worker_batch_ms + requests * costs.worker_row_ms
    model_s = batches * MODEL_MS / 1000 / speed
    each_ms = costs.request_ms + costs.batch_ms + costs.worker_batch_ms + costs.worker_row_ms + costs.client_ms
    return LoadedRun(
        clients=clients,
        window_s=window_s,
        requests=requests,
        batches=batches,
        front_s=front_ms / 1000 / speed,
        workers_s=worker_ms / 1000 / speed + model_s,
        client_s=requests * costs.client_ms / 1000 / speed,
        model_s=model_s,
        p50_ms=each_ms + MODEL_MS + costs.transport_ms,
        p99_ms=2 * (each_ms + MODEL_MS + costs.transport_ms),
    )


def same(found: HostCosts, truth: HostCosts) -> None:
    for name in ("request_ms", "batch_ms", "worker_batch_ms", "worker_row_ms", "client_ms", "transport_ms"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-6, abs=1e-9), name


@settings(deadline=None)
@given(st.lists(st.floats(min_value=0.01, max_value=2.0), min_size=6, max_size=6))
def test_any_costs_are_found(costs: list[float]) -> None:
    names = ("request_ms", "batch_ms", "worker_batch_ms", "worker_row_ms", "client_ms", "transport_ms")
    truth = HostCosts(**dict(zip(names, costs, strict=True)), origin="known")
    runs = [
        run_of(truth, 1, 1000, 1000, window_s=20.0, speed=1.0),
        run_of(truth, 8, 2000, 900, window_s=100.0, speed=1.0),
        run_of(truth, 64, 4000, 400, window_s=100.0, speed=1.0),
    ]

    same(fit_costs(runs, truth.capacity, "known"), truth)


def test_seconds_that_passed_slowly_are_counted_as_the_work_they_did() -> None:
    slow = run_of(TRUTH, 32, 4000, 500, window_s=10.0, speed=0.75)
    busy_s = slow.front_s + slow.workers_s + slow.client_s
    both_busy = run_of(TRUTH, 32, 4000, 500, window_s=busy_s / 2, speed=0.75)  # 2 of 2 processors, 1.5 / 2 each

    found = fit_costs([run_of(TRUTH, 1, 1000, 1000, window_s=1.2, speed=1.0), both_busy], TRUTH.capacity, "known")

    same(found, TRUTH)
    assert (found.capacity, found.origin, found.network_ms) == ((1.0, 1.5), "known", 0.0)


def test_waiting_is_never_negative() -> None:
    runs = [run_of(TRUTH, 1, 1000, 1000, window_s=1.2, speed=1.0), run_of(TRUTH, 8, 1000, 200, window_s=9, speed=1)]
    hasty = LoadedRun(**{name: getattr(runs[0], name) for name in LoadedRun.__slots__} | {"p50_ms": 0.1})

    assert fit_costs([hasty, runs[1]], (1.0,), "known").transport_ms == 0.0
    with pytest.raises(ValueError, match="single client"):
        fit_costs([runs[1], runs[1]], (1.0,), "known")
