"""A pipeline's simulated service keeps the laws that any closed network of queues keeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.prediction.tandem import Tandem, TandemStage, simulate_tandem
from workbench.values.measurement import BatchCurve, CurvePoint
from workbench.values.service import HostCosts, ServiceSettings


def stage_of(
    name: str,
    call_ms: float,
    *,
    takes: tuple[str, ...] = (),
    items: int = 1,
    rounds: int = 1,
    glue_ms: float = 0.0,
    **more: int,
) -> TandemStage:
    threads = more.pop("threads", 1)
    points = tuple(CurvePoint.exact(batch, 0, call_ms * (0.5 + batch / 2)) for batch in (1, 4))
    return TandemStage(
        name=name,
        takes=takes,
        rounds=[[[0] * items] * rounds] * 8,
        weights=[1.0],
        glue_ms=[glue_ms] * 8,
        curve=BatchCurve(points=points, stepped=False, threads=threads, clock="host"),
        settings=ServiceSettings(**more),
    )


def served(*stages: TandemStage, capacity: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0), clients: int = 1) -> Tandem:
    host = HostCosts(request_ms=0.0, capacity=capacity, origin="test")
    return simulate_tandem(stages, [0.0] * 8, host, concurrency=clients, requests=200)


def test_one_client_waits_for_every_stage_and_its_glue() -> None:
    found = served(stage_of("a", 3.0, glue_ms=2.0), stage_of("b", 4.0, takes=("a",)))

    assert np.allclose(found.latency_ms, 9.0)
    assert found.throughput_per_s == pytest.approx(1000 / 9)


def test_stages_that_take_from_the_request_alone_run_side_by_side() -> None:
    found = served(stage_of("a", 3.0), stage_of("b", 4.0), stage_of("c", 1.0, takes=("a", "b")))

    assert np.allclose(found.latency_ms, 5.0)


def test_the_slowest_stage_limits_many_clients_where_processors_do_not() -> None:
    found = served(stage_of("a", 1.0), stage_of("b", 5.0, takes=("a",)), clients=6)

    assert found.throughput_per_s == pytest.approx(200, rel=0.02)
    assert found.busy["b"] == pytest.approx(1.0, abs=0.05)


def test_one_processor_is_shared_by_all_stages() -> None:
    found = served(stage_of("a", 2.0), stage_of("b", 3.0, takes=("a",)), capacity=(1.0, 1.0), clients=4)

    assert found.throughput_per_s == pytest.approx(1000 / 5, rel=0.02)


def test_items_of_one_request_share_batches() -> None:
    alone = served(stage_of("a", 2.0, items=4, max_batch_size=1))
    together = served(stage_of("a", 2.0, items=4, max_batch_size=4))

    assert together.mean_batch["a"] == 4
    assert np.allclose(alone.latency_ms, 8.0)
    assert np.allclose(together.latency_ms, 5.0)  # 2 ms * (0.5 + 4 / 2)


def test_a_stage_without_items_costs_nothing() -> None:
    assert np.allclose(served(stage_of("a", 3.0), stage_of("b", 9.0, takes=("a",), items=0)).latency_ms, 3.0)


def test_rounds_of_a_stage_follow_each_other() -> None:
    assert np.allclose(served(stage_of("a", 3.0, rounds=4, glue_ms=2.0)).latency_ms, 4 * 3.0 + 2.0)


@settings(max_examples=25, deadline=None)
@given(
    calls=st.lists(st.floats(0.1, 10), min_size=1, max_size=3),
    clients=st.integers(1, 8),
    workers=st.integers(1, 3),
    batch=st.sampled_from([1, 4]),
)
def test_clients_are_throughput_times_latency(calls: list[float], clients: int, workers: int, batch: int) -> None:
    """Little's law, whatever the stages; and no more is answered than processors can compute."""
    stages = [
        stage_of(str(n), ms, takes=(str(n - 1),) if n else (), workers=workers, max_batch_size=batch)
        for n, ms in enumerate(calls)
    ]
    found = served(*stages, capacity=(1.0, 1.7), clients=clients)

    assert found.throughput_per_s * found.latency_ms.mean() / 1000 == pytest.approx(clients, rel=0.15)
    least_ms = sum(ms * (1.0 if batch == 1 else 2.5 / 4) for ms in calls)
    assert found.throughput_per_s <= 1.75 * 1000 / least_ms * 1.1
