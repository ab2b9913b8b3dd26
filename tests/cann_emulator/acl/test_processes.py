"""The library in processes of its own: import by the vendor's name, exit, fork, state for npu-smi, environment."""

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


def test_what_is_left_is_told_in_one_line(tree: Path, tmp_path: Path) -> None:
    program = tmp_path / "forgetful.py"
    program.write_text(
        "import acl\nacl.init()\nacl.rt.set_device(0)\n"
        "for _ in range(3):\n    acl.rt.malloc(8, 0)\nacl.rt.create_stream()\n"
        f"acl.mdl.load_from_file({saved(multilayer(), tmp_path)!r})\nprint('done')\n"
    )
    command = [sys.executable, str(program)]
    done = subprocess.run(command, env=environment(tree), capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("[emulated acl] left at exit: ")
    for what in ("3 blocks of device memory", "1 streams", "1 loaded models", "the first made at forgetful.py:"):
        assert what in line


def test_leaks_can_be_an_error_at_exit_and_at_finalize(tree: Path) -> None:
    left = OPEN + "acl.rt.malloc(8, 0)\n"
    wanted = {"CANN_EMULATOR_LEAKS": "error"}
    assert run_source(left, tree, env=wanted).returncode == 3
    raised = run_source(left + "acl.finalize()", tree, env=wanted)
    assert "LeakedObjects: [emulated acl] left at acl.finalize: 1 blocks of device memory; " in raised.stderr
    assert raised.returncode == 3
    cleaned = run_source(left + "acl.rt.reset_device(0); acl.finalize()", tree, env=wanted)
    assert "left to acl.rt.reset_device: 1 blocks of device memory" in cleaned.stderr
    assert run_source(left + "acl.rt.reset_device(0); acl.finalize()", tree).stderr == ""
    assert run_source(left, tree, env={"CANN_EMULATOR_LEAKS": "off"}).stderr == ""


def test_destructors_that_finalize_at_exit_do_no_harm(tree: Path) -> None:
    """pyacl.md §4 rows 19 and 20, as acllite's resource class does it."""
    source = """
import acl
class Resource:
    def __init__(self):
        acl.init(); acl.rt.set_device(0)
        self.context, _ = acl.rt.create_context(0)
        self.stream, _ = acl.rt.create_stream()
    def __del__(self):
        print(acl.rt.destroy_stream(self.stream), acl.rt.destroy_context(self.context))
        print(acl.rt.reset_device(0), acl.finalize())
resource = Resource()
"""
    done = run_source(source, tree)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 0\n0 0\n", "")


def test_faults_devices_memory_and_strictness_come_from_the_environment(tree: Path) -> None:
    source = OPEN + "print(acl.rt.get_device_count()[0], acl.rt.get_mem_info(1)[1] >> 20, acl.rt.malloc(8, 0)[1])\n"
    wanted = {
        **{"CANN_EMULATOR_DEVICES": "2", "CANN_EMULATOR_HBM_MB": "1024", "CANN_EMULATOR_LEAKS": "off"},
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
