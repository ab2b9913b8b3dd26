"""What is below /health, and /info, say."""

from __future__ import annotations

import time
from typing import Any

from workbench import __version__
from workbench.serve.service import Service
from workbench.values.documents.canonical import encode
from workbench.values.metrics import metrics

EMULATED = "EMULATED: compiled and measured on an emulator; no figure is of a device."


def live() -> dict[str, Any]:
    """That the event loop turns: whoever reads this was answered by it."""
    return {"status": "live"}


def ready(service: Service) -> tuple[int, dict[str, Any]]:
    """Whether requests may be sent here, in one word."""
    status, content = service.queue.health()
    return status, {"status": "ready" if status == 200 else content["status"]}


def info(service: Service) -> dict[str, Any]:
    """What is served, with what, and what it was measured to do."""
    manifest, settings = service.bundle.manifest, service.settings
    toolchain = manifest.artifact.toolchain
    first = service.queue.worker_facts
    return {
        "name": manifest.name,
        "about": manifest.about,
        "task": manifest.task,
        "labels": list(manifest.labels),
        **({"warning": EMULATED} if toolchain.emulated else {}),
        "emulated": toolchain.emulated,
        "target": manifest.artifact.target,
        "candidate": {"id": manifest.candidate_id, **encode(manifest.candidate)},
        "model": {"file": manifest.model.file, "sha256": manifest.model.sha256},
        "inputs": encode(manifest.model.inputs),
        "outputs": encode(manifest.model.outputs),
        "text": None if manifest.text is None else {"max_length": manifest.text.max_length, "bins": manifest.text.bins},
        **({"axes": encode(manifest.axes)} if manifest.axes else {}),
        "service": {**encode(settings.service), "limits": encode(settings.limits)},
        "made_with": encode(toolchain),
        "runs_on": first.get("toolchain"),
        "differences": first.get("changes", []),
        "golden": {"samples": first.get("samples"), "largest_error": first.get("largest_error")},
        "figures": {e.split: metrics(e) for e in manifest.evaluations},
        "created_at": manifest.created_at,
        "workbench": {"made_by": manifest.workbench, "served_by": __version__},
        "uptime_s": round(time.monotonic() - service.started_s, 1),
    }
