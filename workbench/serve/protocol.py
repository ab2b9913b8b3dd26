"""uvicorn's HTTP protocol with bounds: on time, on what a request's head may be, and one request at a time.

Written against uvicorn 0.54, whose protocol keeps as many requests as were sent ahead, takes heads and trailers of any
size, lets trailers speak as if they were headers, and closes a connection while its client still writes.

The parser (llhttp, by httptools) decides what is valid; what it does not bound is counted here: bytes and fields of a
head, and everything of a chunked body that is not its content (sizes, extensions, leading zeros, trailers). A request
that is sent before the one before it was answered is not taken: the connection closes with that answer, and the client
may ask again [RFC 9112 9.3.2].
"""

from __future__ import annotations

import asyncio
import json
import re
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from workbench.serve.connections import Connections, Idleness, address_of
from workbench.serve.refusals import Refusal

MOST_HEAD_BYTES = 32 << 10
"""The target and the fields."""
MOST_FIELDS = 128
MOST_CHUNK_OVERHEAD_BYTES = 64 << 10
"""Of one body; a client that sends one byte in each chunk gets thirteen thousand of them through."""
_MOST_FRAMING_BYTES = MOST_HEAD_BYTES + MOST_CHUNK_OVERHEAD_BYTES
_UPGRADE = re.compile(rb"\nupgrade:", re.IGNORECASE)
"""Nothing is upgraded to here, and the parser drops the body of a request that asks for it, as Java's client does of
every plain server. A field that comes in two pieces is missed, and such a request refused where it has a body."""
_DROPPED_BYTES = 8 << 20
"""Of a body that is read on after its request was answered."""
_HEAD = f"{MOST_HEAD_BYTES} bytes or {MOST_FIELDS} fields"
_HEAD_TOO_LARGE = Refusal("head_too_large", f"The request's head has more than {_HEAD}.", close=True)
_CHUNKS = f"The chunked body has more than {MOST_CHUNK_OVERHEAD_BYTES} bytes that are no content."
_TOO_MUCH_FRAMING = Refusal("bad_request", _CHUNKS, close=True)
_SENT_AHEAD = Refusal("bad_request", "Requests are taken one after the other.", close=True)
_NOT_HTTP = Refusal("bad_request", "This is no valid HTTP/1.1 request.", close=True)
_TOO_SLOW_HEAD = Refusal("slow", "The request's head did not come in time.", close=True)
_NO_ROOM = Refusal("overloaded", "There are too many connections.", 1, close=True)


class _Refused(Exception):
    """Ends the parser, which drops what it says: `BoundedHttp._refusal` has it. A new one each time, since one that is
    raised again keeps the frames, and so the bytes, of every time before."""


def bounded_http(connections: Connections, **settings: float) -> Any:
    """What uvicorn makes its connections by: a callable with uvicorn's arguments.

    Args:
        settings: attributes of `BoundedHttp` that are to differ, such as `head_timeout_s`.
    """

    def make(**of_uvicorn: Any) -> BoundedHttp:
        http = BoundedHttp(connections, **of_uvicorn)
        for name, value in settings.items():
            setattr(http, name, value)
        return http

    return make


class BoundedHttp(HttpToolsProtocol):
    """One connection's requests, one after the other.

    A request that comes in one piece, as nearly all do, costs no timer. Time between requests is uvicorn's keep-alive.
    """

    head_timeout_s = 10.0
    body_timeout_s = 10.0
    write_timeout_s = 30.0
    """For a client that does not read its answers."""
    linger_s = 3.0
    """How long after the last answer what the client still sends is read and dropped: closed with unread bytes, TCP
    would reset the connection, and the client would lose the answer."""

    def __init__(self, connections: Connections, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._all, self.address, self._admitted = connections, "", False
        self._bytes = 0
        """Of the current request, content of its body left out."""
        self._in_head = self._in_body = self._chunked = False
        self._asked = False
        """A whole head came, once."""
        self._given_up = False
        """What still comes is dropped."""
        self._sent_ahead = False
        """So is what comes until the answer was written."""
        self._dropped = 0
        self._refusal: Refusal | None = None
        """Why a callback of the parser raised."""
        self._timer: asyncio.TimerHandle | None = None
        """For a head, for a body, and for the end; never two at a time."""
        self._write_timer: asyncio.TimerHandle | None = None

    # --- what the transport says ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        self.address = address_of(transport.get_extra_info("peername"))
        self._admitted = self._all.admit(self, self.address, self.loop.time())
        if not self._admitted:
            self._given_up = True
            transport.write(_answer(_NO_ROOM))
            transport.close()
            return
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._plain = transport
        self.transport: _Answers = _Answers(self, transport)
        self._after(self.head_timeout_s, self._head_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._admitted:
            return
        self._all.remove(self)
        self._on_time()
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._given_up or self._sent_ahead:
            return
        self._unset_keepalive_if_required()
        self._bytes += len(data)
        if not self._in_body and b"upgrade" in data.lower():
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"\nX-Declined:", head) + end + rest
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # the next request is HTTP/1.1 again
            self.parser = httptools.HttpRequestParser(self)
        except httptools.HttpParserError:
            self._give_up(self._refusal or _NOT_HTTP)
        if self._bytes > (_MOST_FRAMING_BYTES if self._in_body else MOST_HEAD_BYTES):
            self._give_up(_TOO_MUCH_FRAMING if self._in_body else _HEAD_TOO_LARGE)
        if not self._answering and not self._given_up:
            self._await_more()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.write_timeout_s, self._plain.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # --- what the bounds over all connections ask -------------------------------------------------------------------

    def idleness(self) -> Idleness:
        if self._given_up:
            return "without a request"
        if self._answering or self._in_body:
            return "busy"
        return "between requests" if self._asked and not self._bytes else "without a request"

    def make_room(self) -> None:
        """Close, for another connection."""
        self._given_up = True
        self._plain.abort()

    # --- from bytes to requests -------------------------------------------------------------------------------------

    @property
    def ending(self) -> bool:
        """Nothing is answered any more."""
        return self._given_up or self._plain.is_closing()

    @property
    def _answering(self) -> bool:
        """A whole request came and is not answered yet."""
        return not (self._in_body or self._in_head or self.cycle is None or self.cycle.response_complete)

    def _await_more(self) -> None:
        """No connection is left without a timer."""
        if self._timer is not None:
            return
        if self._in_body:
            self._after(self.body_timeout_s, self._body_too_slow)
        elif self._bytes:
            self._after(self.head_timeout_s, self._head_too_slow)
        else:
            self._unset_keepalive_if_required()
            idle = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
            self.timeout_keep_alive_task = idle

    def on_message_begin(self) -> None:
        if self._answering:
            self._refusal = _SENT_AHEAD
            raise _Refused
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # a trailer's X-API-Key or Host is none
            return
        if len(self.headers) == MOST_FIELDS:
            self._refusal = _HEAD_TOO_LARGE
            raise _Refused
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._on_time()
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > MOST_HEAD_BYTES:
            self._refusal = _HEAD_TOO_LARGE
            raise _Refused
        try:
            length = body_length(self.parser.get_http_version(), self.parser.get_method(), self.url, self.headers)
        except Refusal as refusal:
            self._refusal = refusal
            raise _Refused from None
        if length != 0 and self.parser.should_upgrade():
            self._refusal = Refusal("bad_request", "Nothing is upgraded to here.", close=True)
            raise _Refused
        self._chunked = length is None
        super().on_headers_complete()
        self._in_head, self._in_body, self._asked = False, True, True
        self._dropped = 0

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._bytes -= len(body)
        if self.cycle.response_complete:
            self._dropped += len(body)
            if self._dropped > _DROPPED_BYTES:
                self.transport.close()

    def on_message_complete(self) -> None:
        if self._chunked and self._bytes > _MOST_FRAMING_BYTES and not self.cycle.response_complete:
            self._refusal = _TOO_MUCH_FRAMING
            raise _Refused
        self._on_time()
        self._in_body = False
        self._bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body:
            self._after(self.linger_s, self._plain.close)

    # --- ends -------------------------------------------------------------------------------------------------------

    def _after(self, delay_s: float, then: Any) -> None:
        self._on_time()
        self._timer = self.loop.call_later(delay_s, then)

    def _on_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_too_slow(self) -> None:
        if self._in_head:
            self._give_up(_TOO_SLOW_HEAD)
        else:
            self.transport.close()

    def _body_too_slow(self) -> None:
        words = f"The body did not come within {self.body_timeout_s:g} s."
        self._give_up(Refusal("slow", words, close=True))

    def _give_up(self, refusal: Refusal) -> None:
        """Say why, where no answer was begun, and close."""
        if self.ending:
            return
        cycle = self.cycle
        if self._answering:  # of the request before it
            self._sent_ahead, cycle.keep_alive = True, False
            return
        if self._in_body and cycle is not None:
            begun = cycle.response_started
            cycle.disconnected = True  # whoever answers it need not
            cycle.message_event.set()
        else:
            begun = False
        self._all.rejected(refusal.kind)
        if not begun:
            self.transport.write(_answer(refusal))
        self.close(unread=True)

    def close(self, *, unread: bool = False) -> None:
        """Close once everything was written; with `unread`, or where more comes, only after a while."""
        if self.ending:
            return
        self._given_up = True
        self._unset_keepalive_if_required()
        if unread or self._sent_ahead or self._in_body:
            self._plain.write_eof()
            self.flow.resume_reading()
        else:
            self._plain.close()
        self._after(self.linger_s, self._plain.abort)


def body_length(version: str, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> int | None:
    """Bytes of the body that such a head announces, None for a chunked one.

    Args:
        headers: their names in lower case.

    Raises:
        Refusal: the head can be read in two ways, or asks for what is not served here.
    """
    if version not in ("1.1", "1.0"):
        raise Refusal("bad_request", "Only HTTP/1.1 and HTTP/1.0 are spoken here.", close=True)
    if method == b"CONNECT":
        raise Refusal("bad_request", "This is no proxy.", close=True)
    if not target.startswith(b"/") and target != b"*" and not _names_its_host(target, headers):
        raise Refusal("bad_request", "The target must be a path, or a URL of the host that Host names.", close=True)
    if b"#" in target:
        raise Refusal("bad_request", "The target must have no fragment.", close=True)
    length: int | None = 0
    for name, value in headers:
        if name == b"content-length":
            length = int(value)  # the parser saw: digits, once, and no transfer coding beside it
        elif name == b"transfer-encoding":
            if version == "1.0" or length is None or value.lower() != b"chunked":
                raise Refusal("bad_request", "Of transfer codings only HTTP/1.1's chunked is known.", close=True)
            length = None
    return length


def _names_its_host(target: bytes, headers: list[tuple[bytes, bytes]]) -> bool:
    """A proxy's form of the target is an attack where it contradicts Host [RFC 9112 3.2.2]."""
    scheme, found, rest = target.partition(b"://")
    authority = rest.partition(b"/")[0].partition(b"?")[0].lower()
    hosts = [value.strip().lower() for name, value in headers if name == b"host"]
    return bool(found) and scheme.lower() in (b"http", b"https") and hosts == [authority]


def _answer(refusal: Refusal) -> bytes:
    content = json.dumps(refusal.body()).encode()
    lines = [
        b"HTTP/1.1 %d %s" % (refusal.status, HTTPStatus(refusal.status).phrase.encode()),
        b"content-type: application/json",
        b"content-length: %d" % len(content),
        *(name + b": " + value for name, value in refusal.headers()),
    ]
    return b"\r\n".join((*lines, b"", content))


class _Flow(FlowControl):
    """uvloop's transports raise where they are asked for this and close already."""

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            super().pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            super().resume_reading()


class _Answers(asyncio.Transport):
    """What uvicorn writes answers to: closing is left to the protocol, which knows whether more comes."""

    def __init__(self, http: BoundedHttp, transport: asyncio.Transport) -> None:
        super().__init__()
        self._http = http
        self.write, self.get_extra_info = transport.write, transport.get_extra_info  # type: ignore[method-assign]

    def close(self) -> None:
        self._http.close()

    def is_closing(self) -> bool:
        return self._http.ending
