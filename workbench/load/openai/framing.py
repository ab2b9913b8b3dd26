"""The body of an HTTP/1.1 answer as it arrives: of a known length, in chunks, or until the connection ends; and out of
it the data of server-sent events (WHATWG HTML, section 9.2.6)."""

from __future__ import annotations

from workbench.load.http1 import LONGEST_BODY_BYTES, LONGEST_HEAD_BYTES, Head, ProtocolError, parse_head

_LONGEST_SIZE_LINE = 4096
_HEX = frozenset(b"0123456789abcdefABCDEF")
_MOST_HEX_DIGITS = 8


class BodyReader:
    """One answer. Bytes go in, those of its body come out; framing of chunks (RFC 9112, section 7.1) is taken off.

    Attributes:
        head: once it is complete.
        whole: whether the answer is complete.
    """

    __slots__ = ("_body_bytes", "_buffer", "_closing", "_left", "_trailer_bytes", "_trailers", "head", "whole")

    def __init__(self) -> None:
        self.head: Head | None = None
        self.whole = False
        self._buffer = b""
        self._left = 0
        self._closing = self._trailers = False
        self._body_bytes = self._trailer_bytes = 0

    def feed(self, data: bytes) -> bytes:
        """The body's bytes among these.

        Raises:
            ProtocolError: no HTTP/1.1 answer, or one beyond a bound.
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
                return b""
            self.head = parse_head(data[:end].lower())
            data = data[end + 4 :]
            if not self.head.chunked and self.head.length is not None:
                self._left = self.head.length
        body = self._unchunked(data) if self.head.chunked else self._plain(data, self.head.length)
        self._body_bytes += len(body)
        if self._body_bytes > LONGEST_BODY_BYTES:
            raise ProtocolError(f"an answer of more than {LONGEST_BODY_BYTES} bytes")
        return body

    def end(self) -> None:
        """The peer closed the connection; that is the end of a body that has no other."""
        if self.head is not None and self.head.length is None and not self.head.chunked:
            self.whole = True

    def _plain(self, data: bytes, length: int | None) -> bytes:
        if length is None:
            return data
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


LONGEST_EVENT_BYTES = 1 << 20


class EventReader:
    """Lines end with \\n, \\r\\n or \\r; an event with an empty line. Comments, which servers send to keep a connection
    alive, and fields other than `data` are dropped."""

    __slots__ = ("_after_return", "_data", "_data_bytes", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._after_return = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of every event that these bytes complete.

        Raises:
            ProtocolError: an event of more than `LONGEST_EVENT_BYTES`.
        """
        if self._after_return and piece.startswith(b"\n"):  # the second half of a line's end
            piece = piece[1:]
            self._after_return = False
        if b"\r" in piece:
            self._after_return = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        elif piece:
            self._after_return = False
        self._rest += piece
        if b"\n" not in piece:
            self._check(len(self._rest))
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        found: list[bytes] = []
        for line in lines:
            self._check(len(line))
            if line:
                self._field(line)
            else:
                found += self._event()
        self._check(len(rest))
        return found

    def end(self) -> list[bytes]:
        """What is left when the body is over: a last event without its empty line, which LitServe's errors are."""
        self._field(bytes(self._rest))
        self._rest.clear()
        return self._event()

    def _field(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._data_bytes += len(line)
            self._check(self._data_bytes)

    def _event(self) -> list[bytes]:
        data = b"\n".join(self._data)
        self._data.clear()
        self._data_bytes = 0
        return [data] if data else []

    def _check(self, size: int) -> None:
        if size > LONGEST_EVENT_BYTES:
            raise ProtocolError(f"an event of more than {LONGEST_EVENT_BYTES} bytes")
