"""The load generator's connection to a server that streams, and where its times go."""

from __future__ import annotations

import asyncio
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.load.client import Connection
from workbench.load.openai.answer import StreamedAnswer, StreamReader
from workbench.load.outcomes import CLOSED, GARBAGE, TIMEOUT

if TYPE_CHECKING:
    from workbench.load.client import Clients

MOST_CHUNKS = 20_000_000
"""Times that are kept: 160 MB. A load that brings more ends there."""
_UNTOLD = -1


@dataclass(slots=True, kw_only=True)
class Streams:
    """Streams in the order of their ends, beside a `Recording`.

    Attributes:
        row: place of the request in the recording.
        chunks: with text; their times stand in `chunk_s` one stream behind the other.
        tokens, prompt_tokens: by the server's usage, -1 where it told none.
        error: the first that a server reported in a stream.
    """

    row: array[int] = field(default_factory=lambda: array("q"))
    chunks: array[int] = field(default_factory=lambda: array("q"))
    tokens: array[int] = field(default_factory=lambda: array("q"))
    prompt_tokens: array[int] = field(default_factory=lambda: array("q"))
    chunk_s: array[float] = field(default_factory=lambda: array("d"))
    error: str = ""

    @property
    def full(self) -> bool:
        return len(self.chunk_s) >= MOST_CHUNKS

    def add(self, row: int, answer: StreamedAnswer) -> None:
        self.row.append(row)
        self.chunks.append(len(answer.text_s))
        self.tokens.append(_UNTOLD if answer.tokens is None else answer.tokens)
        self.prompt_tokens.append(_UNTOLD if answer.prompt_tokens is None else answer.prompt_tokens)
        self.chunk_s.extend(answer.text_s)
        self.error = self.error or answer.error

    def arrays(self, begin_s: float) -> dict[str, npt.NDArray[np.generic]]:
        """For the file of times; seconds from the load's begin."""
        return {
            "stream_row": np.array(self.row, dtype=np.int64),
            "stream_chunks": np.array(self.chunks, dtype=np.int64),
            "stream_tokens": np.array(self.tokens, dtype=np.int64),
            "stream_prompt_tokens": np.array(self.prompt_tokens, dtype=np.int64),
            "chunk_s": np.array(self.chunk_s, dtype=np.float64) - begin_s,
        }


class StreamConnection(Connection):
    """One client. A request is over when the body of its answer is; its time ends where the stream said it is done."""

    __slots__ = ("stream", "streams")

    def __init__(self, clients: Clients, intended_s: float, streams: Streams) -> None:
        self.stream = StreamReader()
        self.streams = streams
        super().__init__(clients, intended_s, self.stream)

    def _finish(self, outcome: int, done_s: float | None = None) -> None:
        stream, streams = self.stream, self.streams
        if outcome in (CLOSED, TIMEOUT, GARBAGE) and stream.ended:  # whole for its reader; only the framing is not
            outcome = stream.status
        if stream.answer.events:
            streams.add(len(self.clients.recording.done_s), stream.answer)
        super()._finish(outcome, stream.answer.done_s if outcome > 0 else done_s)
        if streams.full:
            self.clients.stop()


async def open_stream(streams: Streams, clients: Clients, intended_s: float) -> None:
    """One connection more; raises OSError where nobody takes it."""
    host, port = clients.plan.address
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: StreamConnection(clients, intended_s, streams), host, port)
