"""From the command to the last worker's end: binding, starting, serving, draining."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
from collections.abc import Iterator

import uvicorn
import uvloop

from workbench.bundle import Bundle, check_bundle
from workbench.serve.admin import Admin
from workbench.serve.app import admin_pages, application
from workbench.serve.connections import Connections
from workbench.serve.events import JsonLines, log, log_defect, log_seldom
from workbench.serve.facts import EMULATED, health
from workbench.serve.hosts import canonical_host
from workbench.serve.lit import WorkerLauncher
from workbench.serve.metrics import Metrics, bundle_labels
from workbench.serve.protocol import bounded_http
from workbench.serve.service import Service
from workbench.serve.settings import Limits, ServeSettings
from workbench.serve.workers import Workers
from workbench.targets import described, device_count
from workbench.values.errors import ConfigError, ToolchainError, WorkbenchError

_BACKLOG = 2048
_COUNT_S = 1.0
_OPEN_FILES = 65_536
_FILES_OF_SERVICE, _FILES_OF_WORKER = 64, 8
_FEWEST_CONNECTIONS = 16
_NOTHING_LEFT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_KEEP_ALIVE_S = 75
"""Longer than the usual 60 s of a load balancer in front, which must be the one to close an idle connection."""


def serve(bundle: Bundle, settings: ServeSettings) -> None:
    """Serve a bundle until SIGTERM or SIGINT; then what waits is answered, and everything has ended on return.

    Must be called in the main thread.

    Raises:
        BundleError: the bundle is damaged or not signed as required, or a worker could not prove it.
        ConfigError: the address cannot be bound.
        ToolchainError: there are fewer devices than wanted, or no worker could answer for `limits.no_worker_s`.
    """
    signer = check_bundle(bundle, settings.trusted)
    _raise_open_files()
    devices = _devices(bundle.manifest.artifact.target, settings.devices)
    logging.basicConfig(level=logging.WARNING, handlers=[JsonLines()], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it warns of each request that is no HTTP
    if signer is not None:
        log("signature", key=signer.key, comment=signer.trusted_comment)
    with contextlib.ExitStack() as stack:
        access = settings.access
        listener = stack.enter_context(_bound(settings.host, settings.port))
        admin = None
        if access.admin_port is not None:
            admin = stack.enter_context(_bound(access.admin_host, access.admin_port, "--admin-"))
        main = _main(bundle, settings, devices, listener, admin)
        failure = asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main)
    log("ended", failure=None if failure is None else str(failure))
    if failure is not None:
        raise failure


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the service drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _main(
    bundle: Bundle, settings: ServeSettings, devices: int, listener: socket.socket, admin: socket.socket | None
) -> WorkbenchError | None:
    """Returns why the service gave up, None when it was told to end."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_defect)
    manifest = bundle.manifest
    lengths = () if manifest.text is None else manifest.text.bins
    service = Service(bundle, settings, Metrics(about=bundle_labels(manifest), lengths=lengths))
    workers = settings.service.workers * devices
    launcher = WorkerLauncher(
        bundle,
        workers=workers,
        devices=devices,
        max_batch_size=settings.service.max_batch_size,
        policy=settings.policy,
    )
    ending: asyncio.Future[WorkbenchError | None] = loop.create_future()
    now = asyncio.Event()

    def give_up(why: WorkbenchError) -> None:
        if not ending.done():
            ending.set_result(why)

    def told(number: signal.Signals) -> None:
        log("signal", name=number.name)
        if ending.done():
            now.set()
        else:
            ending.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)
    if service.keys is not None:
        loop.add_signal_handler(signal.SIGHUP, service.keys.reload)
    connections = _connections(settings.limits, workers)
    watching = [loop.create_task(_count(connections, service.metrics))]
    service.workers = Workers(launcher, workers, devices, service, give_up, settings.limits)
    config = uvicorn.Config(
        application(service, launcher.app),
        http=bounded_http(connections, body_timeout_s=settings.limits.body_timeout_s + 5.0),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here asks who the client is
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
    )
    http = _HttpServer(config)
    serving = loop.create_task(http.serve(sockets=[listener]))
    if admin is not None:
        watching.append(loop.create_task(_administration(service, admin).run()))
    if manifest.artifact.toolchain.emulated:
        log("emulated", warning=EMULATED)
    where = {"url": _url(listener), **({} if admin is None else {"admin": _url(admin)})}
    log("listening", **where, bundle=manifest.name)
    try:
        service.workers.start()
        failure = await ending
        if failure is None:
            await _drained(service, settings.limits.grace_s, now)
    finally:
        http.should_exit = True
        await serving
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        service.stop()
        await service.workers.end()
    return failure


def _administration(service: Service, listener: socket.socket) -> Admin:
    def beat() -> dict[str, object]:
        status, content = health(service)
        return {"health": (status, content), "ready": status == 200}

    access = service.settings.access
    hosts = [host for host in map(canonical_host, access.hosts) if host is not None]
    hang_s = service.settings.limits.hang_s
    return Admin(listener, hosts=hosts, hang_s=hang_s, beat=beat, pages=admin_pages(service))


async def _count(connections: Connections, metrics: Metrics) -> None:
    refused = displaced = 0
    while True:
        metrics.connections(
            connections.count, refused=connections.refused - refused, displaced=connections.displaced - displaced
        )
        if connections.refused > refused or connections.displaced > displaced:
            log_seldom("connections_at_their_bound", kind="connections", open=connections.count)
        refused, displaced = connections.refused, connections.displaced
        for kind, times in connections.refusals.items():
            metrics.rejected(kind, times)
        connections.refusals.clear()
        await asyncio.sleep(_COUNT_S)


async def _drained(service: Service, grace_s: float, now: asyncio.Event) -> None:
    log("draining", requests=service.open_requests)
    draining = asyncio.ensure_future(service.drain(grace_s))
    second = asyncio.ensure_future(now.wait())
    await asyncio.wait({draining, second}, return_when=asyncio.FIRST_COMPLETED)
    whole = draining.done() and draining.result()
    for task in (draining, second):
        task.cancel()
    log("drained", unanswered=service.open_requests, whole=whole)


def _devices(target: str, wanted: int | None) -> int:
    """How many devices workers are started on.

    Raises:
        ToolchainError: more are wanted than are visible.
    """
    visible = device_count(target)
    if wanted is not None and wanted > visible:
        hint = described(target).devices_hint
        check = f", or check {hint}" if hint else ""
        raise ToolchainError(f"--devices {wanted}: this process sees {visible} of target {target}. Name fewer{check}.")
    return visible if wanted is None else wanted


def _connections(limits: Limits, workers: int) -> Connections:
    """Never so many that the service lacks open files for itself, or to start a worker again."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = _FILES_OF_SERVICE + _FILES_OF_WORKER * workers
    room = limits.connections if files == resource.RLIM_INFINITY else max(files - spare, _FEWEST_CONNECTIONS)
    most = min(limits.connections, room)
    if most < limits.connections:
        log("fewer_connections", wanted=limits.connections, most=most, open_files=files)
    return Connections(most=most, most_of_address=min(limits.connections_of_address, most))


def _raise_open_files() -> None:
    """Each connection is an open file, and the usual soft limit of 1024 is few clients for a service."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _bound(host: str, port: int, option: str = "--") -> socket.socket:
    """Raises ConfigError: no such address here, or the port is taken. `option` is what host and port are given by."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except (socket.gaierror, UnicodeError) as error:  # no such name, or nothing that can be one
        hint = "Name an address of this machine; 0.0.0.0 is all of them."
        raise ConfigError(f"{host!r} is no address: {error}.", key=f"{option}host", hint=hint) from error
    except OSError as error:
        if error.errno in _NOTHING_LEFT:
            raise ToolchainError(
                f"no socket for {host}:{port}: {error.strerror}. Raise the limit, or end what uses it."
            ) from error
        raise ConfigError(
            f"{host}:{port} cannot be bound: {error.strerror or error}.",
            key=f"{option}port",
            hint="Choose another port, or end what listens there.",
        ) from error


def _defect(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException):
        log_defect(error)
    else:
        log("defect", error=str(context.get("message")))
