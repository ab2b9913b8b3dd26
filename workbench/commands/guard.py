"""Commands that open models in this program run one process down, so that a crash in there still gets its message."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import tempfile
from typing import IO

from workbench.values.errors import ToolchainError
from workbench.values.system.lifeline import die_with, ending, out_of_memory_kills

GUARDED = (
    *("plan", "inspect", "init", "convert", "doctor", "calibrate", "sensitivity", "compare", "profile", "log"),
    *("repair", "tune", "export", "verify", "promote", "rollback"),
)
"""Sweeps and single evaluations have an evaluation process, services and loads have processes of their own."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OURS = re.compile(r'File ".*/(workbench/[^"]+)", line (\d+) in (\S+)')
_SI_USER = 0
"""The code of a signal that a process sent; a terminal's comes from the kernel, to both processes."""


def guarded(command: str) -> None:
    """Fork: the child returns and goes on with the command; this process waits for it and ends as it does.

    Call it before threads and heavy libraries. The child dies with this process.

    Raises:
        ToolchainError: in this process, where a signal ended the child that nobody had sent here.
        SystemExit: in this process, with the child's code.
    """
    parent, oom_kills = os.getpid(), out_of_memory_kills()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stack:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
        child = os.fork()
        if child == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            die_with(parent)
            faulthandler.enable(os.dup(stack.fileno()))
            return
        code = _wait(child)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if code >= 0 or -code in _PASSED_ON:
            sys.exit(code if code >= 0 else 128 - code)
        how = ending(code, out_of_memory=out_of_memory_kills() > oom_kills)
        raise ToolchainError(f"`workbench {command}` {how}{_place(stack)}. What was there before is as it was.")


def _wait(child: int) -> int:
    """Hand signals on until the child has ended; its code as `subprocess` gives it."""
    while True:
        told = signal.sigwaitinfo({signal.SIGCHLD, *_PASSED_ON})
        if told.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
        elif told.si_code == _SI_USER:
            os.kill(child, told.si_signo)


def _place(stack: IO[str]) -> str:
    """Where of ours the child was when it crashed, by what `faulthandler` wrote."""
    stack.seek(0)
    found = _OURS.search(stack.read())
    return f", in {found[3]} ({found[1]}, line {found[2]})" if found is not None else ""
