"""Shapes of all functions, a missing context, faults; and the library in processes: what is left at exit, what the
environment sets, a process that is killed (pyacl.md §1, §4)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cann_emulator.acl.library import environment, multilayer, ok, run_source, saved, text
from tests.reference_pages import acl_calls
from workbench.cann_emulator import acl
from workbench.cann_emulator.acl import errors
from workbench.cann_emulator.acl.call import CALLS
from workbench.cann_emulator.state import processes


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


# ---- processes ----

OPEN = "import acl, sys, os\nacl.init(); acl.rt.set_device(0)\n"


LEFT = """
for _ in range(3):
    acl.rt.malloc(8, 0)
acl.rt.create_stream()
"""


def test_leaks_can_be_an_error_at_exit_and_at_finalize(tree: Path) -> None:
    wanted = {"CANN_EMULATOR_LEAKS": "error"}
    left = run_source(OPEN + LEFT + "print('done')", tree, env=wanted)
    assert (left.returncode, left.stdout) == (3, "done\n")
    assert left.stderr == "[emulated acl] left at exit: 1 streams, 3 blocks of device memory\n"
    raised = run_source(OPEN + LEFT + "acl.finalize()", tree, env=wanted)
    assert "LeakedObjects: [emulated acl] left at acl.finalize: 1 streams, 3 blocks of device memory" in raised.stderr
    assert raised.returncode == 3
    cleaned = run_source(OPEN + LEFT + "acl.rt.reset_device(0); acl.finalize()", tree, env=wanted)
    assert "left to acl.rt.reset_device: " in cleaned.stderr
    assert run_source(OPEN + LEFT, tree).stderr == ""


def test_faults_devices_memory_and_strictness_come_from_the_environment(tree: Path) -> None:
    source = OPEN + "print(acl.rt.get_device_count()[0], acl.rt.get_mem_info(1)[1] >> 20, acl.rt.malloc(8, 0)[1])\n"
    wanted = {
        **{"CANN_EMULATOR_DEVICES": "2", "CANN_EMULATOR_HBM_MB": "1024"},
        "CANN_EMULATOR_FAULTS": "acl.rt.malloc:1=207001",
    }
    assert run_source(source, tree, env=wanted).stdout == f"2 {1024 - round(1024 * 3358 / 65536)} 207001\n"
    wrong = run_source("import acl", tree, env={"CANN_EMULATOR_FAULTS": "malloc"})
    assert wrong.returncode == 1
    assert "NAME:N=CODE" in wrong.stderr
    raised = run_source(OPEN + "acl.rt.free(4096)", tree, env={"CANN_EMULATOR_STRICT": "1"})
    assert "NotEstablished" in raised.stderr


def test_a_killed_process_leaves_nothing_behind(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 in the middle of executions; the next process starts clean."""
    monkeypatch.setenv("CANN_EMULATOR_STATE", str(tmp_path))
    path = saved(multilayer(), tmp_path)
    source = (
        OPEN
        + f"""
from tests.cann_emulator.acl.library import opened
model = opened({path!r})
print('running', flush=True)
while model.run() == 0: pass
"""
    )
    with subprocess.Popen(
        [sys.executable, "-c", source],
        env=environment(tree, {"CANN_EMULATOR_STATE": str(tmp_path)}),
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "running\n"
        time.sleep(0.2)
        os.kill(program.pid, signal.SIGKILL)
        program.wait(300)
    assert processes() == ()
    again = run_source(source.replace("while model.run() == 0: pass", "print(model.run())"), tree)
    assert again.stdout == "running\n0\n"
