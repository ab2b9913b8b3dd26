"""Commands that open models: a crash in there is told in one sentence, anything else as it is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
COMMAND = """
import ctypes, os, sys, time
from workbench.values.documents.canonical import canonical_json
from workbench.commands.guard import guarded
from workbench.values.exit_codes import ended_by_signals
class Crashing(dict):
    def items(self):
        ctypes.string_at(0)
with ended_by_signals():
    guarded("export")
    print(os.getpid(), flush=True)
    {}
"""


def run(end: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND.format(end)], capture_output=True, text=True, timeout=200, cwd=ROOT, check=False
    )


def test_a_crash_names_the_command_the_signal_and_the_place() -> None:
    done = run("canonical_json(Crashing())")

    assert done.returncode == 1  # of the uncaught ToolchainError; `cli.main` makes it one line and 3
    assert "`workbench export` was ended by SIGSEGV, a crash inside a compiler or runtime, in encode" in done.stderr
    assert "workbench/values/documents/canonical.py" in done.stderr


@pytest.mark.parametrize(("end", "code"), [("pass", 0), ("sys.exit(7)", 7), ("1 / 0", 1)])
def test_whatever_else_happens_ends_with_its_own_code(end: str, code: int) -> None:
    done = run(end)

    assert done.returncode == code
    assert ("ZeroDivisionError" in done.stderr) == (code == 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_command_ends_the_work_too(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND.format("time.sleep(1000)")], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        os.kill(process.pid, number)
        process.wait(timeout=300)
        gone, _ = psutil.wait_procs([child], timeout=300)

    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert gone or child.status() == psutil.STATUS_ZOMBIE
