"""A bundle's session, opened and proved: it fits this machine, its files are whole, it gives the golden outputs."""

from __future__ import annotations

from typing import Any

from workbench.bundle import Bundle, golden_batches, preprocessor_of
from workbench.bundle.fingerprint import Policy, admit
from workbench.bundle.verify import replay_golden
from workbench.targets import open_target
from workbench.targets.base import Array, DeviceSession, Feeds, RunSession, Session
from workbench.values.documents.canonical import encode as to_json
from workbench.values.errors import BundleError, MeasureError
from workbench.values.preprocess import collate, encode


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
