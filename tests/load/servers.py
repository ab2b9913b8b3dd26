"""Real HTTP servers with a known delay and known faults, on loopback, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path

Handler = Callable[["Server", bytes, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request (its body); False closes the connection."""

ANSWER = b'{"label": "pay", "score": 0.9}'


def answer(status: str = "200 OK", body: bytes = ANSWER, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


class Server:
    """Attributes: requests, bodies seen; `stalled_s`: (begin, end), by perf_counter, of every time it stood still."""

    def __init__(self, handler: Handler, pages: Mapping[str, bytes]) -> None:
        self.handler, self.pages = handler, pages
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
                if head.startswith(b"GET"):
                    page = self.pages.get(head.split()[1].decode())
                    status = "404 Not Found" if page is None else "200 OK"
                    writer.write(answer(status, page or b"", "Connection: close\r\n"))
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
def serving(handler: Handler, pages: Mapping[str, bytes] | None = None) -> Iterator[Server]:
    """Args: pages: what GET of a path gives; nothing is at others."""
    server = Server(handler, pages or {})
    server.start()
    try:
        yield server
    finally:
        server.stop()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def program(
    command: Sequence[str], ready: str, log: Path, *, env: Mapping[str, str] | None = None, patience_s: float = 200
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that is a program of its own, from the moment that this URL gives 200 until the block ends."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, cwd=log.parent, env=env, stdout=output, stderr=output, start_new_session=True)
    try:
        deadline = time.monotonic() + patience_s
        while True:
            assert child.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            with contextlib.suppress(OSError), urllib.request.urlopen(ready, timeout=30):
                break
            time.sleep(0.2)  # nothing tells when a program that starts is ready
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # workers may outlive a first process that is told to end
        child.wait(60)
