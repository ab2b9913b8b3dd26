"""Which calls keep the interpreter's lock: the vendor's binding gives it up in few of them (pyacl.md §3.4)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.cann_emulator.acl.library import Loaded, ok, opened, saved, taken
from tests.cann_emulator.handmade import mlp, offline_model
from workbench.cann_emulator import acl

X = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)


@pytest.fixture
def model(device: int, tmp_path: Path) -> Loaded:
    """One that computes for some milliseconds."""
    loaded = opened(saved(offline_model(mlp(256, 1024, 256, batch=64), dtype="float32"), tmp_path))
    loaded.put(X)
    return loaded


@pytest.fixture
def others() -> Iterator[Callable[[Callable[[], int]], int]]:
    """How many turns another thread of Python has during a call.

    The interpreter takes the lock from nobody meanwhile, so that a turn means that the call gave it up.
    """
    turns, ends, before = [0], threading.Event(), sys.getswitchinterval()

    def count() -> None:
        while not ends.is_set():
            turns[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()

    def during(call: Callable[[], int]) -> int:
        sys.setswitchinterval(100)
        time.sleep(0.02)  # the other thread waits for the lock with the new interval from here on
        began = turns[0]
        ok(call())
        had = turns[0] - began
        sys.setswitchinterval(before)
        return had

    yield during
    sys.setswitchinterval(before)
    ends.set()
    thread.join()


def test_execute_keeps_the_lock(model: Loaded, others: Callable[[Callable[[], int]], int]) -> None:
    ok(model.run())  # building what the first one needs is no work of the device
    assert [others(model.run) for _ in range(3)] == [0, 0, 0]
    config = acl.mdl.create_exec_config_handle()
    assert others(partial(acl.mdl.execute_v2, model.id, model.input_dataset, model.output_dataset, 0, config)) == 0


@pytest.mark.parametrize("wait", ["stream", "stream_with_timeout", "event", "event_with_timeout", "device"])
def test_launching_keeps_the_lock_and_waiting_gives_it_up(
    model: Loaded, others: Callable[[Callable[[], int]], int], wait: str
) -> None:
    stream, event = taken(acl.rt.create_stream()), taken(acl.rt.create_event())
    handle = {"stream": [stream], "event": [event], "device": []}[wait.partition("_")[0]]
    arguments = [*handle, -1] if wait.endswith("timeout") else handle
    launch = partial(acl.mdl.execute_async, model.id, model.input_dataset, model.output_dataset, stream)
    waiting = partial(getattr(acl.rt, f"synchronize_{wait}"), *arguments)
    ok(launch())  # the first one computes how long the device will need
    for _ in range(100):
        assert others(launch) == 0
        ok(acl.rt.record_event(event, stream))
        if others(waiting) > 0:
            return
    pytest.fail("no other thread had a turn in a hundred waits")


def test_waiting_for_reports_gives_the_lock_up(device: int, others: Callable[[Callable[[], int]], int]) -> None:
    stream = taken(acl.rt.create_stream())
    ok(acl.rt.subscribe_report(threading.get_ident(), stream))

    def wait() -> int:
        assert acl.rt.process_report(20) == 507012
        return 0

    assert any(others(wait) > 0 for _ in range(100))
    ok(acl.rt.unsubscribe_report(threading.get_ident(), stream))  # a later test asks in this very thread


def test_both_ways_to_run_give_the_same_bits(model: Loaded, tmp_path: Path) -> None:
    ok(model.run())
    held = model.get(0, np.float32, (64, 256))
    again = opened(str(tmp_path / "model.om"))
    again.put(X)
    ok(acl.mdl.execute_async(again.id, again.input_dataset, again.output_dataset, 0))
    ok(acl.rt.synchronize_stream(0))
    np.testing.assert_array_equal(again.get(0, np.float32, (64, 256)), held)
