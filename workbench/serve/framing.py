"""Where one HTTP request ends and the next begins, so that a parser is given one at a time.

The parser (llhttp, by httptools) decides what is valid. It cannot be paused, and would turn 16 KiB of requests sent
ahead into a thousand objects in one go. So its input is cut here into pieces that never reach beyond the end of the
current request, and what no parser bounds is bounded: bytes and lines of a head, and everything of a chunked body that
is not its content (sizes, extensions, leading zeros, trailers).

Sources: RFC 9112 sections 2.2 (blank lines before a request), 6.3 (length of a body), 7.1 (chunked).
"""

from __future__ import annotations

import re
from typing import Literal

from workbench.serve.refusals import Refusal

MOST_HEAD_BYTES = 32 << 10
MOST_HEAD_LINES = 128
"""The request line, the fields, and blank lines before and after them."""
MOST_CHUNK_LINE_BYTES = 256
MOST_CHUNK_OVERHEAD_BYTES = 64 << 10
"""Of one body; a client that sends one byte in each chunk gets thirteen thousand of them through."""

_HEAD_END = b"\r\n\r\n"
_SIZE = re.compile(rb"[0-9a-fA-F]+")


class Framing:
    """Cuts the bytes of one connection; `start` and `body` follow what the parser says of the current request."""

    __slots__ = ("_head_bytes", "_head_lines", "_left", "_line", "_overhead", "_step", "_tail")

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """The next byte belongs to a new request."""
        self._step: Literal["head", "body", "chunk size", "chunk", "trailer", "broken"] = "head"
        self._head_bytes = self._head_lines = self._left = self._overhead = 0
        self._tail, self._line = b"", bytearray()

    def body(self, length: int | None) -> None:
        """The head was read; its body has `length` bytes, None where it is chunked."""
        self._step, self._left = ("chunk size", 0) if length is None else ("body", length)

    @property
    def begun(self) -> bool:
        """Something of the head came, if only a blank line."""
        return self._head_bytes > 0

    def wanted(self) -> int | None:
        """How many bytes the current request certainly still has; None where nobody knows."""
        return self._left if self._step in ("body", "chunk") else None

    def next(self, waiting: bytearray) -> int:
        """How many of the waiting bytes, at least one, are the parser's next piece.

        Raises:
            Refusal: 'head_too_large', or 'bad_request' for what is not content of a chunked body.
        """
        if self._step == "head":
            return self._next_head(waiting)
        if self._step in ("body", "chunk"):
            count = min(self._left, len(waiting))
            self._left -= count
            if not self._left and self._step == "chunk":
                self._step = "chunk size"
            if count:
                return count
        if self._step == "chunk size":
            return self._next_size(waiting)
        if self._step == "trailer":
            count, _ = self._until_blank_line(waiting)
            self._count_overhead(count)
            return count
        raise Refusal("bad_request", "The request's length cannot be told.", close=True)  # the parser saw it otherwise

    def _next_head(self, waiting: bytearray) -> int:
        count, ended = self._until_blank_line(waiting)
        self._head_bytes += count
        self._head_lines += waiting.count(b"\n", 0, count)
        if self._head_bytes > MOST_HEAD_BYTES or self._head_lines > MOST_HEAD_LINES:
            bounds = f"{MOST_HEAD_BYTES} bytes or {MOST_HEAD_LINES} lines"
            raise Refusal("head_too_large", f"The request's head has more than {bounds}.", close=True)
        if ended:
            self._tail = b""
        return count

    def _next_size(self, waiting: bytearray) -> int:
        end = waiting.find(b"\n") + 1
        count = end or len(waiting)
        self._line += waiting[:count]
        self._count_overhead(count)
        if len(self._line) > MOST_CHUNK_LINE_BYTES:
            raise Refusal("bad_request", f"A chunk's size takes more than {MOST_CHUNK_LINE_BYTES} bytes.", close=True)
        if end:
            found = _SIZE.match(self._line)
            self._line = bytearray()
            size = int(found[0], 16) if found else -1  # the parser is about to say what is wrong with it
            self._step = "broken" if size < 0 else "chunk" if size else "trailer"
            self._left = size + 2
            self._count_overhead(2)
            self._tail = b"\r\n"
        return count

    def _until_blank_line(self, waiting: bytearray) -> tuple[int, bool]:
        """(bytes up to and with the next blank line or all, whether it was found); it may have begun earlier."""
        across = (self._tail + waiting[:3]).find(_HEAD_END) if self._tail else -1
        if across >= 0:
            return across + 4 - len(self._tail), True
        end = waiting.find(_HEAD_END)
        if end >= 0:
            return end + 4, True
        self._tail = (self._tail + waiting[-3:])[-3:]
        return len(waiting), False

    def _count_overhead(self, count: int) -> None:
        self._overhead += count
        if self._overhead > MOST_CHUNK_OVERHEAD_BYTES:
            bounds = f"{MOST_CHUNK_OVERHEAD_BYTES} bytes that are no content"
            raise Refusal("bad_request", f"The chunked body has more than {bounds}.", close=True)
