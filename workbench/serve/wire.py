"""Messages between the service's processes: a JSON header and the arrays' bytes behind it, over a socket pair.

    8 bytes   length of the header, length of the payload: two little-endian unsigned integers
    header    JSON; "arrays" lists name, dtype and shape of what the payload holds
    payload   the arrays, C order, one behind the other

Nothing is pickled: a message can carry numbers, never code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from workbench.targets.base import Array

_LENGTHS = struct.Struct("<II")
_READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Message:
    """`arrays` are views of the bytes that came."""

    head: Mapping[str, Any]
    arrays: Mapping[str, Array]


def pack(head: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> bytes:
    """The bytes of one message; texts travel as NumPy's fixed-width ones."""
    # runtimes give an output of texts as objects, whose bytes are addresses
    plain = {name: a.astype(np.str_) if a.dtype.kind == "O" else a for name, a in (arrays or {}).items()}
    contiguous = {name: np.asarray(array, order="C") for name, array in plain.items()}
    listed = [[name, array.dtype.str, array.shape] for name, array in contiguous.items()]
    header = json.dumps({**head, "arrays": listed}).encode()
    payload = [array.tobytes() for array in contiguous.values()]
    return b"".join((_LENGTHS.pack(len(header), sum(map(len, payload))), header, *payload))


class Reader:
    """Collects bytes as they come and gives whole messages."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        self._waiting += data
        while len(self._waiting) >= _LENGTHS.size:
            header, payload = _LENGTHS.unpack_from(self._waiting)
            end = _LENGTHS.size + header + payload
            if len(self._waiting) < end:
                return
            whole, self._waiting = bytes(self._waiting[_LENGTHS.size : end]), self._waiting[end:]
            head, arrays, offset = json.loads(whole[:header]), dict[str, Array](), header
            for name, dtype, shape in head.pop("arrays"):
                kind, count = np.dtype(dtype), math.prod(shape)
                arrays[name] = np.frombuffer(whole, kind, count, offset).reshape(shape)
                offset += count * kind.itemsize
            yield Message(head, arrays)


class Link(asyncio.Protocol):
    """The event loop's end of a socket pair."""

    def __init__(self, received: Callable[[Message], None], ended: Callable[[], None]) -> None:
        self._received, self._ended, self._reader = received, ended, Reader()
        self._transport: asyncio.Transport

    async def open(self, ours: socket.socket) -> None:
        """Raises OSError: no file is left for it."""
        ours.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)

    def say(self, head: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> None:
        """Nothing where the other side is gone."""
        if not self._transport.is_closing():
            self._transport.write(pack(head, arrays))

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        self._transport.set_write_buffer_limits(0)  # uvloop would keep a message until it has read whatever else came

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            self._received(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()


def messages(connection: socket.socket) -> Iterator[Message]:
    """What comes until the other side is gone. Blocks."""
    reader = Reader()
    with contextlib.suppress(ConnectionResetError):  # it was killed with bytes of ours unread
        while data := connection.recv(_READ_BYTES):
            yield from reader.feed(data)
