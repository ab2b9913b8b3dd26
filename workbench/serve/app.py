"""The routes of a front end: what is asked by whom is checked before a body is read, and refusals are counted.

No framework: routing, middleware and validation of one would take longer than tokenizing does, and what is beside
/predict is a page for each path.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST

from workbench import __version__
from workbench.serve.access import Hosts, canonical_host
from workbench.serve.connections import Connections
from workbench.serve.events import log, log_defect, log_seldom
from workbench.serve.http import Answer, Head, HttpServer, too_large
from workbench.serve.metrics import Metrics
from workbench.serve.pipeline import PipelineService
from workbench.serve.refusals import Refusal
from workbench.serve.service import Service
from workbench.serve.settings import Limits
from workbench.values.documents.canonical import encode
from workbench.values.metrics import metrics
from workbench.values.system.environment import open_files

_JSON = (b"content-type", b"application/json")
_PREDICT = b"/predict"
EMULATED = "EMULATED: compiled and measured on an emulator; no figure is of a device."
_FILES_OF_SERVICE, _FILES_OF_WORKER = 64, 8
_FEWEST_CONNECTIONS = 16


class Application:
    """The whole HTTP interface of a front end; see `workbench.serve.http.Site`. Make it inside the event loop."""

    def __init__(self, service: Service | PipelineService, workers: int = 0) -> None:
        """Args: workers: in its process's charge."""
        self.service, self._metrics, self.hold = service, service.metrics, service.hold
        self.drain, settings = service.drain, service.settings
        connections = _connections_within(settings.limits, workers, service.metrics)
        self.http = HttpServer(self, connections, body_timeout_s=settings.limits.body_timeout_s)
        host = canonical_host(settings.host)
        self._hosts = Hosts([*settings.hosts, *([] if host is None else [host])])
        shown = ("/metrics",) if settings.metrics == "open" else ()
        self._paths = ("/health", "/health/live", "/health/ready", "/info", *shown)

    @property
    def open_requests(self) -> int:
        return self.service.open_requests

    async def end(self) -> None:
        await self.http.stop()
        self.service.stop()

    def begin(self, head: Head) -> int | None:
        predicts = head.path == _PREDICT
        if predicts:
            self._metrics.received.inc()
        self._hosts.check(head.headers, head.here)
        headers = dict(head.headers)
        # what says who asks and how the body is to be read must not be said twice: a proxy may have read the other
        if len(headers) < len(head.headers):
            names = [name for name, _ in head.headers]
            for wanted in (b"x-api-key", b"content-type", b"content-encoding"):
                if names.count(wanted) > 1:
                    raise Refusal("bad_request", f"The header {wanted.decode()} may be there once.", close=True)
        if not predicts:
            if head.path.decode("latin-1") not in self._paths:
                raise Refusal("not_found", f"There is /predict, {', '.join(self._paths)}.")
            if head.method not in (b"GET", b"HEAD"):
                raise Refusal("method", "This path takes GET.", allow="GET, HEAD")
            if head.path == b"/info":
                self.service.identify(headers.get(b"x-api-key", b""))
            return None
        if head.method != b"POST":
            raise Refusal("method", "/predict takes POST.", allow="POST")
        self.service.identify(headers.get(b"x-api-key"))
        if _kind(headers) not in self.service.kinds:
            kinds = b" or ".join(self.service.kinds).decode()
            raise Refusal("media_type", f"Content-Type must be there and say {kinds}.")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refusal("media_type", "The body must not be compressed.")
        limit = self.service.settings.limits.body_bytes
        if int(headers.get(b"content-length", b"0")) > limit:  # before 100 Continue asks for it
            raise too_large(limit)
        self.service.admit()
        return limit

    async def answer(self, head: Head, body: bytes) -> Answer:
        try:
            if head.path != _PREDICT:
                return await self._page(head.path.decode())
            content = await self.service.predict(body, head.arrived_s, _kind(dict(head.headers)))
        except Refusal as refusal:
            self.refused(head, refusal)
            return refusal.answer()
        except asyncio.CancelledError:  # the client is gone
            self._metrics.errors.labels("client_gone").inc()
            raise
        except Exception as error:
            log_defect(error)
            defect = Refusal("internal", "A defect of the service; its log says where.")
            self.refused(head, defect)
            return defect.answer()
        self._metrics.answered(200, time.perf_counter() - head.arrived_s)
        return 200, [_JSON, *self.service.headers], content

    def refused(self, head: Head | None, refusal: Refusal) -> None:
        predicts = head is not None and head.path == _PREDICT
        if predicts or head is None or refusal.kind in ("host", "bad_request"):
            self._metrics.errors.labels(refusal.kind).inc()
        if predicts and head is not None:
            status, *_ = refusal.answer()
            self._metrics.answered(status, time.perf_counter() - head.arrived_s)
            if status >= 500 and refusal.kind != "starting":
                log_seldom("refused", kind=refusal.kind, status=status)

    async def _page(self, path: str) -> Answer:
        """What is there beside /predict."""
        queue = self.service.queue
        if path == "/metrics":
            return 200, [(b"content-type", CONTENT_TYPE_LATEST.encode())], await queue.metrics_text()
        status, content = 200, dict[str, Any]()
        if path == "/info":
            content = self.service.info() if isinstance(self.service, PipelineService) else _info(self.service)
        elif path == "/health/live":
            content = {"status": "live"}
        else:
            status, content = queue.health()
            if path == "/health/ready":  # whether requests may be sent here, in one word
                content = {"status": "ready" if status == 200 else content["status"]}
        return status, [_JSON], json.dumps(content, ensure_ascii=False).encode()


def _kind(headers: Mapping[bytes, bytes]) -> bytes:
    """The type of a body."""
    return headers.get(b"content-type", b"").split(b";", 1)[0].strip().lower()


def _info(service: Service) -> dict[str, Any]:
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


def _connections_within(limits: Limits, workers: int, metrics: Metrics) -> Connections:
    """Never so many that the service lacks open files for itself, or to start a worker again."""
    files, spare = open_files(), _FILES_OF_SERVICE + _FILES_OF_WORKER * workers
    most = min(limits.connections, max(files - spare, _FEWEST_CONNECTIONS))
    if most < limits.connections:
        log("fewer_connections", wanted=limits.connections, most=most, open_files=files)
    of_address = min(limits.connections_of_address, most)
    connections = Connections(most=most, most_of_address=of_address)
    metrics.registry.register(connections)
    return connections
