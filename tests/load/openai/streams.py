"""Streams as servers send them, for `tests.load.servers`; and LitServe's server as a program."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.load.servers import Handler, Server, answer, free_ports, program

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(text: str | None, finish: str | None = None) -> bytes:
    return event({"choices": [{"delta": {"content": text}, "finish_reason": finish}], "usage": None})


def usage(tokens: int, prompt: int = 5) -> bytes:
    return event({"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": prompt}})


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def whole(events: Sequence[bytes]) -> bytes:
    return HEAD + b"".join(chunk(one) for one in events) + b"0\r\n\r\n"


def text_events(tokens: int) -> list[bytes]:
    """A role first, as OpenAI sends it, then a word for each token, the reason, the usage."""
    words = [delta(f"w{number} ") for number in range(tokens)]
    return [delta(""), *words, delta(None, "length"), usage(tokens), DONE]


def streaming(
    events: Sequence[bytes], first_s: float = 0.0, gap_s: float = 0.0, *, last: bytes = b"0\r\n\r\n"
) -> Handler:
    """Each event in a chunk of its own, one gap after the other."""

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(HEAD)
        await asyncio.sleep(first_s)
        for one in events:
            writer.write(chunk(one))
            if gap_s:
                await asyncio.sleep(gap_s)
        writer.write(last)
        return bool(last)

    return handle


def refusing(needle: bytes, status: str, words: str, otherwise: Handler) -> Handler:
    """Requests that hold the needle get that status."""

    async def handle(server: Server, body: bytes, writer: asyncio.StreamWriter) -> bool:
        if needle in body:
            writer.write(answer(status, json.dumps({"error": {"message": words}}).encode()))
            return True
        return await otherwise(server, body, writer)

    return handle


@contextlib.contextmanager
def lit_server(log: Path) -> Iterator[str]:
    """The URL of LitServe's server (`lit_server.py`) until the block ends."""
    url = f"http://127.0.0.1:{(port := free_ports(1)[0])}"
    with program([sys.executable, str(Path(__file__).with_name("lit_server.py")), str(port)], f"{url}/health", log):
        yield url
