"""uvicorn's HTTP protocol with bounds: on the size and time of a request's head, and on requests sent ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Sized

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 << 10
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


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
    _expects_head = True
    _in_head = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _stepped = False
    """Whether the parser got anywhere with the last bytes; it says nothing of blank lines between requests."""
    _given_up = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.flow = _OneAhead(transport, self.pipeline)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
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
