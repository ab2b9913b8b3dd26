"""A worker process: it opens the bundle's session, proves itself, and runs batches.

It writes one message when it is ready or cannot become so, and one for each batch. It ends when its socket does: the
service's first process closes it to end a worker, and the kernel does when that one is killed.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
from pathlib import Path
from typing import Any

from workbench.bundle.fingerprint import Policy, admit
from workbench.bundle.golden import golden_batches, preprocessor_of
from workbench.bundle.opened import Bundle, read_bundle
from workbench.bundle.verify import replay_golden
from workbench.serve.pool import live_and_die_with
from workbench.serve.wire import Message, messages, pack
from workbench.targets import described, open_target
from workbench.targets.base import Array, DeviceSession, Feeds, RunSession, Session
from workbench.values.documents.canonical import encode as to_json
from workbench.values.errors import BundleError, MeasureError, ToolchainError, WorkbenchError
from workbench.values.preprocess import collate, encode
from workbench.values.system.cpu import available_memory_bytes

_LEAST_BYTES = 4 << 30


def run(
    directory: str,
    manifest_sha256: str,
    rows: int,
    policy: Policy,
    place: int,
    device: int,
    connection: socket.socket,
    parent: int,
) -> None:
    """The process: run batches until the other side closes the socket.

    Args:
        manifest_sha256: of the bundle that was checked; no other is served by a later worker either.
        rows: of the largest batch that will come.
        place: number of the card among those of the service, `device` as this process counts it.
    """
    live_and_die_with(parent)
    started = time.perf_counter()
    try:
        bundle = read_bundle(Path(directory), manifest_sha256=manifest_sha256)
        if described(bundle.manifest.artifact.target).on_host:
            # a request that sets a graph off fails, before the host swaps; drivers of devices map more than they use
            most = max(_LEAST_BYTES, (available_memory_bytes() or 0) // 2)
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))
        session, facts = open_proved(bundle, rows, policy, device=device)
    except WorkbenchError as error:
        machine = isinstance(error, ToolchainError)
        connection.sendall(pack({"failed": str(error), "final": True, "machine": machine}))
        raise SystemExit(1) from None
    except Exception as error:  # its traceback is written; who waits for this worker is told here
        connection.sendall(pack({"failed": f"{type(error).__name__}: {error}", "final": False}))
        raise
    seconds = time.perf_counter() - started
    ready = {**facts, "device": place, "pid": os.getpid(), "startup_s": seconds}
    with contextlib.closing(session), contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(pack({"ready": ready}))
        for message in messages(connection):
            connection.sendall(_answer(session, message))


def _answer(session: Session, message: Message) -> bytes:
    """Run one batch: the message that came, as the message that goes back."""
    started = time.perf_counter()
    try:
        outputs = session.run(message.arrays)
    except MeasureError as error:
        return pack({"batch": message.head["batch"], "error": str(error)})
    return pack({"batch": message.head["batch"], "run_s": time.perf_counter() - started}, outputs)


def open_proved(bundle: Bundle, batch: int, policy: Policy, *, device: int = 0) -> tuple[Session, dict[str, Any]]:
    """A session that gave the golden outputs, and what its owner wants to know about it.

    Args:
        batch: rows of the largest batch that will come.

    Raises:
        BundleError: the bundle is not for this machine, is damaged, does not run, or gives other outputs.
        ToolchainError: this machine lacks what the target needs.
    """
    bundle.check_served_here()
    manifest = bundle.manifest
    target = open_target(manifest.artifact.target)
    here = target.toolchain()
    changes = admit(manifest.artifact.toolchain, here, policy)
    bundle.check_model()
    try:
        session = target.open(manifest.artifact, bundle.model_directory, manifest.candidate, device=device)
        samples, largest = replay_golden(bundle, session, changes)
        if not isinstance(session, DeviceSession):  # whose files plan their memory when they are loaded
            _warm_up(bundle, session, batch)
    except MeasureError as error:
        raise BundleError(f"{bundle.directory}: the model does not run on this machine: {error}") from error
    shared = manifest.model.shared_outputs
    facts = {
        "samples": samples,
        "largest_error": largest,
        "device": device,
        "device_bytes": session.device_memory_bytes() if isinstance(session, DeviceSession) else None,
        "changes": changes,
        "toolchain": to_json(here),
    }

    def run(feeds: Feeds) -> dict[str, Array]:
        return {name: array for name, array in session.run(feeds).items() if name not in shared}

    return RunSession(run, session.close), facts


def _warm_up(bundle: Bundle, session: Session, batch: int) -> None:
    """One full batch of every bin: a runtime's first call of a shape plans its memory."""
    preprocessor = preprocessor_of(bundle)
    if preprocessor is None:
        return
    texts = [text for golden in golden_batches(bundle) for text in golden.texts]
    shortest = min(encode(preprocessor, texts), key=lambda e: len(e.ids), default=None)
    for length in preprocessor.bins:
        if shortest is not None and len(shortest.ids) <= length:
            session.run(collate(preprocessor, [shortest] * batch, length))
