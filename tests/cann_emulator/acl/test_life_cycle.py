"""Shapes of all functions, init, contexts, threads, faults, every order of undoing (pyacl.md §1, §3.1, §4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cann_emulator.acl.library import multilayer, ok, opened, saved, taken, text
from tests.reference_pages import acl_calls
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import errors
from workbench.cann_emulator.acl.call import CALLS


def test_a_second_init_returns_100002_and_does_no_harm() -> None:
    """pyacl.md §2.5, init and finalize."""
    ok(acl.init())
    assert acl.init() == 100002
    ok(acl.rt.set_device(0))
    assert acl.finalize_reference() == (1, 0)
    assert acl.finalize_reference() == (0, 0)
    assert acl.finalize_reference() == (0, 100037)
    ok(acl.init())
    acl.init()
    ok(acl.finalize())  # whatever the count is
    assert acl.finalize() == 100037


def test_without_a_context_in_the_thread_it_is_107002() -> None:
    ok(acl.init())
    codes = [
        *(acl.rt.malloc(8, 0)[1], acl.rt.malloc_host(8)[1], acl.rt.memcpy(4096, 8, 8192, 8, 0)),
        *(acl.rt.memset(4096, 8, 0, 8), acl.rt.create_stream()[1], acl.rt.create_event()[1]),
        *(acl.rt.synchronize_stream(0), acl.rt.synchronize_device(), acl.rt.get_device()[1], acl.rt.get_mem_info(1)[2]),
    ]
    assert set(codes) == {107002}


def test_the_current_context_is_per_thread_and_a_new_thread_has_none(device: int) -> None:
    """pyacl.md §3.4, §4 row 25."""
    context, ret = acl.rt.get_context()
    ok(ret)
    seen: list[object] = []

    def worker() -> None:
        seen.append(acl.rt.malloc(8, 0)[1])
        seen.append(acl.rt.set_context(context))
        pointer, ret = acl.rt.malloc(8, 0)
        seen.append(ret)
        seen.append(acl.rt.free(pointer))

    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()
    assert seen == [107002, 0, 0, 0]


UNDO_ORDERS = {
    "reverse": "buffers datasets memory desc unload stream context reset finalize",
    "unload first": "unload desc buffers datasets memory stream context reset finalize",
    "reset with everything there": "reset finalize",
    "context after finalize": "unload desc memory buffers datasets reset finalize context",
    "memory behind its context": "unload desc buffers datasets stream context memory reset finalize",
}


@pytest.mark.parametrize("order", UNDO_ORDERS.values(), ids=UNDO_ORDERS.keys())
def test_every_order_of_undoing_that_programs_use_works(device: int, order: str, tmp_path: Path) -> None:
    """pyacl.md §3.1 "Orders that occur in published programs and must work"."""
    context = taken(acl.rt.create_context(0))
    stream = taken(acl.rt.create_stream())
    model = opened(saved(multilayer(), tmp_path))
    model.put(np.ones((5, 16), np.float32))
    ok(model.run())
    buffers = [acl.mdl.get_dataset_buffer(d, 0) for d in (model.input_dataset, model.output_dataset)]
    memory = [pointer for pointer, _ in (*model.inputs, *model.outputs)]
    steps: dict[str, Callable[[], list[int]]] = {
        "buffers": lambda: [acl.destroy_data_buffer(b) for b in buffers],
        "datasets": lambda: [acl.mdl.destroy_dataset(d) for d in (model.input_dataset, model.output_dataset)],
        "memory": lambda: [acl.rt.free(p) for p in memory],
        "desc": lambda: [acl.mdl.destroy_desc(model.desc)],
        "unload": lambda: [acl.mdl.unload(model.id)],
        "stream": lambda: [acl.rt.destroy_stream(stream)],
        "context": lambda: [acl.rt.destroy_context(context)],
        "reset": lambda: [acl.rt.reset_device(0)],
        "finalize": lambda: [acl.finalize()],
    }
    for step in order.split():
        late = step == "context" and "finalize context" in order
        results = steps[step]()
        assert all(ret == (107002 if late else 0) for ret in results), (step, results)


DOCUMENTED = acl_calls()
NOT_EMULATED = {
    "rt.get_device_utilization_rate",
    "mdl.execute_v2",
    *(f"prof.{n}" for n in ("init", "create_config", "start", "stop", "destroy_config", "finalize")),
    *(f"mdl.{n}_dump" for n in ("init", "set", "finalize")),
}


def function(name: str) -> Callable[..., Any]:
    found: Any = acl
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
    return found  # type: ignore[no-any-return]  # looked up by name


def test_each_documented_function_is_there_with_its_shape() -> None:
    assert len(DOCUMENTED) > 70
    for name, values in DOCUMENTED.items():
        if name not in NOT_EMULATED:
            gives = CALLS[f"acl.{name}"][1]
            assert function(name).__wrapped__  # type: ignore[attr-defined]  # set by `call`
            assert len(gives.replace("n", "")) == values, name
    assert not [name for name in NOT_EMULATED if f"acl.{name}" in CALLS]


SAMPLES: dict[str, Any] = {"k": 0, "K": 0, "i": 0, "I": 0, "s": "x", "O": b"", "d": 0.0}


def test_each_function_gives_its_shape_when_it_fails_on_request(device: int) -> None:
    """So that a program sees the same kind of result whatever goes wrong."""
    for name, (takes, gives) in CALLS.items():
        errors.arm(f"{name}:1=507011")
        result = function(name.removeprefix("acl."))(*(SAMPLES[kind] for kind in takes.replace("|", "")))
        if "r" not in gives:
            assert result in (0, None, 0.0, (0, []), []), name
        elif gives == "r":
            assert result == 507011, name
        else:
            assert isinstance(result, tuple)
            assert (len(result), result[-1]) == (len(gives), 507011), name


# ---- faults ----


def test_the_nth_call_of_a_name_fails_with_the_code(device: int) -> None:
    errors.arm("acl.rt.malloc:2=207001; acl.rt.create_stream:1+=207008")
    assert [acl.rt.malloc(8, 0)[1] for _ in range(3)] == [0, 207001, 0]
    assert [acl.rt.create_stream()[1] for _ in range(3)] == [207008] * 3
    assert "on request" in text()


def test_a_lost_device_fails_every_later_call_that_needs_it(device: int) -> None:
    pointer = taken(acl.rt.malloc(8, 0))
    errors.arm("acl.rt.memset:1=lost")
    assert acl.rt.malloc(8, 0)[1] == 0
    assert acl.rt.memset(pointer, 8, 0, 8) == 507899
    assert acl.rt.malloc(8, 0) == (0, 507899)
    assert acl.rt.synchronize_stream(0) == 507899
    assert acl.rt.reset_device(0) == 507899
    assert "EL0001" in text()
    assert acl.mdl.create_desc() != 0
    ok(acl.destroy_data_buffer(acl.create_data_buffer(0, 0)))
