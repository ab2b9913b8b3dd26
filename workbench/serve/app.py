"""HTTP: the routes, /predict beside them, and uvicorn as every front end runs it.

Plain ASGI: routing, middleware and validation of a framework would take longer than tokenizing does, and what is
beside /predict is a page for each path.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from typing import Any

import uvicorn

from workbench import __version__
from workbench.serve.access import Hosts, canonical_host
from workbench.serve.connections import Connections
from workbench.serve.events import log, log_defect, log_seldom
from workbench.serve.metrics import CONTENT_TYPE, Metrics
from workbench.serve.protocol import bounded_http
from workbench.serve.refusals import Refusal
from workbench.serve.service import Service
from workbench.serve.settings import Limits
from workbench.values.documents.canonical import encode
from workbench.values.metrics import metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

_PATIENCE_S = 0.25
"""After so long a request that waits watches whether its client is still there."""
_JSON = "application/json"


EMULATED = "EMULATED: compiled and measured on an emulator; no figure is of a device."


class ClientGone(Exception):
    """Nobody to answer."""


def application(service: Service) -> Asgi:
    """The whole HTTP interface of a front end."""
    settings, counted = service.settings, service.metrics
    host = canonical_host(settings.host)
    hosts = Hosts([*settings.hosts, *([] if host is None else [host])])
    paths = (
        *("/health", "/health/live", "/health/ready", "/info"),
        *(("/metrics",) if settings.metrics == "open" else ()),
    )

    async def entry(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        arrived_s = time.perf_counter()  # uvloop's own clock is cut to milliseconds
        media, extra, predicts = _JSON, list[tuple[bytes, bytes]](), scope["path"] == "/predict"
        if predicts:
            counted.received.inc()
        try:
            hosts.check(scope["headers"], (scope.get("server") or ("",))[0])
            if predicts:
                status, extra, content = 200, service.headers, await _predict(service, scope, receive, arrived_s)
            else:
                status, media, content = await _page(service, paths, scope)
        except Refusal as refusal:
            status, extra, content = refusal.status, refusal.headers(), json.dumps(refusal.body()).encode()
            if predicts or refusal.kind in ("host", "bad_request"):
                counted.rejected(refusal.kind)
            if predicts and status >= 500 and refusal.kind != "starting":
                log_seldom("refused", kind=refusal.kind, status=status)
        except ClientGone:
            counted.rejected("client_gone")
            return
        except Exception as error:
            log_defect(error)
            defect = Refusal("internal", "A defect of the service; its log says where.")
            status, content = defect.status, json.dumps(defect.body()).encode()
            if predicts:
                counted.rejected(defect.kind)
        if predicts:
            counted.answered(status, time.perf_counter() - arrived_s)
        head = [(b"content-type", media.encode()), (b"content-length", b"%d" % len(content)), *extra]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": content})

    return entry


async def _page(service: Service, paths: Sequence[str], scope: Scope) -> tuple[int, str, bytes]:
    """Status, media type, content of what is there beside /predict."""
    path = scope["path"]
    if path not in paths:
        raise Refusal("not_found", f"There is /predict, {', '.join(paths)}.")
    if scope["method"] not in ("GET", "HEAD"):
        raise Refusal("method", "This path takes GET.", allow="GET, HEAD")
    if path == "/metrics":
        return 200, CONTENT_TYPE, await service.queue.metrics_text()
    status, content = 200, dict[str, Any]()
    if path == "/info":
        service.identify(dict(reversed(scope["headers"])).get(b"x-api-key", b""))
        content = _info(service)
    elif path == "/health/live":
        content = {"status": "live"}
    else:
        status, content = service.queue.health()
        if path == "/health/ready":  # whether requests may be sent here, in one word
            content = {"status": "ready" if status == 200 else content["status"]}
    return status, _JSON, json.dumps(content, ensure_ascii=False).encode()


async def _predict(service: Service, scope: Scope, receive: Receive, arrived_s: float) -> bytes:
    headers = dict(scope["headers"])
    if len(headers) < len(scope["headers"]):
        _check_once(scope["headers"])
    if scope["method"] != "POST":
        raise Refusal("method", "/predict takes POST.", allow="POST")
    service.identify(headers.get(b"x-api-key"))
    media = headers.get(b"content-type", b"").split(b";", 1)[0].strip().lower()
    if media != b"application/json":
        raise Refusal("media_type", "Content-Type must be there and say application/json.")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refusal("media_type", "The body must not be compressed.")
    limit = service.settings.limits.body_bytes
    if int(headers.get(b"content-length", b"0")) > limit:  # before 100 Continue asks for it
        raise _too_large(limit)
    service.admit()
    request = await service.submit(await _read(receive, service, limit), arrived_s)
    try:
        await _answered(request.done, receive)
    except BaseException:
        service.abandon(request)
        raise
    return service.answer(request)


def _check_once(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """What says who asks and how the body is to be read must not be said twice: a proxy may have read the other."""
    for wanted in (b"x-api-key", b"content-type", b"content-encoding"):
        if [name for name, _ in headers].count(wanted) > 1:
            raise Refusal("bad_request", f"The header {wanted.decode()} may be there once.", close=True)


async def _read(receive: Receive, service: Service, limit: int) -> bytes | bytearray:
    message = await receive()
    if not message.get("more_body", False) and message["type"] == "http.request":
        whole: bytes = message["body"]
        if len(whole) > limit:
            raise _too_large(limit)
        return whole
    body = bytearray()
    try:
        while message["type"] != "http.disconnect":
            part = message.get("body", b"")
            service.hold(len(part))  # a part that is refused is neither held nor in the body
            body += part
            if len(body) > limit:
                raise _too_large(limit)
            if not message.get("more_body", False):
                return body
            message = await receive()
        raise ClientGone
    finally:
        service.hold(-len(body))


def _too_large(limit: int) -> Refusal:
    return Refusal("too_large", f"The body has more than {limit} bytes.", close=True)


async def _answered(done: asyncio.Future[None], receive: Receive) -> None:
    """Until the request is answered.

    Raises:
        ClientGone: its connection closed before.
    """
    watching = asyncio.get_running_loop().call_later(_PATIENCE_S, _watch, done, receive)
    try:
        await done
    except asyncio.CancelledError:
        if done.cancelled():
            raise ClientGone from None
        raise
    finally:
        watching.cancel()


def _watch(done: asyncio.Future[None], receive: Receive) -> None:
    async def until_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        done.cancel()

    task = asyncio.get_running_loop().create_task(until_gone())
    done.add_done_callback(lambda _: task.cancel())


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


BACKLOG = 2048
_FILES_OF_SERVICE, _FILES_OF_WORKER = 64, 8
_FEWEST_CONNECTIONS = 16
_KEEP_ALIVE_S = 75
"""Longer than the usual 60 s of a load balancer in front, which must be the one to close an idle connection."""


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the service drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(service: Service, connections: Connections) -> HttpServer:
    """The server of one front end."""
    config = uvicorn.Config(
        application(service),
        http=bounded_http(connections, body_timeout_s=service.settings.limits.body_timeout_s),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here asks who the client is
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    return HttpServer(config)


def connections_within(limits: Limits, workers: int, metrics: Metrics) -> Connections:
    """Never so many that the service lacks open files for itself, or to start a worker again."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = _FILES_OF_SERVICE + _FILES_OF_WORKER * workers
    room = limits.connections if files == resource.RLIM_INFINITY else max(files - spare, _FEWEST_CONNECTIONS)
    most = min(limits.connections, room)
    if most < limits.connections:
        log("fewer_connections", wanted=limits.connections, most=most, open_files=files)
    of_address = min(limits.connections_of_address, most)
    connections = Connections(most=most, most_of_address=of_address, rejected=metrics.rejected)
    metrics.registry.register(connections)
    return connections
