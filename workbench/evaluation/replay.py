"""An artifact handed to another process: what to open and what to feed it, in a folder.

A process of its own is needed where a vendor's tool runs a program under its eyes (a profiler), and for peak memory:
within one process the allocator keeps what earlier candidates freed, so that a second candidate looks almost free.
`python -m workbench.evaluation.replay FOLDER CALLS` opens the artifact, runs the feeds, and says what that took.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.targets import described, descriptions, open_target
from workbench.targets.apart import own_environment, run_apart
from workbench.targets.base import Feeds
from workbench.targets.feeds import load_feeds, save_feeds
from workbench.targets.profiler import KernelTime, Overflows, Profiler
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, candidate_from_json
from workbench.values.device_profile import DeviceProfile
from workbench.values.documents.canonical import canonical_json, decode
from workbench.values.errors import ConfigError, MeasureError, WorkbenchError
from workbench.values.system.scratch import scratch_folder

_REQUEST, _FEEDS, _PEAK, _FAILED = "request.json", "feeds.npz", "peak_bytes", 3


def peak_memory(
    directory: Path, artifact: Artifact, candidate: Candidate, feeds: Sequence[Feeds], *, timeout_s: float = 300.0
) -> int:
    """Bytes of resident memory that loading the artifact and running each of the feeds once adds at its peak.

    The child imports the target and its runtime and loads the feeds; from the resident size at that moment counts
    what comes on top: the loaded model (with the copy that reading it may need), its buffers, its threads' stacks,
    and the pages of the runtime's own code that are first touched. On the device's side of an accelerator nothing is
    counted. Repeats agree within a few hundred kilobytes.

    Args:
        directory: where the artifact's files lie.

    Raises:
        MeasureError: the artifact failed to load or run; transient when the child was killed or ran out of time.
    """
    with _replayed(directory, artifact, candidate, feeds, len(feeds)) as (replay, folder):
        ended = run_apart(replay, environment=own_environment(), timeout_s=timeout_s)
        if ended.code == 0:
            return int((folder / _PEAK).read_text(encoding="utf-8"))
    if ended.code is None:
        rule = f"measuring peak memory took longer than {timeout_s:g} s and was stopped."
        raise MeasureError(rule, transient=True)
    words = "\n".join(ended.output.strip().splitlines()[-5:]) or "none"
    if ended.code == _FAILED:
        raise MeasureError(f"while its memory was measured: {words}")
    how = f"signal {-ended.code}" if ended.code < 0 else f"exit status {ended.code}"
    raise MeasureError(
        f"the process that measures peak memory ended with {how}. Its last words: {words}",
        transient=ended.code == -signal.SIGKILL,
    )


def _run(folder: Path, calls: int) -> None:
    """Leaves the resident memory that it took at its peak, in bytes, in the folder."""
    request = json.loads((folder / _REQUEST).read_text(encoding="utf-8"))
    fed = load_feeds(folder / _FEEDS)
    candidate = candidate_from_json(request["candidate"])
    target = open_target(candidate.target)
    target.toolchain()  # brings in the runtime's libraries, which belong to no artifact
    gc.collect()
    before = _status_bytes("VmRSS")
    # VmHWM starts again from the present size (man 5 proc_pid_clear_refs, value 5). Where the kernel forbids it, the
    # peak counts from the start of the process; importing the runtime peaks little above where it ends.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    artifact = decode(Artifact, request["artifact"])
    with contextlib.closing(target.open(artifact, Path(request["directory"]), candidate)) as session:
        for call in range(calls):
            session.run(fed[call % len(fed)])
        peak_bytes = max(_status_bytes("VmHWM") - before, 0)
    (folder / _PEAK).write_text(str(peak_bytes), encoding="utf-8")


def _status_bytes(field: str) -> int:
    """VmRSS (resident now) or VmHWM (its peak) of this process; man 5 proc_pid_status."""
    with contextlib.suppress(OSError):
        found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
        if found is not None:
            return int(found[1]) * 1024
    # Kernels without these lines still count the peak, since the start of the process.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- the vendor's own tools: where time goes on the device, and what overflows there ---------------------------------


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
        return profiler.where_time_goes(replay, artifact, directory, to, environment=own_environment())


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
        return profiler.kernels(replay, artifact, directory, folder / "profile", environment=own_environment())


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
        return profiler.overflows(replay, len(feeds), to, environment=own_environment(), once=once)


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
        request = {"directory": directory.resolve(), "artifact": artifact, "candidate": candidate.to_json()}
        (folder / _REQUEST).write_text(canonical_json(request), encoding="utf-8")
        save_feeds(feeds, folder / _FEEDS)
        yield [sys.executable, "-P", "-m", "workbench.evaluation.replay", str(folder), str(calls)], folder


if __name__ == "__main__":
    try:
        _run(Path(sys.argv[1]), int(sys.argv[2]))
    except WorkbenchError as failed:
        sys.stderr.write(f"{failed}\n")
        sys.exit(_FAILED)
