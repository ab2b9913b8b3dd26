"""msprof run on a program; what it writes is read by `profiles.read` (pyacl.md §5.4)."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.program import run_program
from workbench.targets.ascend.visible_devices import VARIABLE
from workbench.values.device_profile import DeviceProfile
from workbench.values.errors import MeasureError, ToolchainError

TIMEOUT_S = 900.0
LOG = "msprof.log"


def profile(
    application: Sequence[str],
    output: Path,
    *,
    timeout_s: float = TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
    chip: str = "",
) -> DeviceProfile:
    """`run_msprof`, and what its tables say.

    Args:
        chip: what the device calls itself.

    Raises:
        ToolchainError: as `run_msprof`.
        MeasureError: the same, or it left no table; carries the log.
    """
    fresh = run_msprof(application, output, timeout_s=timeout_s, environment=environment)
    try:
        return read_profile(fresh, chip=chip)
    except MeasureError as error:
        raise MeasureError(f"{error} See what msprof said.", log_path=output / LOG) from error


def run_msprof(
    application: Sequence[str],
    output: Path,
    *,
    timeout_s: float = TIMEOUT_S,
    environment: Mapping[str, str] | None = None,
) -> list[Path]:
    """Run a program under msprof; the PROF_* folders it left. It runs slower than without: time nothing else.

    Args:
        application: argument list of the program.
        output: folder for the PROF_* results; made when missing. The log is `msprof.log` in it.

    Raises:
        ToolchainError: no msprof, or ASCEND_RT_VISIBLE_DEVICES is set, which it cannot work with.
        MeasureError: the program failed or took too long; carries the log.
    """
    surroundings = dict(os.environ if environment is None else environment)
    program = shutil.which("msprof", path=surroundings.get("PATH", os.defpath))
    if program is None:
        raise ToolchainError("msprof is not on PATH. It comes with the CANN toolkit: source its set_env.sh.")
    if surroundings.get(VARIABLE):
        raise ToolchainError(f"msprof does not work while {VARIABLE} is set. Unset it and choose the device by number.")
    output.mkdir(parents=True, exist_ok=True)
    before = {folder.name for folder in output.glob("PROF_*")}
    log = output / LOG
    command = [program, f"--application={shlex.join(application)}", f"--output={output}", "--task-time=on"]
    ended = run_program(command, environment=surroundings, timeout_s=timeout_s, log=log)
    if ended.code != 0:
        how = f"took longer than {timeout_s:g} s" if ended.code is None else f"failed with exit code {ended.code}"
        last = ended.output.strip().splitlines()[-1:] or ["no output"]
        raise MeasureError(f"msprof {how}: {last[0]}", log_path=log, transient=ended.code is None)
    return [folder for folder in output.glob("PROF_*") if folder.name not in before]
