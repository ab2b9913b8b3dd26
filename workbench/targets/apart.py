"""Running a vendor's compiler or tool apart: a time limit, one log, and no process left behind, however we end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from workbench.values.errors import CompileError

COMPILE_TIMEOUT_S = 900.0
"""Of a compiler of the host."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_POLL_S = 0.02
_GRACE_S = 10.0
_READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        code: exit code; negative for a signal; None where we ended it, and `why` says for what.
        output: stdout and stderr as they came; the end of it where it is very long.
    """

    code: int | None
    output: str
    why: Literal["", "timeout", "stopped", "garbage"] = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def words(self) -> str:
        """How a run that failed ended, and what it said last."""
        last = self.output.strip().splitlines()[-1:] or ["no output"]
        how = f"took longer than {self.seconds:.0f} s" if self.code is None else f"failed with exit code {self.code}"
        return f"{how}: {last[0]}"


def run_apart(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    log: Path | None = None,
    cwd: Path | None = None,
    stop: threading.Event | None = None,
    most_bytes: int = 0,
    most_log_bytes: int | None = None,
) -> Ended:
    """Run `command` to its end, its time limit, or until `stop` is set. All its processes are gone when this returns.

    Args:
        log: file that its words are written to while it runs; a temporary one without it.
        most_bytes: of memory that it may take; 0 for any number.
        most_log_bytes: it is ended when it has said more.

    Raises:
        OSError: it cannot be started, or the log not be written.
    """
    stop = stop or threading.Event()
    started = time.perf_counter()
    program = Path(__file__).with_name("apart_child.py")
    why: Literal["", "timeout", "stopped", "garbage"] = ""
    with log.open("w+b") if log is not None else tempfile.TemporaryFile() as words:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), str(most_bytes), *command],
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            start_new_session=True,
        )
        try:
            while child.poll() is None and not why:
                if stop.wait(_POLL_S):
                    why = "stopped"
                elif time.perf_counter() - started > timeout_s:
                    why = "timeout"
                elif most_log_bytes is not None and os.fstat(words.fileno()).st_size > most_log_bytes:
                    why = "garbage"
        finally:  # also after Ctrl-C
            answer = _end(child)
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), command[0])
        code = None if why else answer.get("status", -9)
        words.seek(max(0, os.fstat(words.fileno()).st_size - _READ_BYTES))
        output = words.read().decode("utf-8", errors="replace")
        return Ended(code=code, output=output, why=why, seconds=time.perf_counter() - started)


def own_environment() -> dict[str, str]:
    """Of a program of ours: it must find the very package that is running now, wherever it was started."""
    path = [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def compile_apart(
    compiler: str,
    program: Path,
    arguments: Sequence[str],
    log: Path,
    reason: Callable[[str], str],
    *,
    most_bytes: int = 0,
) -> str:
    """Run a compiler of the host: a program of ours, which imports nothing of the workbench, by this interpreter.

    It is a process of its own, because a crash in a compiler must fail one candidate, not the sweep.

    Args:
        compiler: its name, for the message.
        log: everything it prints goes there without colours, and is returned.
        reason: what of that says why it refused.

    Raises:
        CompileError: it refused, crashed or took too long (the last two are transient); carries the log.
    """
    ended = run_apart(
        [sys.executable, "-P", str(program), *arguments],
        environment={**os.environ, "PYTHONWARNINGS": "ignore"},
        timeout_s=COMPILE_TIMEOUT_S,
        log=log,
        most_bytes=most_bytes,
    )
    text = _COLOUR.sub("", ended.output)
    if text != ended.output:
        log.write_text(text, encoding="utf-8")
    if ended.code is None:
        raise CompileError(f"{compiler} did not finish within {COMPILE_TIMEOUT_S:.0f} s.", log_path=log, transient=True)
    if ended.code < 0:
        killed = f"was killed by signal {-ended.code}; the machine may be out of memory."
        raise CompileError(f"{compiler}'s compiler {killed}", log_path=log, transient=True)
    if ended.code != 0:
        raise CompileError(f"{compiler} refused the model: {reason(text) or f'exit code {ended.code}'}", log_path=log)
    return text


def _end(child: subprocess.Popen[bytes]) -> dict[str, int]:
    """Cut the lifeline, on which the child kills the whole group, and take its answer; {} where it has none."""
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        child.stdin.close()
        try:
            child.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:  # an uninterruptible group, such as one on a hung network disk
            child.kill()
            child.wait()
        answer: dict[str, int] = {}
        with contextlib.suppress(ValueError):
            answer = json.loads(child.stdout.read() or b"{}")
        return answer
