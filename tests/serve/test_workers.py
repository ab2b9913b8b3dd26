"""Which worker gets the next batch; what happens to workers, `test_lifecycle` shows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.prediction.simulation import event_loop
from workbench.serve.workers import least_loaded


def test_the_device_with_the_fewest_batches_gets_the_next() -> None:
    # devices: 0 and 2 on the first, 1 and 3 on the second
    assert least_loaded([2, 3], [0], devices=2) == 1
    assert least_loaded([2, 0], [1, 3], devices=2) == 0


def test_among_equals_the_worker_that_has_been_free_longest_gets_it() -> None:
    assert least_loaded([2, 0, 1], [], devices=1) == 0
    assert least_loaded([3, 2], [0, 1], devices=2) == 0


@settings(deadline=None, max_examples=200)
@given(devices=st.integers(1, 4), each=st.integers(1, 4), data=st.data())
def test_the_model_loads_devices_as_the_service_does(devices: int, each: int, data: st.DataObject) -> None:
    """Batches begin and end at random; after every choice each device of either has as many in flight, by size."""
    workers = devices * each
    free, busy = list(range(workers)), list[int]()
    state, in_flight = np.full(workers, event_loop.FREE), np.zeros(devices, np.int64)
    for _ in range(30):
        if free and (not busy or data.draw(st.booleans())):
            number = free.pop(least_loaded(free, busy, devices))
            busy.append(number)
            modelled = event_loop.free_worker(state, in_flight, workers, devices)
            assert in_flight[modelled % devices] == sum(b % devices == number % devices for b in busy) - 1
            state[modelled] = event_loop.OUT
            in_flight[modelled % devices] += 1
        else:
            ended = busy.pop(data.draw(st.integers(0, len(busy) - 1)))
            here = sum(b % devices == ended % devices for b in busy) + 1
            device = int(np.flatnonzero(in_flight == here)[0])  # one as loaded in the model: devices are alike
            stopped = next(w for w in range(device, workers, devices) if state[w] == event_loop.OUT)
            state[stopped] = event_loop.FREE
            in_flight[device] -= 1
            free.append(ended)
        assert sorted(in_flight) == sorted(sum(b % devices == d for b in busy) for d in range(devices))
