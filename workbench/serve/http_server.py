"""uvicorn, as every front end runs it, and how many connections one process may hold."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import Iterator

import uvicorn

from workbench.serve.app import application
from workbench.serve.connections import Connections
from workbench.serve.events import log
from workbench.serve.metrics import Metrics
from workbench.serve.protocol import bounded_http
from workbench.serve.service import Service
from workbench.serve.settings import Limits

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

    def connection(self) -> asyncio.Protocol:
        """For a connection that was accepted elsewhere."""
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn calls it
            config=self.config, server_state=self.server_state, app_state={}, _loop=None
        )
        return made


def http_server(service: Service, connections: Connections) -> HttpServer:
    """The server of one front end."""
    config = uvicorn.Config(
        application(service),
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
    metrics.show(connections)
    return connections
