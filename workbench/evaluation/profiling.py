"""Where the time of a candidate goes on the device, and whether anything overflows there: the vendor's own tools.

Both change what they look at, so they run apart from every measurement, in a process of their own.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.evaluation.replay import write_request
from workbench.targets import described, descriptions
from workbench.targets.base import Feeds
from workbench.targets.profiler import KernelTime, Overflows, Profiler
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.device_profile import DeviceProfile
from workbench.values.errors import ConfigError
from workbench.values.system.scratch import scratch_folder


def where_time_goes(
    directory: Path, artifact: Artifact, candidate: Candidate, feeds: Sequence[Feeds], to: Path, *, calls: int
) -> DeviceProfile:
    """What the device did over `calls` calls; the profiler's own files stay in `to`.

    Raises:
        ConfigError: the candidate's target has no profiler here.
        ToolchainError, MeasureError: as `Profiler.where_time_goes`.
    """
    profiler = _profiler_of(candidate)
    with _replayed(directory, artifact, candidate, feeds, calls) as (replay, _):
        return profiler.where_time_goes(replay, artifact, directory, to, environment=_environment())


def profile_of(folder: Path, directory: Path, artifact: Artifact, candidate: Candidate) -> DeviceProfile:
    """A profile that the vendor's profiler left in a folder while it ran this candidate.

    Raises:
        ConfigError: the candidate's target has no profiler here.
        MeasureError: as `Profiler.read`.
    """
    return _profiler_of(candidate).read(folder, artifact, directory)


def kernels_of(
    directory: Path, artifact: Artifact, candidate: Candidate, feeds: Feeds, *, calls: int
) -> tuple[KernelTime, ...]:
    """What each kernel of an artifact of one file takes of one call with these feeds.

    Raises:
        ConfigError: the candidate's target has no profiler here.
        CandidateError, ToolchainError: as `Profiler.kernels`.
    """
    profiler = _profiler_of(candidate)
    with _replayed(directory, artifact, candidate, [feeds], calls) as (replay, folder):
        return profiler.kernels(replay, artifact, directory, folder / "profile", environment=_environment())


def overflows(
    directory: Path, artifact: Artifact, candidate: Candidate, feeds: Sequence[Feeds], to: Path, *, once: bool = False
) -> Overflows:
    """What overflowed while each feed ran once. The device's files stay in `to`.

    Raises:
        ConfigError: the candidate's target has no such check.
        ToolchainError, MeasureError: as `Profiler.overflows`.
    """
    profiler = _profiler_of(candidate)
    with _replayed(directory, artifact, candidate, feeds, len(feeds)) as (replay, _):
        return profiler.overflows(replay, len(feeds), to, environment=_environment(), once=once)


def _profiler_of(candidate: Candidate) -> Profiler:
    make = described(candidate.target).profiler
    if make is None:
        able = [target.name for target in descriptions() if target.profiler is not None]
        choose = f"Choose a candidate of target {' or '.join(able)}; " if able else ""
        hint = f"{choose}`workbench sensitivity` times the layers of the others."
        raise ConfigError(f"{candidate.target} is not profiled here.", key="--candidate", hint=hint)
    return make()


@contextlib.contextmanager
def _replayed(
    directory: Path, artifact: Artifact, candidate: Candidate, feeds: Sequence[Feeds], calls: int
) -> Iterator[tuple[list[str], Path]]:
    """The command that opens an artifact and runs the feeds, and its folder."""
    with scratch_folder("replay") as folder:
        write_request(folder, directory, artifact, candidate, feeds)
        yield [sys.executable, "-m", "workbench.evaluation.replay", str(folder), str(calls)], folder


def _environment() -> dict[str, str]:
    """The child must find the very package that is running now, wherever it was started."""
    here = str(Path(__file__).parents[2])
    path = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
