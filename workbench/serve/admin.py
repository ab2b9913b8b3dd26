"""The port of administration: liveness and readiness, told by a process that no load of the service can block.

The service says every quarter of a second how it is; what it said last is what is told. When it says nothing for too
long, its event loop hangs, and it is not live. What only the service knows (/metrics, /docs) is asked of it. When its
end of the socket closes, it is gone, and this process ends.

    service → watcher   {"health": [status, {…}]}    a beat
                        {"id": n, "answer": [status, type, text]}
    watcher → service   {"ready": {"pid"}}
                        {"id": n, "page": "/metrics"}
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import multiprocessing.process
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from workbench.serve.access import Hosts
from workbench.serve.events import every
from workbench.serve.pool import Member, Pool, live_and_die_with, spawned
from workbench.serve.refusals import Refusal
from workbench.serve.wire import Link, Message

if TYPE_CHECKING:
    from workbench.serve.app import Page

BEAT_S = 0.25
_UNREAD_BYTES = 1 << 20
"""Of a watcher that does not read; then it is started again."""
_FIRST_START_S = 120.0
_HEAD_BYTES = 16 << 10
_CONNECTIONS = 64
_PRIORITY = -5
"""Before the front end and its workers (0), which can keep every processor busy."""
_HEAD_S, _PAGE_S = 5.0, 5.0
_JSON = "application/json"

Answer = tuple[int, str, str]
"""Status, media type, text."""


class Admin(Pool[Member]):
    """Keeps one watcher running, however long that takes: the service itself goes on without it."""

    KIND, FAILED, FIRST_ALL = "watcher", "watcher_not_started", False
    TOLD = ("pid",)

    def __init__(
        self,
        listener: socket.socket,
        hosts: Sequence[str],
        hang_s: float,
        health: Callable[[], tuple[int, dict[str, Any]]],
        pages: Mapping[str, Page],
    ) -> None:
        """
        Args:
            pages: path → what is told there when somebody asks.
        """
        super().__init__([Member(0)], math.inf, _FIRST_START_S, lambda _: None)
        self._given = listener, tuple(hosts), tuple(pages), hang_s
        self._health, self._pages = health, pages

    def start(self) -> None:
        super().start()
        self.keep(every(BEAT_S, self._beat))

    def launch(self, member: Member) -> tuple[multiprocessing.process.BaseProcess, socket.socket]:
        return spawned("watcher", run, *self._given)

    def received(self, member: Member, message: Message) -> None:
        if "page" in message.head:
            self.keep(self._answer(member, message.head))

    async def _answer(self, member: Member, head: Mapping[str, Any]) -> None:
        member.say({"id": head["id"], "answer": await self._pages[head["page"]]()})

    def _beat(self) -> None:
        (member,) = self.all
        if member.link is not None and member.link.unread > _UNREAD_BYTES:
            member.kill()
        else:
            member.say({"health": self._health()})


class Watcher:
    """What the service said last, and questions to it."""

    def __init__(self, hosts: Hosts, pages: Sequence[str], hang_s: float) -> None:
        self._hosts, self._pages, self._hang_s = hosts, pages, hang_s
        self._beat_s = time.monotonic()
        self._health: tuple[int, dict[str, Any]] = 503, {"status": "starting"}
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._ids = itertools.count()
        self._connections = 0
        self._gone = asyncio.Event()
        self._link = Link(self._heard, self._gone.set)

    async def run(self, listener: socket.socket, link: socket.socket) -> None:
        """Answer until the service is gone."""
        await self._link.open(link)
        server = await asyncio.start_server(self._connected, sock=listener, limit=_HEAD_BYTES)
        self._link.say({"ready": {"pid": os.getpid()}})
        await self._gone.wait()
        server.close()

    def _heard(self, message: Message) -> None:
        self._beat_s, head = time.monotonic(), message.head
        if "health" in head:
            status, content = head["health"]
            self._health = status, content
        elif (waiting := self._asked.pop(head["id"], None)) is not None and not waiting.done():
            waiting.set_result(tuple(head["answer"]))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _CONNECTIONS:
                await self._one(reader, writer)
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it left, or sends no head
        finally:
            self._connections -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_S)
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        try:
            if method not in ("GET", "HEAD"):
                raise Refusal("method", "Everything here takes GET.", allow="GET, HEAD")
            named = [line.partition(":") for line in lines]
            self._hosts.check([(n.lower().encode("latin-1"), v.strip().encode("latin-1")) for n, _, v in named])
            status, media, text = await self._page(rest.partition(" ")[0].partition("?")[0])
            more: list[tuple[bytes, bytes]] = []
        except Refusal as refusal:
            status, media, text, more = refusal.status, _JSON, json.dumps(refusal.body()), refusal.headers()
        content = text.encode()
        found = [
            b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode()),
            b"content-type: " + media.encode(),
            b"content-length: %d" % len(content),
            b"cache-control: no-store",
            *(name + b": " + value for name, value in more if name != b"connection"),
            b"connection: close",
        ]
        writer.write(b"\r\n".join((*found, b"", b"" if method == "HEAD" else content)))
        await asyncio.wait_for(writer.drain(), _PAGE_S)

    async def _page(self, path: str) -> Answer:
        silent_s = round(time.monotonic() - self._beat_s, 3)
        hangs = {"status": "hangs", "silent_s": silent_s} if silent_s > self._hang_s else None
        status, content = self._health
        if path == "/health/live":
            found = (503, hangs) if hangs else (200, {"status": "live", "silent_s": silent_s})
        elif path in ("/health/ready", "/health"):
            brief = {"status": "ready" if status == 200 else content["status"]}
            found = (503, hangs) if hangs else (status, content if path == "/health" else brief)
        elif path in self._pages:
            return await self._ask(path)
        else:
            known = ", ".join(("/health/live", "/health/ready", "/health", *self._pages))
            raise Refusal("not_found", f"There is {known}.")
        return found[0], _JSON, json.dumps(found[1])

    async def _ask(self, path: str) -> Answer:
        number = next(self._ids)
        waiting = self._asked[number] = asyncio.get_running_loop().create_future()
        self._link.say({"id": number, "page": path})
        try:
            return await asyncio.wait_for(waiting, _PAGE_S)
        except TimeoutError:
            raise Refusal("overloaded", f"The front end did not answer within {_PAGE_S:g} s.", 1) from None
        finally:
            self._asked.pop(number, None)


def run(
    listener: socket.socket, hosts: Sequence[str], pages: Sequence[str], hang_s: float, link: socket.socket, parent: int
) -> None:
    """The watcher's process."""
    live_and_die_with(parent)
    with contextlib.suppress(OSError):  # where the system allows it: a late answer about life may end a life
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)

    async def watch() -> None:
        await Watcher(Hosts(hosts, addresses=True), pages, hang_s).run(listener, link)

    asyncio.run(watch())
