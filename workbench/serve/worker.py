"""A worker process: LitServe starts it, it opens the bundle's session, proves itself, and runs batches.

It writes one message when it is ready or cannot become so, and one for each batch. It ends when its socket does: the
front end closes it to end a worker, and the kernel does when the front end is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litserve import LitAPI  # type: ignore[import-untyped]  # LitServe ships no types
from litserve.loops import LitLoop  # type: ignore[import-untyped]  # the same

from workbench.bundle import read_bundle
from workbench.bundle.fingerprint import Policy
from workbench.serve.opened import open_proved
from workbench.serve.wire import Message, pack, receive
from workbench.targets import described
from workbench.targets.base import Session
from workbench.values.errors import MeasureError, ToolchainError, WorkbenchError
from workbench.values.system.control_groups import available_memory_bytes

_PR_SET_PDEATHSIG = 1
_LEAST_BYTES = 4 << 30


class BatchLoop(LitLoop):  # type: ignore[misc]  # LitServe ships no types
    """LitServe's way to replace its own loop; ours reads whole batches from a socket, not requests from a queue."""

    def __call__(self, lit_api: BundleWorker, *_: object, **__: object) -> None:
        lit_api.run_batches()


class BundleWorker(LitAPI):  # type: ignore[misc]  # LitServe ships no types
    """What LitServe hands to a worker process.

    Attributes:
        connection: the worker's end of its socket pair; set for each process that is started.
        rows: of the largest batch that will come.
        manifest_sha256: of the bundle that the front end checked; no other is served by a later worker either.
        devices: that workers are spread over; worker n computes on the n-th of these modulo their number, in a
            context of its own.
    """

    def __init__(
        self,
        directory: Path,
        *,
        manifest_sha256: str,
        max_batch_size: int,
        policy: Policy,
        devices: Sequence[int] = (0,),
    ) -> None:
        super().__init__(loop=BatchLoop())  # LitServe's own batching stays off: what comes are batches
        self.directory, self.rows, self.policy, self.devices = str(directory), max_batch_size, policy, tuple(devices)
        self.manifest_sha256 = manifest_sha256
        self.connection: socket.socket | None = None
        self.parent = os.getpid()
        self._session: Session | None = None

    def setup(self, device: str) -> None:
        """Open and prove the bundle. Ends the process when it cannot be served, after saying why."""
        live_and_die_with(self.parent)
        started = time.perf_counter()
        try:
            bundle = read_bundle(Path(self.directory), manifest_sha256=self.manifest_sha256)
            if described(bundle.manifest.artifact.target).on_host:
                _limit_memory()
            number = int(os.environ["LITSERVE_WORKER_ID"])  # LitServe's way to tell a worker which it is
            place = number % len(self.devices)
            self._session, facts = open_proved(bundle, self.rows, self.policy, device=self.devices[place])
        except WorkbenchError as error:
            self._send({"failed": str(error), "final": True, "machine": isinstance(error, ToolchainError)})
            raise SystemExit(1) from None
        except Exception as error:  # LitServe writes the traceback; who waits for this worker is told here
            self._send({"failed": f"{type(error).__name__}: {error}", "final": False})
            raise
        self._send(
            {"ready": {**facts, "device": place, "pid": os.getpid(), "startup_s": time.perf_counter() - started}}
        )

    def run_batches(self) -> None:
        """Until the front end closes the socket."""
        assert self.connection is not None
        assert self._session is not None
        with contextlib.closing(self._session):
            while (message := receive(self.connection)) is not None:
                answer = self.predict(message)
                try:
                    self.connection.sendall(answer)
                except (BrokenPipeError, ConnectionResetError):
                    return

    def predict(self, x: Message, **_: object) -> bytes:
        """Run one batch: the message that came, as the message that goes back."""
        assert self._session is not None
        started = time.perf_counter()
        try:
            outputs = self._session.run(x.arrays)
        except MeasureError as error:
            return pack({"batch": x.head["batch"], "error": str(error)})
        return pack({"batch": x.head["batch"], "run_s": time.perf_counter() - started}, outputs)

    def _send(self, head: dict[str, Any]) -> None:
        assert self.connection is not None
        self.connection.sendall(pack(head))


def _limit_memory() -> None:
    """A request that sets a graph off fails, before the host swaps. Drivers of devices map more than they use."""
    most = max(_LEAST_BYTES, (available_memory_bytes() or 0) // 2)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


def live_and_die_with(parent: int) -> None:
    """Leave the signals of a terminal or a service manager to the front end, which drains first; die if it dies."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":  # elsewhere a worker that hangs in a batch outlives a killed front end
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that was said
        raise SystemExit(1)
