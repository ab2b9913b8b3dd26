"""A service of our own around a load: started from its bundle on a free port of this machine, ended with all it began.

It is started as production starts it, `python -m workbench.serve`, so what is measured is what is shipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.bundle.signing import TRUSTED_VARIABLE
from workbench.load.http1 import exchange
from workbench.values.errors import BundleError
from workbench.values.service import ServiceSettings
from workbench.values.system.lifeline import tied

API_KEY_VARIABLE = "WORKBENCH_API_KEY"
_POLL_S, _START_S = 0.1, 180.0
_END_S = 45.0
"""Longer than the service's own grace period for requests in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningService:
    """Attributes:
    api_key: None where it asks for none.
    """

    url: str
    pid: int
    api_key: str | None
    log: Path


@contextlib.contextmanager
def running_service(
    bundle: Path,
    *,
    log: Path,
    settings: ServiceSettings | None = None,
    more: Sequence[str] = (),
    own: bool = False,
) -> Iterator[RunningService]:
    """Serve a bundle until the block ends; every worker has replayed the golden samples when it begins.

    Args:
        log: file that receives the service's output.
        settings: instead of the bundle's own.
        more: further arguments of `python -m workbench.serve`.
        own: this process wrote the bundle itself just now, so nobody's signature is asked for.

    Raises:
        BundleError: the service ended or was not ready in time; names the last lines of its log.
    """
    command = [
        *(sys.executable, "-P", "-m", "workbench.serve", str(bundle)),
        *("--host", "127.0.0.1", "--port", "0", "--policy", "warn"),
    ]
    if settings is not None:
        command += ["--workers", str(settings.workers), "--max-batch-size", str(settings.max_batch_size)]
        command += ["--batch-timeout-ms", f"{settings.batch_timeout_ms:g}"]
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            tied([*command, *more], number=signal.SIGTERM),  # it drains and ends when we are killed
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if not (own and name == TRUSTED_VARIABLE)},
        )
    try:
        url = _wait_until_ready(process, log)
        yield RunningService(url=url, pid=process.pid, api_key=os.environ.get(API_KEY_VARIABLE) or None, log=log)
    finally:
        _end(process)


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """The service's address, once it is healthy there."""
    deadline = time.monotonic() + _START_S
    url: str | None = None
    while True:
        code = process.poll()
        if code is not None:
            raise BundleError(f"The service ended with code {code} before it was ready:\n{_tail(log)}")
        for line in () if url is not None else log.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, AttributeError):  # other lines, and one that is half written
                event = json.loads(line)
                if event.get("event") == "listening":  # on the port that it was given
                    url = str(event["url"])
        with contextlib.suppress(OSError):
            if url is not None and exchange(url, "GET", "/health", None, {}, timeout_s=5)[0] == 200:
                return url
        if time.monotonic() > deadline:
            raise BundleError(f"The service was not ready within {_START_S:g} s:\n{_tail(log)}")
        time.sleep(_POLL_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and after a while SIGKILL for the whole group, which also ends what a dead service left behind."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_END_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: Path, lines: int = 12) -> str:
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    return "\n".join(text.splitlines()[-lines:]) or "(it wrote nothing)"
