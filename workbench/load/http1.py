"""As much of HTTP/1.1 as a load generator needs: a request encoded once, an answer recognised with few operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ProtocolError(Exception):
    """The peer sent something that is no answer to the request; the connection is of no more use."""


LONGEST_HEAD_BYTES = 65_536
LONGEST_BODY_BYTES = 64 * 1024 * 1024
_MOST_DIGITS = 20
_LONGEST_SIZE_LINE = 4096
_HEX = frozenset(b"0123456789abcdefABCDEF")
_MOST_HEX_DIGITS = 8


def encode_request(path: str, host: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a POST that keeps its connection open; of JSON, where `headers` name no other Content-Type."""
    given = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {host}",
        *(f"{name}: {value}" for name, value in given.items()),
    ]
    for line in lines:
        if "\r" in line or "\n" in line:
            raise ValueError("a header holds a line break")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class Head(NamedTuple):
    """Attributes: length: of the body; None where its chunks, or the connection's end, say where it ends."""

    status: int
    keep_alive: bool
    length: int | None
    chunked: bool


def parse_head(head: bytes) -> Head:
    """Of an answer, lower-cased and without the empty line behind it.

    Raises:
        ProtocolError: no HTTP/1.1 answer, an interim one, or a length that is none or too large.
    """
    if not head.startswith(b"http/1.") or not head[9:12].isdigit() or head[8:9] != b" ":
        raise ProtocolError("no HTTP/1.1 answer")
    status = int(head[9:12])
    if status < 200:  # 1xx: nothing this client sends asks for it
        raise ProtocolError(f"an interim answer, status {status}")
    keep_alive = b"\r\nconnection: close" not in head and head[7:8] == b"1"
    chunked = b"\r\ntransfer-encoding:" in head
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        if status in (204, 304):
            return Head(status, keep_alive, 0, False)
        return Head(status, keep_alive and chunked, None, chunked)
    stop = head.find(b"\r\n", at + 2)
    text = (head[at + 17 :] if stop < 0 else head[at + 17 : stop]).strip()
    if not text.isdigit() or len(text) > _MOST_DIGITS:
        raise ProtocolError(f"Content-Length {text[:20]!r}")
    if int(text) > LONGEST_BODY_BYTES:
        raise ProtocolError(f"an answer of more than {LONGEST_BODY_BYTES} bytes")
    return Head(status, keep_alive, int(text), chunked)


class AnswerReader:
    """One answer after the other, since requests are not pipelined: with a length, in chunks (RFC 9112, section 7.1),
    or until the connection ends.

    Attributes:
        head: once it is complete.
        whole: whether the answer is.
        body_bytes: that came so far.
    """

    __slots__ = ("_buffer", "_closing", "_left", "_trailer_bytes", "_trailers", "body_bytes", "head", "whole")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Expect the answer to another request."""
        self.head: Head | None = None
        self.whole = self._closing = self._trailers = False
        self._buffer = b""
        self._left = self.body_bytes = self._trailer_bytes = 0

    @property
    def status(self) -> int:
        """Of a whole answer; of what reads more than HTTP, also one of the codes of `workbench.load.outcomes`."""
        return 0 if self.head is None else self.head.status

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may be used again after it."""
        return self.head is not None and self.head.keep_alive

    def taken(self, body: bytes) -> None:
        """Bytes of the body, without its framing, which are of no interest here."""

    def feed(self, data: bytes) -> bool:
        """True once the answer is whole.

        Raises:
            ProtocolError: these bytes are no HTTP/1.1 answer, more than one, or beyond a bound.
        """
        if self.whole:
            raise ProtocolError("more bytes than the answer has")
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        if self.head is None:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > LONGEST_HEAD_BYTES or not b"HTTP/1.".startswith(data[:7]):
                    raise ProtocolError("no HTTP/1.1 answer")
                self._buffer = data
                return False
            self.head = parse_head(data[:end].lower())
            self._left = self.head.length or 0
            data = data[end + 4 :]
        body = self._unchunked(data) if self.head.chunked else self._plain(data, self.head.length)
        self.body_bytes += len(body)
        if self.body_bytes > LONGEST_BODY_BYTES:
            raise ProtocolError(f"an answer of more than {LONGEST_BODY_BYTES} bytes")
        self.taken(body)
        return self.whole

    def end(self) -> bool:
        """The peer closed; True when that is what ends the answer, as that of a body which has no other end."""
        self.whole = self.head is not None and self.head.length is None and not self.head.chunked
        return self.whole

    def _plain(self, data: bytes, length: int | None) -> bytes:
        if length is not None:
            self._left -= len(data)
            if self._left < 0:
                raise ProtocolError("more bytes than the answer's Content-Length")
            self.whole = self._left == 0
        return data

    def _unchunked(self, data: bytes) -> bytes:
        found: list[bytes] = []
        at = 0
        while not self.whole and at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                found.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._closing = self._left == 0
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > _LONGEST_SIZE_LINE:
                    raise ProtocolError("a chunk without a size")
                self._buffer = data[at:]
                return b"".join(found)
            self._line(data[at:end])
            at = end + 2
        if at < len(data):
            raise ProtocolError("more bytes than the answer has")
        return b"".join(found)

    def _line(self, line: bytes) -> None:
        """A line between the data of two chunks, or behind the last."""
        if self._closing:
            if line:
                raise ProtocolError("a chunk is longer than its size")
            self._closing = False
        elif self._trailers:
            self.whole = not line
            self._trailer_bytes += len(line)
            if self._trailer_bytes > LONGEST_HEAD_BYTES:
                raise ProtocolError(f"trailers of more than {LONGEST_HEAD_BYTES} bytes")
        else:
            size = line.split(b";", 1)[0].strip()
            if not 0 < len(size) <= _MOST_HEX_DIGITS or not _HEX.issuperset(size):
                raise ProtocolError(f"{size[:20]!r} is no size of a chunk")
            self._left = int(size, 16)
            self._trailers = self._left == 0
