"""Running a program of the vendor: a time limit, its whole process group ended with it, its words kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.values.system.lifeline import start_failure, tied

_VARIABLES = frozenset(
    {
        # where programs and CANN lie: what is found there is in every key by its versions (`toolchain`)
        *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"),
        *("ASCEND_OPP_PATH", "ASCEND_AICPU_PATH", "TOOLCHAIN_HOME"),
        # how fast, in how many processes, with which kernels kept (atc.md §2.5)
        *("TE_PARALLEL_COMPILER", "MULTI_THREAD_COMPILE", "MAX_COMPILE_CORE_NUMBER", "OMP_NUM_THREADS"),
        *("ASCEND_CACHE_PATH", "ASCEND_MAX_OP_CACHE_SIZE"),
        # what is said, in which language, and where files lie meanwhile
        *("ASCEND_GLOBAL_LOG_LEVEL", "ASCEND_GLOBAL_EVENT_ENABLE", "ASCEND_MODULE_LOG_LEVEL", "TMPDIR", "LANG"),
        *("ASCEND_HOST_LOG_FILE_NUM", "DUMP_GE_GRAPH", "DUMP_GRAPH_LEVEL", "NPU_COLLECT_PATH", "LC_ALL", "LC_CTYPE"),
        *("AMCT_LOG_LEVEL", "AMCT_LOG_FILE_LEVEL", "TZ", "USER", "XDG_CACHE_HOME", "WORKBENCH_MAX_FILE_GIB"),
    }
)
_EMULATOR = "CANN_EMULATOR_"  # it says what it is in the versions


def compiler_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment reaches a compiler or AMCT: nothing that changes a result and that no key holds.

    TUNE_BANK_PATH and ASCEND_CUSTOM_OPP_PATH do: a space names such folders, and keys hold what is in them.
    """
    return {n: value for n, value in environment.items() if n in _VARIABLES or n.startswith(_EMULATOR)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        code: its exit code; None where it was ended for taking too long.
        output: stdout and stderr as they came.
    """

    code: int | None
    output: str


def run_program(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    cwd: Path | None = None,
    log: Path | None = None,
) -> Ended:
    """Run `command` to its end, or end it and all its children after `timeout_s`.

    Args:
        log: file that its words are written to while it runs; a temporary one without it.

    Raises:
        OSError: it cannot be started, or the log not be written.
    """
    with log.open("w+b") if log is not None else tempfile.TemporaryFile() as words:
        found = shutil.which(command[0], path=environment.get("PATH"))
        child = subprocess.Popen(
            command if found is None else tied([str(Path(found).absolute()), *command[1:]]),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=cwd,
            start_new_session=True,
        )
        code: int | None
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # Also after Ctrl-C, and also what the program itself left running
            _end_group(child)
        words.seek(0)
        output = words.read().decode("utf-8", errors="replace")
        if (error := start_failure(command, code, output)) is not None:
            raise error
        return Ended(code=code, output=output)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # all of them are gone
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
