"""Front ends as a resource: what a simulated service with several is limited by."""

from dataclasses import replace

import numpy as np
import pytest

from tests.prediction.fleets import HOST
from tests.prediction.simulation.services import exact
from workbench.prediction.highest_rate import with_front_ends
from workbench.prediction.simulation import simulate
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings

MEASURED = replace(
    HOST, request_ms=0.2, client_ms=0.0, front_end_ms=0.25, passed_row_ms=0.05, capacity=tuple(map(float, range(1, 17)))
)


def rate_per_s(host: HostCosts) -> float:
    """Of a closed loop whose cards answer 40 requests in a millisecond: what limits it is the host."""
    settings, load = ServiceSettings(max_batch_size=32), ServiceLoad(concurrency=400)
    quick = replace(exact(lambda *_: 0.1, batches=(1, 32), threads=0), clock="device")
    one = simulate(quick, settings, load, host, np.zeros(1, dtype=np.int64), (), devices=8, requests=4000, seed=0)
    return one.throughput_per_s


def test_each_front_end_adds_its_own_rate_until_the_process_with_the_queues_is_full() -> None:
    """0.2 ms in one process; 0.25 ms side by side in several, and 0.05 ms where all of them meet."""
    rates = {count: rate_per_s(with_front_ends(MEASURED, count)) for count in (1, 2, 4, 8)}

    assert rates[1] == pytest.approx(5_000, rel=0.03)
    assert rates[2] == pytest.approx(8_000, rel=0.03)
    assert rates[4] == pytest.approx(16_000, rel=0.03)
    assert rates[8] == pytest.approx(20_000, rel=0.03), "1 / 0.05 ms"
    with pytest.raises(ValueError, match="was not measured"):
        with_front_ends(HOST, 2)
