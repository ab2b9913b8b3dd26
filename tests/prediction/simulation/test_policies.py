"""Which requests share a batch, and when it starts: examples worked out by hand, and a plain second account of it."""

from typing import Any

import numpy as np
import pytest

from tests.prediction.simulation.services import NO_LENGTHS, NOTHING, clients, exact, served, trace_ms
from workbench.prediction.simulation import Simulated
from workbench.values.measurement import BatchCurve
from workbench.values.service import HostCosts


def latencies(simulated: Simulated) -> list[float]:
    """In the order of answers."""
    return [round(float(value), 6) for value in simulated.latency_ms]


def host(request_ms: float, *capacity: float, **costs: float) -> HostCosts:
    return HostCosts(request_ms=request_ms, capacity=capacity or (1.0,), origin="assumed in a test", **costs)


FIVE, ALONE, FOUR = exact(lambda *_: 5.0, batches=(1, 8)), exact(lambda *_: 5.0), {"max_batch_size": 4}
SHARED = exact(lambda *_: 5.0, threads=0)
TWO = {"workers": 2}
BY_HAND: list[tuple[str, BatchCurve, tuple[float, ...], dict[str, Any], list[int] | None, list[float]]] = [
    ("at 0 one alone; at 5 the three that came meanwhile", FIVE, (0, 1, 2, 3), FOUR, [1, 3], [5, 9, 8, 7]),
    (
        "0 and 1 leave at 4, the timeout; 6 waits until 10, when the worker is free already",
        *(FIVE, (0, 1, 6), FOUR | {"batch_timeout_ms": 4.0}, [2, 1], [9, 8, 9]),
    ),
    (
        "a full batch does not wait",
        *(FIVE, (0, 1, 2), {"max_batch_size": 2, "batch_timeout_ms": 50.0}, [2, 1], [6, 5, 55]),
    ),
    ("two workers share a device", SHARED, (0, 0), TWO, None, [10, 10]),
    ("batches go to different devices", SHARED, (0, 0), TWO | {"devices": 2}, None, [5, 5]),
    (
        "two workers' own work shares the one processor: both are in at 2, done at 10, answered at 11 and 12",
        *(exact(lambda *_: 0.0, threads=0), (0, 0), TWO | {"host": host(2.0, worker_batch_ms=4.0)}, None, [11, 12]),
    ),
    (
        "the front end takes in all that waits before it looks for a batch: all are in at 3",
        *(FIVE, (0, 0.5, 0.5), FOUR | {"host": host(2.0, 1.0, 2.0)}, [3], [9, 9.5, 10.5]),
    ),
    (
        "the timeout counts from the moment a request is read",
        *(FIVE, (0,), FOUR | {"batch_timeout_ms": 3.0, "host": host(4.0, 1.0, 2.0)}, None, [3 + 5 + 2]),
    ),
    (
        "the next batch leaves before the last one's answers: B is called at 9, when A is back, answered at 11",
        *(ALONE, (0, 0), {"host": host(4.0, 1.0, 2.0)}, None, [11, 16]),
    ),
    (
        "the timer counts whole milliseconds: 2.3 are 3, of the second too, which arrives at 8.5",
        *(exact(lambda *_: 1.0, batches=(1, 4)), (0, 8.5), FOUR | {"batch_timeout_ms": 2.3}, None, [4, 4]),
    ),
    # Rates are 1, 0.6, 0.4 for 1, 2, 3 busy threads, and a call is 10 ms * 0.6 of work. A is taken in from 0 to 1 and
    # called from 1. B comes at 5, when 2.4 of the call's 6 are done; taking it in costs 1 / 0.4 = 2.5 ms. Of the call
    # 2.6 are left at 7.5, which take until 11.8333. Then B is called, and beside it A's answer is written for 2.5 ms,
    # until 14.3333. Of B's call 5 are left, which take until 22.6667; 1 ms for its answer.
    (
        "the front end shares the processors with a call of two threads",
        *(exact(lambda *_: 10.0, threads=2), (0, 5), {"host": host(2.0, 1.0, 1.2)}, None, [14 + 1 / 3, 18 + 2 / 3]),
    ),
    # On one processor: A is in at 8, the worker's own work ends at 9, the device has it until 19. The front end takes B
    # in meanwhile, from 9 to 17, and that slows nothing. B goes to the worker at 19, before A is answered: its own work
    # shares the processor until 21, the device has it until 31. A is answered at 28, B at 39.
    (
        "a device leaves the processors to the others",
        *(exact(lambda *_: 10.0, threads=0), (0, 9), {"host": host(16.0, worker_batch_ms=1.0)}, None, [28, 30]),
    ),
]


def test_examples_worked_out_by_hand() -> None:
    for why, curve, arrivals, asked, rows, expected in BY_HAND:
        simulated = served(curve, trace_ms(*arrivals), **asked)
        assert latencies(simulated) == pytest.approx(expected, abs=1e-5), why
        assert rows is None or simulated.batch_rows.tolist() == rows, why


def test_padding_counts_the_rows_of_a_compiled_batch_and_what_is_cut_has_none() -> None:
    """3 rows of 8 tokens in a compiled 4 x 16; a request longer than every bin is cut; what is no sequence has none."""
    curve = exact(lambda *_: 1.0, batches=(4,), lengths=(16,), stepped=True)
    asked = {"bins": (16,), "max_batch_size": 4, "batch_timeout_ms": 1.0}

    simulated = served(curve, trace_ms(0, 0, 0), lengths=np.array([8]), **asked)

    assert simulated.padding_share == pytest.approx(1 - 24 / 64)
    long = served(exact(lambda *_: 1.0, lengths=(16,)), clients(1), lengths=np.array([500]), bins=(16,), requests=10)
    assert long.padding_share == 0
    plain = served(exact(lambda *_: 1.0), clients(3), lengths=NO_LENGTHS, host=NOTHING, requests=100)
    assert (plain.throughput_per_s, plain.padding_share) == (pytest.approx(1000), 0)
