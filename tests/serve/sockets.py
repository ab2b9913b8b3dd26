"""The HTTP server over a site of its own, and a client that sends it any bytes."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from workbench.serve.connections import Connections
from workbench.serve.http import Answer, Head, HttpServer
from workbench.serve.refusals import Refusal

WAIT_S = 20.0
"""So long a client waits for its connection to be closed."""


class Names:
    """Answers 200 when the whole body came; /slow after 5 ms, /large with 16 MB, /names with the names of the headers.

    /unread is refused before its body comes.
    """

    def begin(self, head: Head) -> int | None:
        if head.path == b"/unread":
            raise Refusal("not_found", "Nobody reads it.")
        return 1 << 20

    async def answer(self, head: Head, body: bytes) -> Answer:
        if head.path == b"/slow":
            await asyncio.sleep(0.005)
        names = b" ".join(name for name, _ in head.headers)
        return 200, [], {b"/large": b"o" * (16 << 20), b"/names": names}.get(head.path, b"ok")

    def refused(self, head: Head | None, refusal: Refusal) -> None:
        pass

    def hold(self, size: int) -> None:
        pass


@dataclass
class Serving:
    connections: Connections
    port: int = 0
    started: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def serving(connections: Connections | None = None, **bounds: float) -> Iterator[Serving]:
    found = Serving(connections or Connections(most=100, most_of_address=100))
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def run() -> None:
        server = HttpServer(Names(), found.connections, **bounds)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            found.port = listener.getsockname()[1]
            await server.start(listener)
            found.started.set()
            await ended.wait()
            await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert found.started.wait(60)
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(60)
        loop.close()


def talk(port: int, *parts: bytes | float | int, answers: int = 0, wait_s: float = WAIT_S) -> tuple[bytes, float]:
    """What comes back until the service closes, and when it closed; `wait_s` where it did not.

    Args:
        parts: bytes to send, seconds to wait, a whole number of answers to wait for.
        answers: are waited for, however slow the machine is, before `wait_s` begins.
    """

    async def run() -> tuple[bytes, float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began, found = time.perf_counter(), bytearray()

        async def read() -> float:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    found.extend(data)
            return time.perf_counter() - began

        async def answered(count: int) -> None:
            until = time.perf_counter() + WAIT_S
            while found.count(b"HTTP/1.1 ") < count and not closed.done() and time.perf_counter() < until:
                await asyncio.sleep(0.01)

        closed = asyncio.create_task(read())
        with contextlib.suppress(ConnectionError):  # closed while this client still wrote
            for part in parts:
                if isinstance(part, float):
                    await asyncio.sleep(part)
                elif isinstance(part, int):
                    await answered(part)
                else:
                    writer.write(part)
                    await writer.drain()
        await answered(answers)
        done, _ = await asyncio.wait({closed}, timeout=wait_s)
        seconds = closed.result() if done else wait_s
        closed.cancel()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        return bytes(found), seconds

    return asyncio.run(run())
