"""uvicorn's HTTP protocol with bounds: on the size and time of a request's head, and on requests sent ahead.

A client may close its half of the connection once it has asked (`shutdown(SHUT_WR)`): what it asked whole is answered,
then the connection is closed. A client that is gone looks the same until something is sent to it, so one that waits
long gets the constant start of its answer a byte at a time; where nobody is left, the second byte fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MOST_HEAD_BYTES = 64 << 10
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_START = b"HTTP/1.1 "
"""Of every answer."""


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose request line and headers do not end, in bytes or in time.

    A head that comes in one piece, as nearly all do, costs no timer. Time between requests is uvicorn's keep-alive.
    Written against uvicorn 0.54, which parses heads of any size, and reads on with every answer however many requests
    of the connection wait already.
    """

    head_timeout_s = 10.0
    linger_s = 1.0
    """How long after a refusal what the client still sends is read and dropped: closed with unread bytes, TCP would
    reset the connection, and the client would lose the answer."""
    first_probe_s, next_probe_s = 0.25, 0.1
    """After the client's end of file, and between the first two bytes; each later one waits twice as long."""
    _expects_head = True
    _in_head = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _stepped = False
    """Whether the parser got anywhere with the last bytes; it says nothing of blank lines between requests."""
    _given_up = False
    _answering: RequestResponseCycle | None = None
    """The request that was handed to the application last; `cycle` is the newest that was read."""
    _no_more_comes = False
    _probe_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.flow = _OneAhead(transport, self.pipeline)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True  # uvicorn tells the newest alone
            self._answering.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._given_up:
            return
        self._stepped = False
        super().data_received(data)
        if self._in_head and not self._stepped:  # where a head began among these bytes, others came before it
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._give_up(_TOO_LONG)
        if self._head_timer is None and (self._in_head or (self._expects_head and not self._stepped)):
            self._await_head()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's closes in every case
        """Whether answers are owed, for which the connection stays open."""
        self._no_more_comes = True
        self._head_came()
        if self.pipeline and self.cycle.more_body:  # cut off: it could only wait for the rest of its body
            self.pipeline.popleft()
        owed = self._answering is not None and not self._answering.response_complete
        if self._given_up or not owed or (self._answering is self.cycle and self.cycle.more_body):
            return False
        self._probe_timer = self.loop.call_later(self.first_probe_s, self._probe, self.next_probe_s)
        return True

    def on_response_complete(self) -> None:
        last = not self.pipeline
        super().on_response_complete()
        if last and self._no_more_comes:
            self.transport.close()

    def on_message_begin(self) -> None:
        self._in_head = self._stepped = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = self._expects_head = False
        self._head_came()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._expects_head = self._stepped = True
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _probe(self, pause_s: float) -> None:
        """Send one more byte of the answer's start; `pause_s` until the next."""
        cycle = self._answering
        assert cycle is not None
        if self.transport.is_closing():
            return
        if not cycle.response_started and not cycle.waiting_for_100_continue:
            if not isinstance(cycle.transport, _Begun):
                cycle.transport = _Begun(self.transport)
            cycle.transport.begin()
        self._probe_timer = self.loop.call_later(pause_s, self._probe, 2 * pause_s)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._too_slow)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        self._give_up(_TOO_SLOW if self._in_head else b"")

    def _give_up(self, answer: bytes) -> None:
        self._head_came()
        if self.transport.is_closing():
            return
        if not answer:
            self.transport.close()
            return
        self._given_up = True
        self.transport.write(answer)
        self.transport.write_eof()
        self.loop.call_later(self.linger_s, self.transport.close)


class _OneAhead(FlowControl):
    """Reads on only when no request of the connection waits for the one before it."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class _Begun(asyncio.Transport):
    """What an answer is written to whose first bytes were sent before it was known."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport, self._sent = transport, 0

    def begin(self) -> None:
        """Send the next byte of what every answer begins with, while there is one."""
        if self._sent < len(_START):
            self._transport.write(_START[self._sent : self._sent + 1])
            self._sent += 1

    def write(self, data: bytes | bytearray | memoryview) -> None:
        left, self._sent = memoryview(data)[self._sent :], 0
        self._transport.write(left)

    def close(self) -> None:
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
