"""Costs from runs whose truth is known."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.prediction.host_costs.measure import LoadedRun, fit_costs
from workbench.values.service import HostCosts

NAMES = ("request_ms", "batch_ms", "batch_after_ms", "worker_batch_ms", "worker_row_ms", "client_ms", "transport_ms")
MODEL_MS = 0.05


def run_of(costs: HostCosts, requests: int, batches: int) -> LoadedRun:
    """The seconds that known costs take."""
    each_ms = (
        costs.request_ms
        + costs.batch_ms
        + costs.batch_after_ms
        + costs.worker_batch_ms
        + costs.worker_row_ms
        + costs.client_ms
    )
    worker_ms = batches * (costs.worker_batch_ms + MODEL_MS) + requests * costs.worker_row_ms
    return LoadedRun(
        wall_s=(worker_ms + batches * (costs.batch_ms + costs.transport_ms)) / 1000,
        requests=requests,
        batches=batches,
        front_s=(requests * costs.request_ms + batches * (costs.batch_ms + costs.batch_after_ms)) / 1000,
        workers_s=(batches * costs.worker_batch_ms + requests * costs.worker_row_ms) / 1000,
        client_s=requests * costs.client_ms / 1000,
        model_s=batches * MODEL_MS / 1000,
        p50_ms=each_ms + MODEL_MS + costs.transport_ms,
    )


@settings(deadline=None)
@given(st.lists(st.floats(min_value=0.01, max_value=2.0), min_size=7, max_size=7))
def test_any_costs_are_found_and_waiting_is_never_negative(costs: list[float]) -> None:
    truth = HostCosts(**dict(zip(NAMES, costs, strict=True)), origin="known")
    runs = [run_of(truth, 1000, 1000), run_of(truth, 2000, 900), run_of(truth, 4000, 400)]

    found = fit_costs(runs, capacity=(1.0, 2.0), origin="known")

    for name in NAMES:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=1e-6, abs=1e-9), name
    assert (found.capacity, found.origin, found.network_ms) == ((1.0, 2.0), "known", 0.0)
    hasty = replace(runs[0], p50_ms=0.01)
    assert fit_costs([hasty, *runs[1:]], capacity=(1.0,), origin="known").transport_ms == 0.0
