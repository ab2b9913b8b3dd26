"""Which worker gets the next batch; what happens to workers, `test_lifecycle` shows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.prediction.simulation import event_loop
from workbench.prediction.simulation.state import FREE, OUT, Device, Setup, Worker, World
from workbench.serve.workers import least_loaded


def test_the_device_with_the_fewest_batches_gets_the_next_and_there_who_is_free_longest() -> None:
    # two devices: 0 and 2 on the first, 1 and 3 on the second
    for free, busy, devices, place in (([2, 3], [0], 2, 1), ([2, 0], [1, 3], 2, 0), ([2, 0, 1], [], 1, 0)):
        assert least_loaded(free, busy, devices) == place


@settings(deadline=None, max_examples=200)
@given(devices=st.integers(1, 4), each=st.integers(1, 4), data=st.data())
def test_the_model_loads_devices_as_the_service_does(devices: int, each: int, data: st.DataObject) -> None:
    """Batches begin and end at random; after every choice each device of either has as many in flight, by size."""
    workers = devices * each
    free, busy = list(range(workers)), list[int]()
    setup = Setup(*[0] * len(Setup._fields))._replace(workers=workers, devices=devices)
    state, loads = [Worker() for _ in range(workers)], [Device() for _ in range(devices)]
    world = World(*[[]] * len(World._fields))._replace(setup=setup, workers=state, devices=loads)
    # machine code takes tables; interpreted it takes objects too
    choose = event_loop.free_worker.py_func  # type: ignore[attr-defined]  # of numba
    for _ in range(30):
        if free and (not busy or data.draw(st.booleans())):
            number = free.pop(least_loaded(free, busy, devices))
            busy.append(number)
            modelled = choose(world)
            assert loads[modelled % devices].in_flight == sum(b % devices == number % devices for b in busy) - 1
            state[modelled].state = OUT
            loads[modelled % devices].in_flight += 1
        else:
            ended = busy.pop(data.draw(st.integers(0, len(busy) - 1)))
            here = sum(b % devices == ended % devices for b in busy) + 1
            # one as loaded in the model: devices are alike
            device = next(number for number, load in enumerate(loads) if load.in_flight == here)
            stopped = next(w for w in range(device, workers, devices) if state[w].state == OUT)
            state[stopped].state = FREE
            loads[device].in_flight -= 1
            free.append(ended)
        assert sorted(load.in_flight for load in loads) == sorted(
            sum(b % devices == d for b in busy) for d in range(devices)
        )
