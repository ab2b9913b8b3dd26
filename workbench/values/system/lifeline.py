"""Processes that do not outlive whoever started them, and words for how a process ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1  # man 2 prctl
_TIED = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
if hasattr(libc, "prctl"):
    libc.prctl(1, int(sys.argv[2]))  # PR_SET_PDEATHSIG survives the exec
if os.getppid() != int(sys.argv[1]):
    sys.exit("who started this is gone")
try:
    os.execv(sys.argv[3], sys.argv[3:])
except OSError as error:
    print(f"cannot be started: errno {error.errno}")
    sys.exit(126)  # as a shell ends where a file cannot be executed
"""
_PATIENCE_S = 20.0
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


def tied(command: Sequence[str], *, number: signal.Signals = signal.SIGKILL) -> list[str]:
    """The command line that runs `command` (an absolute program first) and ends it when this process dies.

    However this process dies, the kernel then sends the signal; elsewhere than on Linux the command lives on. It has
    the process id that was started, and belongs to the thread that started it: it ends with that thread.
    """
    return [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), str(int(number)), *command]


def run_tied(
    command: Sequence[str], environment: Mapping[str, str] | None = None, output: IO[str] | None = None
) -> int:
    """Run a command to its end and return its exit code; it ends when this process is told to end, or dies.

    It has a process group of its own, so Ctrl-C comes here alone and is passed on as SIGTERM to all of the group.
    """
    process = subprocess.Popen(
        tied(command, number=signal.SIGTERM), env=environment, stdout=output, start_new_session=True
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_PATIENCE_S)
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):  # what the command itself has left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def die_with(parent: int) -> None:
    """For a program of ours: be killed when the process that started this one dies.

    Args:
        parent: its process id, as it wrote it into the command line.

    Raises:
        SystemExit: it is gone already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that was said
        raise SystemExit("who started this is gone")


def ending(returncode: int, *, out_of_memory: bool = False) -> str:
    """'was ended by SIGSEGV (…)' or 'ended with exit code 3', for a process' `returncode` as `subprocess` gives it.

    Args:
        out_of_memory: the kernel says that it ended a process for want of memory meanwhile.
    """
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    number = -returncode
    name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
    if number in _CRASHES:
        return f"was ended by {name}, a crash inside a compiler or runtime"
    if number == signal.SIGKILL:
        who = "the kernel, which was out of memory" if out_of_memory else "somebody, or a watchdog of memory"
        return f"was ended by {name}, sent by {who}"
    return f"was ended by {name}"


def out_of_memory_kills() -> int:
    """How many processes the kernel has ended for want of memory since it started; 0 where it does not say."""
    try:
        with open("/proc/vmstat", encoding="ascii") as lines:  # noqa: PTH123  # a file of the kernel, read by line
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    except (OSError, ValueError):
        return 0
