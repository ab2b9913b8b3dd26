"""As much of HTTP/1.1 as a load generator needs: a request encoded once, an answer recognised with few operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ProtocolError(Exception):
    """The peer sent something that is no answer to the request; the connection is of no more use."""


LONGEST_HEAD_BYTES = 65_536
LONGEST_BODY_BYTES = 64 * 1024 * 1024
_MOST_DIGITS = 20


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
    """Feeds bytes until one answer is whole; one answer at a time, since requests are not pipelined.

    Attributes:
        status: of the last whole answer.
        keep_alive: whether the connection may be used again after it.
    """

    __slots__ = ("_buffer", "_left", "_to_end", "body_bytes", "keep_alive", "status")

    def __init__(self) -> None:
        self._buffer = b""
        self._left = -1  # bytes of the body still to come; -1 while the head is incomplete
        self._to_end = False
        self.status = 0
        self.keep_alive = True
        self.body_bytes = 0

    @property
    def started(self) -> bool:
        """Whether part of an answer has arrived."""
        return bool(self._buffer) or self._left >= 0 or self._to_end

    def feed(self, data: bytes) -> bool:
        """True once the answer is whole.

        Raises:
            ProtocolError: these bytes are no HTTP/1.1 answer with a length, or more than one.
        """
        if self._to_end:
            self.body_bytes += len(data)
            self._check_size(self.body_bytes)
            return False
        if self._left < 0:
            data = self._buffer + data if self._buffer else data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > LONGEST_HEAD_BYTES or not b"HTTP/1.".startswith(data[:7]):
                    raise ProtocolError("no HTTP/1.1 answer")
                self._buffer = data
                return False
            self._buffer = b""
            to_end = self._read_head(data[:end].lower())
            data = data[end + 4 :]
            if to_end:
                self._to_end = True
                return self.feed(data) if data else False
        self._left -= len(data)
        if self._left < 0:
            raise ProtocolError("more bytes than the answer's Content-Length")
        if self._left:
            return False
        self._left = -1
        return True

    def end(self) -> bool:
        """The peer closed; True when that is what ends the answer."""
        whole, self._to_end = self._to_end, False
        return whole

    def _read_head(self, head: bytes) -> bool:
        """Take in a head, lower-cased; True when the body ends with the connection."""
        found = parse_head(head)
        self.status, self.keep_alive = found.status, found.keep_alive
        if found.length is not None:
            self._left = self.body_bytes = found.length
            return False
        if found.chunked:
            raise ProtocolError("a chunked answer, which this client does not read")
        self.body_bytes = 0
        return True

    def _check_size(self, size: int) -> None:
        if size > LONGEST_BODY_BYTES:
            raise ProtocolError(f"an answer of more than {LONGEST_BODY_BYTES} bytes")
