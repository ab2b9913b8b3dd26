"""Where the time of a candidate goes on the device, and whether anything overflows there: the vendor's own tools.

Both change what they look at, so they run apart from every measurement, in a process of their own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.evaluation.replay import write_request
from workbench.targets.ascend.acl.process import ACL_CONFIG
from workbench.targets.ascend.installation import find_installation
from workbench.targets.ascend.msprof import TimeByOperator, profile
from workbench.targets.ascend.overflow import Overflow, read_overflows, write_overflow_config
from workbench.targets.ascend.program import run_program
from workbench.targets.base import Feeds
from workbench.values.ascend_settings import ASCEND
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.results import Artifact
from workbench.values.system.scratch import scratch_folder

REPLAY_TIMEOUT_S = 900.0


def where_time_goes(
    directory: Path, artifact: Artifact, candidate: Candidate, feeds: Sequence[Feeds], to: Path, *, calls: int
) -> TimeByOperator:
    """Operators by their device time over `calls` calls under msprof, whose files stay in `to`.

    Raises:
        ConfigError: the candidate's target has no profiler here.
        ToolchainError, MeasureError: as `msprof.profile`.
    """
    _check_target(candidate)
    with scratch_folder("profile") as folder:
        write_request(folder, directory, artifact, candidate, feeds)
        return profile(_replay(str(folder), calls), to, environment=_environment())


def overflows(
    directory: Path, artifact: Artifact, candidate: Candidate, feeds: Sequence[Feeds], to: Path
) -> tuple[Overflow, ...]:
    """What overflowed while each feed ran once; empty when nothing did. The device's files stay in `to`.

    Raises:
        ConfigError: the candidate's target has no such check.
        ToolchainError: the toolkit lacks what reads the files.
        MeasureError: the run failed; carries its log.
    """
    _check_target(candidate)
    to.mkdir(parents=True, exist_ok=True)
    config = write_overflow_config(to)
    log = to / "run.log"
    with scratch_folder("overflow") as folder:
        write_request(folder, directory, artifact, candidate, feeds)
        surroundings = _environment() | {ACL_CONFIG: str(config)}
        ended = run_program(
            _replay(str(folder), len(feeds)), environment=surroundings, timeout_s=REPLAY_TIMEOUT_S, log=log
        )
    if ended.code != 0:
        how = (
            f"took longer than {REPLAY_TIMEOUT_S:g} s" if ended.code is None else f"failed with exit code {ended.code}"
        )
        last = ended.output.strip().splitlines()[-1:] or ["no output"]
        raise MeasureError(f"the run with the overflow check {how}: {last[0]}", log_path=log)
    return read_overflows(to / "overflow", find_installation().home, to / "decoded")


def _check_target(candidate: Candidate) -> None:
    if candidate.target != ASCEND:
        raise ConfigError(
            f"{candidate.target} is not profiled here.",
            key="--candidate",
            hint="Choose a candidate of target ascend910b3; `workbench sensitivity` times the layers of the others.",
        )


def _replay(folder: str, calls: int) -> list[str]:
    return [sys.executable, "-m", "workbench.evaluation.replay", folder, str(calls)]


def _environment() -> dict[str, str]:
    """The child must find the very package that is running now, wherever it was started."""
    here = str(Path(__file__).parents[2])
    path = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
