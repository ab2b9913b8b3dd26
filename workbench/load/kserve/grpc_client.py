"""The load generator's connection over gRPC: a channel of its own, at most one call in flight, bytes encoded before."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from workbench.load.client import Connected
from workbench.load.http1 import CLOSED, GARBAGE
from workbench.load.kserve.grpc_calls import INFER, OPTIONS, target_of

if TYPE_CHECKING:
    from workbench.load.client import Clients

STATUS_OF: Mapping[Any, int] = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
"""Code → HTTP status, as google.rpc.Code maps them. UNAVAILABLE is missing: the connection is lost then."""


class GrpcConnection(Connected):
    """One client. A code other than OK is an answer with a status; a lost connection is none."""

    __slots__ = ("_call", "_channel", "_infer", "_task")

    def __init__(self, clients: Clients, intended_s: float) -> None:
        super().__init__(clients, intended_s)
        self._channel: grpc.aio.Channel | None = grpc.aio.insecure_channel(target_of(clients.plan.url), options=OPTIONS)
        self._infer = self._channel.unary_unary(INFER)
        self._task: asyncio.Task[None] | None = None
        self._call: Any = None

    async def open(self) -> None:
        assert self._channel is not None
        try:
            await self._channel.channel_ready()
        except asyncio.CancelledError:  # nobody answers in time
            await self._channel.close()
            raise
        self.clients.connected(self)

    def send(self, request: bytes, intended_s: float) -> None:
        super().send(request, intended_s)
        self._call = self._infer(request)
        self._task = asyncio.get_running_loop().create_task(self._answered(self._call))

    async def _answered(self, call: Any) -> None:
        try:
            code = grpc.StatusCode.OK if await call is not None else grpc.StatusCode.UNKNOWN
        except grpc.aio.AioRpcError as error:
            code = error.code()
        except asyncio.CancelledError:  # given up, or the end
            return
        if not self.busy:
            return
        if code == grpc.StatusCode.UNAVAILABLE:
            self._finish(CLOSED)
            self.close()
            return
        self._finish(STATUS_OF.get(code, GARBAGE))
        self.clients.idle(self)

    def close(self) -> None:
        if self._channel is None:
            return
        channel, self._channel = self._channel, None
        if self._call is not None:
            self._call.cancel()
        self.clients.ending(asyncio.get_running_loop().create_task(channel.close()))
        self.clients.lost(self)


async def open_grpc(clients: Clients, intended_s: float) -> None:
    """One connection more; raises TimeoutError where nobody answers within the plan's timeout."""
    await GrpcConnection(clients, intended_s).open()
