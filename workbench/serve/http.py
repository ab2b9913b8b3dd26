"""HTTP/1.1 with bounds: on time, on what a request's head may be, and one request at a time.

The parser (llhttp, by httptools) decides what is valid; what it does not bound is counted here: bytes and fields of a
head, and everything of a chunked body that is not its content (sizes, extensions, leading zeros, trailers). A request
that is sent before the one before it was answered is not taken: the connection closes with that answer, and the client
may ask again [RFC 9112 9.3.2].

Servers for applications of any kind (uvicorn's protocol was tried) keep as many requests as were sent ahead, take heads
and trailers of any size, let trailers speak as if they were headers, and close while their client still writes.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol, cast

import httptools

from workbench.serve.connections import Connections, Idleness, address_of
from workbench.serve.refusals import Refusal

BACKLOG = 2048
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
_HEAD = f"The request's head has more than {MOST_HEAD_BYTES} bytes or {MOST_FIELDS} fields."
_CHUNKS = f"The chunked body has more than {MOST_CHUNK_OVERHEAD_BYTES} bytes that are no content."
_STOP_S = 1.0
"""How long answers may still be written when the server stops."""

Headers = list[tuple[bytes, bytes]]
Answer = tuple[int, Headers, bytes]
"""Status, headers beside those of the framing, content."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request.

    Attributes:
        target: of the path alone.
        headers: names in lower case.
        here: the address at which its connection arrived.
        arrived_s: when the head was whole, by `time.perf_counter`.
    """

    method: bytes
    path: bytes
    headers: Headers
    here: str
    arrived_s: float


class Site(Protocol):
    """What answers requests."""

    def begin(self, head: Head) -> int | None:
        """Bytes that the body may have; None for one that is read and dropped. Raises Refusal before it is read."""

    async def answer(self, head: Head, body: bytes) -> Answer:
        """Never raises, but is cancelled where the client goes."""

    def refused(self, head: Head | None, refusal: Refusal) -> None:
        """Count what ends before `answer`; no head where none came."""

    def hold(self, size: int) -> None:
        """Count bytes of bodies that are not whole; negative when they are let go. Raises Refusal."""


class HttpServer:
    """A site behind a socket that listens."""

    def __init__(self, site: Site, connections: Connections, **bounds: float) -> None:
        """`bounds`: attributes of `HttpConnection` that are to differ, such as `head_timeout_s`."""
        self._site, self.connections, self._bounds = site, connections, bounds

    async def start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connected, sock=listener, backlog=BACKLOG)

    async def stop(self) -> None:
        """Accept nothing new, write answers that are on their way for a moment, close everything."""
        self._server.close()
        for connection in self.connections.all():
            connection.end()
        until_s = time.monotonic() + _STOP_S
        while self.connections.count and time.monotonic() < until_s:
            await asyncio.sleep(0.01)
        for connection in self.connections.all():
            connection.make_room()

    def _connected(self) -> HttpConnection:
        made = HttpConnection(self._site, self.connections)
        for name, value in self._bounds.items():
            setattr(made, name, value)
        return made


class HttpConnection(asyncio.Protocol):
    """One connection's requests, one after the other."""

    head_timeout_s = 10.0
    body_timeout_s = 10.0
    keep_alive_s = 75.0
    """Longer than the usual 60 s of a load balancer in front, which must be the one to close an idle connection."""
    write_timeout_s = 30.0
    """For a client that does not read its answers."""
    linger_s = 3.0
    """How long after the last answer what the client still sends is read and dropped: closed with unread bytes, TCP
    would reset the connection, and the client would lose the answer."""

    def __init__(self, site: Site, connections: Connections) -> None:
        self._site, self._all = site, connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self.address = self._here = ""
        self._bytes = self._dropped = 0
        """Of the current request, content of its body left out; of a body that nobody wants."""
        self._url, self._headers, self._head = b"", Headers(), Head(b"", b"", [], "", 0.0)
        self._pieces: list[bytes] = []
        self._limit: int | None = 0
        self._held = 0
        self._in_head = self._in_body = self._chunked = False
        self._known = False
        """A whole head came, once."""
        self._answered = False
        """The current request, before its body was whole."""
        self._keep = True
        self._task: asyncio.Task[None] | None = None
        """Answers a request that is whole."""
        self._began = False
        """A request did, in the bytes that are read now. One that is refused by its head is answered at once, without a
        task: a flood of them in one read must not be answered one by one."""
        self._ahead = False
        """A request came before the one before it was answered: what comes is dropped until that is."""
        self._given_up = False
        """What still comes is dropped."""
        self._timer: asyncio.TimerHandle | None = None
        """For a head, for a body, between requests, and for the end; never two at a time."""
        self._write_timer: asyncio.TimerHandle | None = None

    # --- what the transport says ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        self.address = address_of(transport.get_extra_info("peername"))
        self._here = str((transport.get_extra_info("sockname") or ("",))[0])
        if self._all.admit(self, self.address, self._loop.time()):
            self._after(self.head_timeout_s, self._head_too_slow)
        else:
            self._given_up = True
            self._write(Refusal("overloaded", "There are too many connections.", 1).answer(), close=True)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._given_up = True
        self._all.remove(self)
        self._on_time()
        self.resume_writing()
        self._let_go()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if self._given_up or self._ahead:
            return
        if self._known and not self._bytes:  # the first of another request
            self._on_time()
        self._bytes += len(data)
        self._began = False
        if not self._in_body and b"upgrade" in data.lower():
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"\nX-Declined:", head) + end + rest
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # the next request is HTTP/1.1 again
            self._parser = httptools.HttpRequestParser(self)
        except httptools.HttpParserError as error:
            why = error.__context__  # what one of our methods raised
            self._give_up(why if isinstance(why, Refusal) else _bad("This is no valid HTTP/1.1 request."))
        if self._bytes > (_MOST_FRAMING_BYTES if self._in_body else MOST_HEAD_BYTES):
            self._give_up(_bad(_CHUNKS) if self._in_body else Refusal("head_too_large", _HEAD, close=True))
        if self._task is None and not self._given_up:
            self._await_more()

    def pause_writing(self) -> None:
        self._write_timer = self._loop.call_later(self.write_timeout_s, self._transport.abort)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # --- what the bounds over all connections ask, and the server ---------------------------------------------------

    def idleness(self) -> Idleness:
        if not self._given_up and (self._task is not None or self._in_body):
            return "busy"
        return "between requests" if self._known and not (self._bytes or self._given_up) else "without a request"

    def make_room(self) -> None:
        """Close, for another connection."""
        self._given_up = True
        self._transport.abort()

    def end(self) -> None:
        """Close once the request that is on its way was answered."""
        self._keep = False
        if self._task is None:
            self._transport.close()

    # --- what the parser says ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._began or self._task is not None or self._write_timer is not None:
            raise _bad("Requests are taken one after the other.")
        self._began, self._in_head, self._url, self._headers = True, True, b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # a trailer's X-API-Key or Host is none
            return
        if len(self._headers) == MOST_FIELDS:
            raise Refusal("head_too_large", _HEAD, close=True)
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._on_time()
        url, headers, method = self._url, self._headers, self._parser.get_method()
        if sum(len(name) + len(value) for name, value in headers) + len(url) > MOST_HEAD_BYTES:
            raise Refusal("head_too_large", _HEAD, close=True)
        version = self._parser.get_http_version()
        length = body_length(version, method, url, headers)
        if length != 0 and self._parser.should_upgrade():
            raise _bad("Nothing is upgraded to here.")
        self._keep = self._keep and version == "1.1" and self._parser.should_keep_alive()
        self._chunked = length is None
        self._in_head, self._in_body, self._known, self._answered = False, True, True, False
        self._dropped, self._pieces = 0, []
        path = url if url.startswith(b"/") else b"/" + url.partition(b"://")[2].partition(b"/")[2]
        self._head = Head(method, path.partition(b"?")[0], headers, self._here, time.perf_counter())
        try:
            self._limit = self._site.begin(self._head)
        except Refusal as refusal:
            self._refuse(refusal)
        else:
            if version == "1.1" and (b"expect", b"100-continue") in ((n, v.lower()) for n, v in headers):
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._bytes -= len(body)
        if self._given_up:
            return
        if self._answered or self._limit is None:
            self._dropped += len(body)
            if self._dropped > _DROPPED_BYTES:
                self.close()
            return
        try:
            self._site.hold(len(body))
            self._held += len(body)
            if self._held > self._limit:
                raise too_large(self._limit)
        except Refusal as refusal:
            self._refuse(refusal)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._given_up:
            return
        if self._chunked and self._bytes > _MOST_FRAMING_BYTES and not self._answered:
            raise _bad(_CHUNKS)
        self._on_time()
        self._in_body, self._bytes = False, 0
        self._let_go()
        if not self._answered:
            self._task = self._loop.create_task(self._answer(self._head, b"".join(self._pieces)))
        self._pieces = []

    # --- answers and ends -------------------------------------------------------------------------------------------

    async def _answer(self, head: Head, body: bytes) -> None:
        answer = await self._site.answer(head, body)
        self._task = None
        self._write(answer, close=not self._keep)
        if self._keep:
            self._await_more()
        else:
            self.close()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer before the body is whole; the rest of it is dropped."""
        self._site.refused(self._head, refusal)
        self._answered = True
        self._let_go()
        self._write(refusal.answer(), close=refusal.close or not self._keep)
        if refusal.close or not self._keep:
            self.close()
        else:
            self._after(self.linger_s, self._transport.close)

    def _write(self, answer: Answer, *, close: bool) -> None:
        if self._transport.is_closing():
            return
        status, headers, content = answer
        lines = [
            b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode()),
            b"date: " + _date(),
            *(name + b": " + value for name, value in headers),
            b"content-length: %d" % len(content),
            *([b"connection: close"] if close else []),
        ]
        self._transport.write(b"\r\n".join((*lines, b"", b"" if self._head.method == b"HEAD" else content)))

    def _give_up(self, refusal: Refusal) -> None:
        """Say why, where no answer was begun, and close."""
        if self._given_up:
            return
        if self._task is not None:  # of the request before it
            self._ahead, self._keep = True, False
            return
        if not (self._in_body and self._answered):
            self._site.refused(self._head if self._in_body else None, refusal)
            self._write(refusal.answer(), close=True)
        self.close()

    def close(self) -> None:
        """Close once everything was written, and the client, which may still write, has seen it."""
        if self._given_up or self._transport.is_closing():
            return
        self._given_up = True
        self._let_go()
        self._transport.write_eof()
        waits = self._transport.get_write_buffer_size()
        self._after(self.write_timeout_s if waits else self.linger_s, self._transport.abort)

    def _let_go(self) -> None:
        self._site.hold(-self._held)
        self._held = 0

    # --- time -------------------------------------------------------------------------------------------------------

    def _after(self, delay_s: float, then: Callable[[], None]) -> None:
        self._on_time()
        self._timer = self._loop.call_later(delay_s, then)

    def _on_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _await_more(self) -> None:
        """No connection is left without a timer."""
        if self._timer is not None:
            return
        if self._in_body:
            self._after(self.body_timeout_s, self._body_too_slow)
        elif self._in_head or self._bytes:
            self._after(self.head_timeout_s, self._head_too_slow)
        else:
            self._after(self.keep_alive_s, self._transport.close)

    def _head_too_slow(self) -> None:
        if self._in_head:
            self._give_up(Refusal("slow", "The request's head did not come in time.", close=True))
        else:
            self._transport.close()

    def _body_too_slow(self) -> None:
        self._give_up(Refusal("slow", f"The body did not come within {self.body_timeout_s:g} s.", close=True))


def body_length(version: str, method: bytes, target: bytes, headers: Headers) -> int | None:
    """Bytes of the body that such a head announces, None for a chunked one.

    Args:
        headers: their names in lower case.

    Raises:
        Refusal: the head can be read in two ways, or asks for what is not served here.
    """
    if version not in ("1.1", "1.0"):
        raise _bad("Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    if method == b"CONNECT":
        raise _bad("This is no proxy.")
    if not target.startswith(b"/") and target != b"*" and not _names_its_host(target, headers):
        raise _bad("The target must be a path, or a URL of the host that Host names.")
    if b"#" in target:
        raise _bad("The target must have no fragment.")
    length: int | None = 0
    for name, value in headers:
        if name == b"content-length":
            length = int(value)  # the parser saw: digits, once, and no transfer coding beside it
        elif name == b"transfer-encoding":
            if version == "1.0" or length is None or value.lower() != b"chunked":
                raise _bad("Of transfer codings only HTTP/1.1's chunked is known.")
            length = None
    return length


def _names_its_host(target: bytes, headers: Headers) -> bool:
    """A proxy's form of the target is an attack where it contradicts Host [RFC 9112 3.2.2]."""
    scheme, found, rest = target.partition(b"://")
    authority = rest.partition(b"/")[0].partition(b"?")[0].lower()
    hosts = [value.strip().lower() for name, value in headers if name == b"host"]
    return bool(found) and scheme.lower() in (b"http", b"https") and hosts == [authority]


def too_large(limit: int) -> Refusal:
    return Refusal("too_large", f"The body has more than {limit} bytes.", close=True)


def _bad(message: str) -> Refusal:
    """A new one each time: one that is raised again keeps the frames, and so the bytes, of every time before."""
    return Refusal("bad_request", message, close=True)


_dated: tuple[int, bytes] = 0, b""


def _date() -> bytes:
    global _dated
    now = int(time.time())
    if _dated[0] != now:
        _dated = now, formatdate(now, usegmt=True).encode()
    return _dated[1]
