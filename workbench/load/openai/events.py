"""Server-sent events: the data of each, out of a body that arrives in pieces (WHATWG HTML, section 9.2.6)."""

from __future__ import annotations

from workbench.load.http1 import ProtocolError

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
