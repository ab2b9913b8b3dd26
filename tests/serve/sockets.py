"""uvicorn with our protocol on a socket of its own, and a client that sends it any bytes."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn

from workbench.serve.connections import Connections
from workbench.serve.protocol import bounded_http

WAIT_S = 20.0
"""So long a client waits for its connection to be closed."""


gone: list[str] = []
"""Paths of requests whose client left before it was answered."""


async def answer_ok(scope: Any, receive: Any, send: Any) -> None:
    """Reads the whole body, then answers 200; /slow after 5 ms, and watching whether its client is still there.

    /unread is answered before its body came, /large with 16 MB, /names with the names of the headers.
    """
    waits = {"/slow": 0.005, "/slowest": 60.0}
    if scope["path"] in ("/unread", "/large"):
        content = b"o" * (16 << 20 if scope["path"] == "/large" else 2)
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(content))]}
        await send(head)
        await send({"type": "http.response.body", "body": content})
        return
    while (message := await receive()).get("more_body", False):
        pass
    if message["type"] == "http.disconnect":
        return
    if scope["path"] in waits:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(receive(), waits[scope["path"]])
            gone.append(scope["path"])
            return
    content = b" ".join(name for name, _ in scope["headers"]) if scope["path"] == "/names" else b"ok"
    length = (b"content-length", b"%d" % len(content))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": content})


@contextlib.contextmanager
def serving(connections: Connections | None = None, **settings: float) -> Iterator[uvicorn.Server]:
    http = bounded_http(connections or Connections(most=100, most_of_address=100), **settings)
    config = uvicorn.Config(
        answer_ok,
        http=http,
        ws="none",
        lifespan="off",
        log_config=None,
        port=0,
        timeout_keep_alive=30,
        server_header=False,
        date_header=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < until
        time.sleep(0.01)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(60)


def port_of(server: uvicorn.Server) -> int:
    found: int = server.servers[0].sockets[0].getsockname()[1]
    return found


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
