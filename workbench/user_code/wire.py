"""Messages between the workbench and the process that runs a user's code: values as JSON, their arrays as raw bytes.

frame: header length <u4, data length <u8, JSON header, data. In the header a list is {"l": […]}, a tuple {"t": […]}, a
mapping {"d": [[key, value], …]}, an array {"a": [type, shape]} whose bytes lie next in the data, at a multiple of 64,
bytes {"b": count}, and anything else {"o": name of its type}. Nothing that comes in is executed.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

HEAD = struct.Struct("<IQ")
MOST_HEADER_BYTES = 1 << 26
MOST_DATA_BYTES = 1 << 32
"""Of the arrays in one message: a sample, or a batch with all the model's outputs."""
MOST_RANK = 32
KINDS = "biufcUS"
"""Kinds of NumPy types whose bytes are the value."""
_ALIGNED = 64
_MOST_DEPTH = 32


class WireError(ValueError):
    """A value cannot be sent, or what came is no message."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stands for a value that only the other process has."""

    type: str

    def __repr__(self) -> str:
        return f"a value of type {self.type}"


def pack(value: object) -> list[bytes | memoryview]:
    """The parts of one frame, to be written in order.

    Raises:
        WireError: more than one message may hold.
    """
    data: list[bytes | memoryview] = []
    size = 0

    def add(part: bytes | memoryview, count: int) -> None:
        nonlocal size
        padding = -count % _ALIGNED
        data.extend((part, b"\0" * padding))
        size += count + padding
        if size > MOST_DATA_BYTES:
            raise WireError(f"more than {MOST_DATA_BYTES >> 20} MiB of arrays in one message")

    header = json.dumps(_plain(value, add, 0)).encode("ascii")
    if len(header) > MOST_HEADER_BYTES:
        raise WireError(f"more than {MOST_HEADER_BYTES >> 20} MiB of lists and numbers; give NumPy arrays")
    return [HEAD.pack(len(header), size), header, *data]


def unpack(header: bytes, data: bytearray) -> Any:
    """The value of a frame; its arrays are views of `data`.

    Raises:
        WireError: the header is no description of a value in these data.
    """
    done = 0

    def take(count: int) -> memoryview:
        nonlocal done
        start, done = done, done + count + -count % _ALIGNED
        if start + count > len(data):
            raise WireError("an array ends behind the end of its message")
        return memoryview(data)[start : start + count]

    try:
        return _value(json.loads(header), take, 0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise WireError(f"no message: {error}") from error


def _plain(value: Any, add: Callable[[bytes | memoryview, int], None], depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise WireError(f"lists are nested deeper than {_MOST_DEPTH}")
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return value
    if isinstance(value, bytes):
        add(value, len(value))
        return {"b": len(value)}
    if isinstance(value, Mapping):
        return {"d": [[str(key), _plain(item, add, depth + 1)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"t" if isinstance(value, tuple) else "l": [_plain(item, add, depth + 1) for item in value]}
    if not (isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__")):
        return {"o": type(value).__name__}
    array = np.asarray(value)
    if array.dtype == np.object_ and array.ndim:
        return _plain(array.tolist(), add, depth + 1)
    if array.dtype.kind not in KINDS:
        return {"o": f"{type(value).__name__} of {array.dtype}"}
    shape, dtype = list(array.shape), array.dtype.str
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.nbytes else np.zeros(0, np.uint8)
    add(raw.data, array.nbytes)
    return {"a": [dtype, shape]}


def _value(plain: Any, take: Callable[[int], memoryview], depth: int) -> Any:
    if depth > _MOST_DEPTH + 1:
        raise WireError("nested too deeply")
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    match kind:
        case "l":
            return [_value(item, take, depth + 1) for item in content]
        case "t":
            return tuple(_value(item, take, depth + 1) for item in content)
        case "d":
            return {str(key): _value(item, take, depth + 1) for key, item in content}
        case "b":
            return bytes(take(int(content)))
        case "o":
            return Opaque(str(content))
        case "a":
            dtype, shape = np.dtype(str(content[0])), [int(size) for size in content[1]]
            if dtype.kind not in KINDS or len(shape) > MOST_RANK or min(shape, default=0) < 0:
                raise WireError(f"{dtype} {shape} is no array")
            count = math.prod(shape) * dtype.itemsize
            raw = take(count)
            return np.frombuffer(raw, dtype=dtype).reshape(shape) if count else np.zeros(shape, dtype)
    raise WireError(f"{kind!r} is no kind of value")
