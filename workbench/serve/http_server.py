"""uvicorn, as every front end runs it, and how many connections one process may hold."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Iterator
from typing import Any

import uvicorn

from workbench.serve.app import application
from workbench.serve.connections import Connections
from workbench.serve.events import log, log_seldom
from workbench.serve.metrics import Metrics
from workbench.serve.protocol import bounded_http
from workbench.serve.service import Service
from workbench.serve.settings import Limits

BACKLOG = 2048
_COUNT_S = 1.0
_FILES_OF_SERVICE, _FILES_OF_WORKER = 64, 8
_FEWEST_CONNECTIONS = 16
_KEEP_ALIVE_S = 75
"""Longer than the usual 60 s of a load balancer in front, which must be the one to close an idle connection."""


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the service drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def connection(self) -> asyncio.Protocol:
        """For a connection that was accepted elsewhere."""
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn calls it
            config=self.config, server_state=self.server_state, app_state={}, _loop=None
        )
        return made


def http_server(service: Service, app: Any, connections: Connections) -> HttpServer:
    """The server of one front end; `app` gets the routes other than /predict."""
    config = uvicorn.Config(
        application(service, app),
        http=bounded_http(connections, body_timeout_s=service.settings.limits.body_timeout_s + 5.0),
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


def connections_within(limits: Limits, workers: int) -> Connections:
    """Never so many that the service lacks open files for itself, or to start a worker again."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = _FILES_OF_SERVICE + _FILES_OF_WORKER * workers
    room = limits.connections if files == resource.RLIM_INFINITY else max(files - spare, _FEWEST_CONNECTIONS)
    most = min(limits.connections, room)
    if most < limits.connections:
        log("fewer_connections", wanted=limits.connections, most=most, open_files=files)
    return Connections(most=most, most_of_address=min(limits.connections_of_address, most))


async def count(connections: Connections, metrics: Metrics) -> None:
    """Tell the metrics of connections, until cancelled."""
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
