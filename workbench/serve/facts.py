"""What /health, what is below it, and /info say."""

from __future__ import annotations

import time
from typing import Any

from workbench import __version__
from workbench.serve.outage import Outage
from workbench.serve.service import Service
from workbench.values.documents.canonical import encode
from workbench.values.metrics import metrics

EMULATED = "EMULATED: compiled and measured on an emulator; no figure is of a device."


def health(service: Service) -> tuple[int, dict[str, Any]]:
    """Status 200 when every worker has replayed the golden samples and one can answer; the body says how things are."""
    ready, count = service.workers.ready, len(service.workers.all)
    status: str = service.phase
    if status == "serving":
        status = "ok" if ready == count else "degraded" if ready else "down"
    return 200 if status in ("ok", "degraded") else 503, {
        "status": status,
        "workers": [
            {
                "worker": w.number,
                **({"device": w.facts["device"]} if "device" in w.facts else {}),
                "state": w.state,
                "restarts": w.restarts,
                **({"failed_starts": w.failed_starts} if w.failed_starts else {}),
                **({"error": w.error} if w.error else {}),
            }
            for w in service.workers.all
        ],
        **_outage(service.workers.outage),
        "waiting": service.depth,
    }


def _outage(outage: Outage) -> dict[str, Any]:
    if outage.since_s is None:
        return {}
    lasts_s = round(outage.lasts_s(time.monotonic()), 1)
    return {"no_worker": {"lasts_s": lasts_s, "gives_up_after_s": outage.limit_s}}


def live() -> dict[str, Any]:
    """That the event loop turns: whoever reads this was answered by it."""
    return {"status": "live"}


def ready(service: Service) -> tuple[int, dict[str, Any]]:
    """Whether requests may be sent here, in one word."""
    status, content = health(service)
    return status, {"status": "ready" if status == 200 else content["status"]}


def info(service: Service) -> dict[str, Any]:
    """What is served, with what, and what it was measured to do."""
    manifest, settings = service.bundle.manifest, service.settings
    toolchain = manifest.artifact.toolchain
    first = next((w.facts for w in service.workers.all if w.facts), {})
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
