"""Peak memory of loading and running an artifact, measured in a process of its own.

Within one process the allocator keeps what earlier candidates freed, so a second candidate looks almost free. The
parent writes a request and starts `python -m workbench.evaluation.memory REQUEST_DIRECTORY`; the child answers with
one line of JSON on standard output.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.evaluation.replay import read_request, write_request
from workbench.targets import open_target
from workbench.targets.base import Feeds
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.errors import MeasureError, WorkbenchError
from workbench.values.system.lifeline import tied
from workbench.values.system.scratch import scratch_folder


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
    if not feeds:
        raise ValueError("no feeds to run")
    with scratch_folder("memory") as folder:
        write_request(folder, directory, artifact, candidate, feeds)
        answer = _ask_child(folder, timeout_s)
    if "error" in answer:
        raise MeasureError(f"while its memory was measured: {answer['error']}")
    return int(answer["peak_bytes"])


def _ask_child(folder: Path, timeout_s: float) -> dict[str, Any]:
    """Run the child over one request and return its answer; on a timeout or an interrupt its whole group is killed."""
    log = folder / "stderr.log"
    with log.open("wb") as stderr:
        child = subprocess.Popen(
            tied([sys.executable, "-m", "workbench.evaluation.memory", str(folder)]),
            # `-m` looks in the working directory first: this one holds the very package that is running now.
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            output, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise MeasureError(
                f"measuring peak memory took longer than {timeout_s:g} s and was stopped.", transient=True
            ) from None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
    if child.returncode != 0:
        words = "\n".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:])
        how = f"signal {-child.returncode}" if child.returncode < 0 else f"exit status {child.returncode}"
        raise MeasureError(
            f"the process that measures peak memory ended with {how}. Its last words: {words or 'none'}",
            transient=child.returncode == -signal.SIGKILL,
        )
    # A vendor's library may print too; the answer is the last line.
    answer: dict[str, Any] = json.loads(output.decode("utf-8", errors="replace").strip().splitlines()[-1])
    return answer


def _measure(folder: Path) -> int:
    request = read_request(folder)
    # Brings in the runtime's libraries, which belong to no artifact.
    open_target(request.candidate.target).toolchain()
    gc.collect()
    before = _status_bytes("VmRSS")
    _reset_peak()
    session = request.open()
    try:
        for feed in request.feeds:
            session.run(feed)
        return max(_status_bytes("VmHWM") - before, 0)
    finally:
        session.close()


def _status_bytes(field: str) -> int:
    """VmRSS (resident now) or VmHWM (its peak) of this process; man 5 proc_pid_status."""
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found is not None:
        return int(found[1]) * 1024
    # Kernels without these lines still count the peak, since the start of the process.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _reset_peak() -> None:
    """Let VmHWM start again from the present size; man 5 proc_pid_clear_refs, value 5.

    Where the kernel forbids it, the peak counts from the start of the process; importing the runtime peaks little
    above where it ends, so the result stays an upper bound close to the truth.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _child(folder: Path) -> None:
    try:
        answer: dict[str, object] = {"peak_bytes": _measure(folder)}
    except WorkbenchError as error:
        answer = {"error": str(error)}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
