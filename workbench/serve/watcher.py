"""`python -m workbench.serve.watcher`: liveness and readiness, told by a process that no load of the service can block.

The front end says every quarter of a second how it is, over a socket pair; what it said last is what is told. When it
says nothing for too long, its event loop hangs, and it is not live. What only the front end knows (/metrics, /docs) is
asked of it. When its end of the socket closes, it is gone, and this process ends.

    front end → here   {"health": [status, {…}], "ready": bool}    a beat
                       {"id": n, "answer": [status, type, text]}
    here → front end   {"id": n, "path": "/metrics"}
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from workbench.serve.hosts import Hosts
from workbench.serve.refusals import Refusal

MOST_LINE_BYTES = 16 << 20
"""Of what the front end says at a time; a page of documentation shows one example of each input."""
_HEAD_BYTES = 16 << 10
_CONNECTIONS = 64
_PRIORITY = -5
"""Before the front end and its workers (0), which can keep every processor busy."""
_HEAD_S, _PAGE_S = 5.0, 5.0
_JSON = "application/json"

Answer = tuple[int, str, str]
"""Status, media type, text."""


class Watcher:
    """What the front end said last, and questions to it."""

    def __init__(self, hosts: Hosts, pages: Sequence[str], hang_s: float) -> None:
        self._hosts, self._pages, self._hang_s = hosts, pages, hang_s
        self._beat_s = time.monotonic()
        self._ready = False
        self._health: tuple[int, dict[str, Any]] = 503, {"status": "starting"}
        self._link: asyncio.StreamWriter
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._count = 0
        self._connections = 0

    async def run(self, listener: socket.socket, link: socket.socket) -> None:
        """Answer until the front end is gone."""
        reader, self._link = await asyncio.open_unix_connection(sock=link, limit=MOST_LINE_BYTES)
        server = await asyncio.start_server(self._connected, sock=listener, limit=_HEAD_BYTES)
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self._heard(json.loads(line))
        server.close()
        self._link.close()
        with contextlib.suppress(ConnectionError):
            await self._link.wait_closed()

    def _heard(self, said: dict[str, Any]) -> None:
        self._beat_s = time.monotonic()
        if "id" in said:
            waiting = self._asked.pop(said["id"], None)
            if waiting is not None and not waiting.done():
                status, media, text = said["answer"]
                waiting.set_result((status, media, text))
        else:
            status, content = said["health"]
            self._ready, self._health = said["ready"], (status, content)

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
        hangs = silent_s > self._hang_s
        if path == "/health/live":
            return _told(
                503 if hangs else 200, {"status": "hangs" if hangs else "live", "silent_s": round(silent_s, 3)}
            )
        if path in ("/health/ready", "/health") and hangs:
            return _told(503, {"status": "hangs", "silent_s": round(silent_s, 3)})
        if path == "/health/ready":
            status = self._health[1]["status"]
            return _told(200 if self._ready else 503, {"status": "ready" if self._ready else status})
        if path == "/health":
            return _told(*self._health)
        if path in self._pages:
            return await self._ask(path)
        known = ", ".join(("/health/live", "/health/ready", "/health", *self._pages))
        raise Refusal("not_found", f"There is {known}.")

    async def _ask(self, path: str) -> Answer:
        self._count += 1
        number = self._count
        waiting = self._asked[number] = asyncio.get_running_loop().create_future()
        self._link.write(json.dumps({"id": number, "path": path}).encode() + b"\n")
        try:
            return await asyncio.wait_for(waiting, _PAGE_S)
        except TimeoutError:
            raise Refusal("overloaded", f"The front end did not answer within {_PAGE_S:g} s.", 1) from None
        finally:
            self._asked.pop(number, None)


def _told(status: int, content: dict[str, Any]) -> Answer:
    return status, _JSON, json.dumps(content)


def main() -> None:
    """Serve what the front end handed over: two open sockets, and how to answer on them."""
    parser = argparse.ArgumentParser(prog="python -m workbench.serve.watcher", description="Started by the front end.")
    parser.add_argument("listener", type=int, help="descriptor")
    parser.add_argument("link", type=int, help="descriptor")
    parser.add_argument("--hang-s", type=float, required=True)
    parser.add_argument("--allowed-host", action="append", default=[])
    parser.add_argument("--page", action="append", default=[])
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the front end drains, and then closes its socket
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # where the system allows it: a late answer about life may end a life
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    watcher = Watcher(Hosts(given.allowed_host, addresses=True), given.page, given.hang_s)
    asyncio.run(watcher.run(socket.socket(fileno=given.listener), socket.socket(fileno=given.link)))


if __name__ == "__main__":
    main()
