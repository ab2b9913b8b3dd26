"""The library in processes: what is left at exit, what the environment sets, a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cann_emulator.acl.library import environment, multilayer, run_source, saved
from workbench.cann_emulator.state import processes

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


def test_a_killed_process_leaves_nothing_that_counts(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
