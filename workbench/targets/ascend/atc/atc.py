"""Finding ATC and running it: one work directory, one log, a time limit, and no process left behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.targets.ascend.atc.output import Output, parse_output
from workbench.targets.ascend.program import compiler_variables
from workbench.values.errors import ConfigError, ToolchainError

COMPILE_TIMEOUT_S = 3600.0
"""For one file. The only published time is four minutes, of a small Transformer on an older release (atc.md §11)."""

TIMEOUT_VARIABLE = "WORKBENCH_ATC_TIMEOUT_S"
"""Environment variable with another limit, in seconds."""

_LARGEST_LOG_BYTES = 64 * 2**20
_POLL_S = 0.02
_GRACE_S = 10.0
_READ_BYTES = 8 * 2**20
_DEFAULT_WORKERS = 8
"""Of TE_PARALLEL_COMPILER (ATC manual 9.2, environment variables)."""

_PLACES = ("/usr/local/Ascend/cann", "~/Ascend/cann", "/usr/local/Ascend/ascend-toolkit/latest")
"""Where CANN installs itself: 8.5 as root, 8.5 as another user, older releases (atc.md §7.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of ATC that came to an end.

    Attributes:
        status: exit status; negative for a signal; None where we ended it, and `ended` says why.
        text: what it printed, stdout and stderr in order; the end of it where it is very long.
    """

    command: tuple[str, ...]
    directory: Path
    log: Path
    status: int | None
    ended: Literal["", "timeout", "stopped", "garbage"]
    seconds: float
    text: str
    output: Output


def find_atc(environment: Mapping[str, str]) -> Path:
    """The compiler that this environment starts: `atc` on PATH, or in the CANN that ASCEND_HOME_PATH names.

    Raises:
        ToolchainError: there is none, or there is a CANN that was not switched on.
    """
    found = shutil.which("atc", path=environment.get("PATH", ""))
    if found is not None:
        return Path(found).absolute()
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        root = environment.get(variable)
        if root and os.access(Path(root, "bin", "atc"), os.X_OK):
            return Path(root, "bin", "atc").absolute()
    for place in _PLACES:
        root_path = Path(place.replace("~", environment.get("HOME", "~"), 1))
        if (root_path / "bin" / "atc").exists():
            raise ToolchainError(
                f"CANN is installed in {root_path}, but this shell does not know it. Run `source "
                f"{root_path}/set_env.sh`, then the same command again."
            )
    raise ToolchainError(
        "No atc on PATH and none under ASCEND_HOME_PATH: CANN is not installed or not switched on. Install the CANN "
        "8.5.0 toolkit and the operator package of the 910B and source its set_env.sh, or rehearse without them: "
        '`eval "$(workbench emulator env)"`.'
    )


def compile_timeout_s(environment: Mapping[str, str]) -> float:
    """How long one compile may take here.

    Raises:
        ConfigError: WORKBENCH_ATC_TIMEOUT_S is no positive number.
    """
    text = environment.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else COMPILE_TIMEOUT_S
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < math.inf:
        raise ConfigError(f"{text!r} is no number of seconds.", key=TIMEOUT_VARIABLE, hint="Write such as 1800.")
    return seconds


def check_operator_package(environment: Mapping[str, str]) -> None:
    """Raises ToolchainError where ASCEND_OPP_PATH leads nowhere: ATC would blame the model's operators for it."""
    named = environment.get("ASCEND_OPP_PATH")
    if named and not Path(named).is_dir():
        raise ToolchainError(
            f"Half an installation of CANN: ASCEND_OPP_PATH names {named}, which is no folder, and without operators "
            "ATC compiles nothing. Install the ops package of the 910b for CANN 8.5.0, then source its set_env.sh."
        )


def compile_environment(base: Mapping[str, str], directory: Path, *, workers: int) -> dict[str, str]:
    """The environment of one compile: of `base` what no key has to hold, with logs and side files in `directory`.

    Args:
        workers: operator compile processes that this compile may start; a smaller TE_PARALLEL_COMPILER stays.
    """
    environment = compiler_variables(base)
    try:
        asked = int(environment.get("TE_PARALLEL_COMPILER", _DEFAULT_WORKERS))
    except ValueError:
        asked = _DEFAULT_WORKERS
    environment["TE_PARALLEL_COMPILER"] = str(max(1, min(asked, workers, 32)))
    environment["ASCEND_PROCESS_LOG_PATH"] = str(directory / "log")
    return environment


def run_atc(
    command: Sequence[str],
    *,
    directory: Path,
    log: Path,
    environment: Mapping[str, str],
    timeout_s: float = COMPILE_TIMEOUT_S,
    stop: threading.Event | None = None,
) -> Run:
    """Run ATC to its end, its time limit, or until `stop` is set. All its processes are gone when this returns.

    Args:
        command: the program and its arguments.
        directory: where it runs, and leaves its side files.
        log: everything it prints goes there.

    Raises:
        ToolchainError: it cannot be started.
    """
    stop = stop or threading.Event()
    started = time.perf_counter()
    child_program = Path(__file__).with_name("child.py")
    with log.open("wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(child_program), *command],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            start_new_session=True,
        )
    ended: Literal["", "timeout", "stopped", "garbage"] = ""
    try:
        while child.poll() is None and not ended:
            if stop.wait(_POLL_S):
                ended = "stopped"
            elif time.perf_counter() - started > timeout_s:
                ended = "timeout"
            elif log.stat().st_size > _LARGEST_LOG_BYTES:
                ended = "garbage"
    finally:
        answer = _end(child)
    if "error" in answer:
        raise ToolchainError(f"ATC cannot be started: {answer['error']}. Install CANN again, or mend its rights.")
    text = _tail(log)
    return Run(
        command=tuple(command),
        directory=directory,
        log=log,
        status=None if ended else int(str(answer.get("status", -9))),
        ended=ended,
        seconds=time.perf_counter() - started,
        text=text,
        output=parse_output(text),
    )


def _end(child: subprocess.Popen[bytes]) -> dict[str, object]:
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
        answer: dict[str, object] = {}
        with contextlib.suppress(ValueError):
            answer = json.loads(child.stdout.read() or b"{}")
        return answer


def _tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _READ_BYTES))
        return stream.read().decode("utf-8", errors="replace")
