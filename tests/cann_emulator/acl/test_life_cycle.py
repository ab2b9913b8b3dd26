"""Shapes of all functions, a missing context, faults (pyacl.md §1, §4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cann_emulator.acl.library import ok, taken, text
from tests.reference_pages import acl_calls
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import errors
from workbench.cann_emulator.acl.call import CALLS


def test_without_a_context_in_the_thread_it_is_107002() -> None:
    ok(acl.init())
    codes = [
        *(acl.rt.malloc(8, 0)[1], acl.rt.malloc_host(8)[1], acl.rt.memcpy(4096, 8, 8192, 8, 0)),
        *(acl.rt.memset(4096, 8, 0, 8), acl.rt.create_stream()[1], acl.rt.create_event()[1]),
        *(acl.rt.synchronize_stream(0), acl.rt.synchronize_device(), acl.rt.get_device()[1], acl.rt.get_mem_info(1)[2]),
    ]
    assert set(codes) == {107002}


DOCUMENTED = acl_calls()
NOT_EMULATED = {
    "rt.get_device_utilization_rate",
    *("mdl.execute_v2", "create_tensor_desc", "get_tensor_desc_size", "mdl.set_dataset_tensor_desc"),
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
