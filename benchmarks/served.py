"""A server as a subprocess for as long as a benchmark needs it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

START_S, STOP_S = 120.0, 45.0


@contextlib.contextmanager
def served(command: Sequence[object], log: Path) -> Iterator[tuple[str, int]]:
    """Start `python -m COMMAND --port FREE`, wait until it answers /health, give (URL, pid); ends with its children.

    Raises:
        RuntimeError: it ended, or was not healthy in time; with the last lines of its log.
    """
    port = free_port()
    with log.open("ab") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, command), "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        _wait_until_healthy(process, port, log)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        _stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def health(port: int) -> int | None:
    """Status of GET /health, None without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while health(port) != 200:
        if process.poll() is not None or time.monotonic() > deadline_s:
            tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"the server did not become healthy (exit code {process.poll()}); its log ends:\n{tail}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT: LitServe's own server leaves its children alone on SIGTERM. Ours takes both alike."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
