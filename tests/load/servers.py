"""Real HTTP servers with a known delay and known faults, on loopback, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

Handler = Callable[["Server", bytes, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request (its body); False closes the connection."""

ANSWER = b'{"label": "pay", "score": 0.9}'


def answer(status: str = "200 OK", body: bytes = ANSWER, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


class Server:
    """Attributes: requests, bodies seen; `stalled_s`: (begin, end), by perf_counter, of every time it stood still."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.port = 0
        self.requests = 0
        self.connections = 0
        self.bodies: list[bytes] = []
        self.heads: list[bytes] = []
        self.arrived_s: list[float] = []
        self.stalled_s: list[tuple[float, float]] = []
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def stall(self, seconds: float) -> None:
        """Block the event loop, as a busy process would."""

        def stand_still() -> None:
            began = time.perf_counter()
            time.sleep(seconds)
            self.stalled_s.append((began, time.perf_counter()))

        self._loop.call_soon_threadsafe(stand_still)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopped.wait()
        server.close()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):  # /metrics, which these servers have not
                    writer.write(answer("404 Not Found", b"", "Connection: close\r\n"))
                    break
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.requests += 1
                self.arrived_s.append(time.perf_counter())
                self.bodies.append(body)
                self.heads.append(head)
                if not await self.handler(self, body, writer):
                    break
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


def delayed(seconds: float, reply: bytes = b"") -> Handler:
    """Answers each request after the same time, however many there are."""
    whole = reply or answer()

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        if seconds:
            await asyncio.sleep(seconds)
        writer.write(whole)
        return True

    return handle


@contextlib.contextmanager
def serving(handler: Handler) -> Iterator[Server]:
    server = Server(handler)
    server.start()
    try:
        yield server
    finally:
        server.stop()
