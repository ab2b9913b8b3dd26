"""Graphs without their weights: the large tensors of a file stay in it, and are read one at a time.

    proto = parse_apart(path, path.open("rb"))     # large initializers refer to their place in the file
    values = array_of(tensor)                      # of any tensor: held in it, or read from where it refers to
    with kept_aside(size):                         # large tensors made here go to a scratch folder, not into memory
        tensor = tensor_of(values, "name")

A reference is ONNX's own external data with an absolute path as location, so no library takes one for a part of a
file on disk: what is written (write.py) or run (`quantization.sessions`) goes through the modules that know of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.graph.tensors import ExternalPlace, external_place, raw_bytes
from workbench.values.errors import ConfigError
from workbench.values.system.scratch import scratch_folder

Array = npt.NDArray[Any]
M = TypeVar("M", onnx.ModelProto, TensorProto)

FROM_BYTES = 128 << 20
"""Files of this size and more are read apart from their weights; smaller ones are quicker as they are."""
LARGE_BYTES = 64 << 10
"""Tensors from this size on are apart. Shapes and scalars, which runtimes want to see early, stay in the graph."""

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9  # field numbers of ModelProto, GraphProto and TensorProto
_VARINT, _BYTES, _FIXED = 0, 2, {1: 8, 5: 4}  # wire types; of those of fixed length the bytes
_folder: ContextVar[Path | None] = ContextVar("kept_aside", default=None)


class _Unreadable(Exception):
    """The bytes are not what this reader expects; protobuf's own reader has the last word on them."""


def is_large(size_bytes: int) -> bool:
    """Whether a model of this size is worked on apart from its weights."""
    return size_bytes >= FROM_BYTES


def parse_apart(path: Path, stream: IO[bytes]) -> onnx.ModelProto | None:
    """The model in a file, its large initializers as references to their place in it.

    Returns:
        None where the file is not as protobuf's own writers write it: read it whole, and see what is wrong.
    """
    try:
        return _Reader(path.resolve(), stream, LARGE_BYTES).model()
    except (_Unreadable, ValueError):
        return None


def refers_apart(tensor: TensorProto) -> bool:
    """Whether the tensor is a reference with an absolute path, as this module makes them."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return False
    return any(entry.key == "location" and entry.value.startswith("/") for entry in tensor.external_data)


def place_of(tensor: TensorProto) -> tuple[Path, int, int]:
    """(file, offset, bytes) of a reference."""
    place = external_place(tensor, Path(tensor.name or "tensor"))
    return Path(place.location), place.offset, place.length or raw_bytes(tensor)


def refer(tensor: TensorProto, place: ExternalPlace) -> None:
    """Make a tensor a reference; what it held goes."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", place.location), ("offset", place.offset), ("length", place.length)):
        tensor.external_data.add(key=key, value=str(value))


def array_of(tensor: TensorProto) -> Array:
    """The values of a tensor, held or referred to.

    Raises:
        ConfigError: the file it refers to is gone or shorter than it was.
    """
    if not refers_apart(tensor):
        values: Array = numpy_helper.to_array(tensor)
        return values
    path, offset, length = place_of(tensor)
    kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = math.prod(tensor.dims)
    if length != count * kind.itemsize:  # several elements in a byte: onnx unpacks them
        held = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        held.raw_data = b"".join(chunks_of(tensor))
        return np.asarray(numpy_helper.to_array(held))
    try:
        values = np.fromfile(path, kind, count, offset=offset)
    except OSError as error:
        raise ConfigError(f"tensor {tensor.name!r} cannot be read: {error.strerror}.", file=path) from error
    if values.size != count:
        raise ConfigError(f"the data of tensor {tensor.name!r} are cut off.", file=path, hint=_CHANGED)
    return values.reshape(tuple(tensor.dims))


def chunks_of(tensor: TensorProto, size: int = 8 << 20) -> Iterator[bytes]:
    """The bytes that a reference refers to, some at a time."""
    path, offset, left = place_of(tensor)
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            while left and (part := stream.read(min(size, left))):
                left -= len(part)
                yield part
    except OSError as error:
        raise ConfigError(f"tensor {tensor.name!r} cannot be read: {error.strerror}.", file=path) from error
    if left:
        raise ConfigError(f"the data of tensor {tensor.name!r} are cut off.", file=path, hint=_CHANGED)


def external_file(tensor: TensorProto, model: Path) -> tuple[Path, ExternalPlace]:
    """The file with the data of an external tensor, which lies nowhere but in the model's folder, and where in it."""
    place, folder = external_place(tensor, model), model.parent.resolve()
    try:
        file = (folder / place.location).resolve()
        file.is_file()  # raises where no file can have this name
    except (OSError, RuntimeError) as error:  # too long, or links that lead back to themselves
        raise ConfigError(f"tensor {tensor.name!r} has its data at no path: {error}.", file=model) from error
    if file == folder or not file.is_relative_to(folder):
        rule = f"tensor {tensor.name!r} has its data at {place.location!r}, outside the model's folder."
        raise ConfigError(rule, file=model, hint="Put the external data next to the model and export again.")
    return file, place


def refer_to_file(tensor: TensorProto, model: Path) -> None:
    """Make an external tensor of the model file a reference."""
    if not refers_apart(tensor):
        file, place = external_file(tensor, model)
        refer(tensor, replace(place, location=str(file), length=place.length or raw_bytes(tensor)))


def hold(tensor: TensorProto) -> None:
    """Put what a reference refers to into the tensor itself."""
    values = b"".join(chunks_of(tensor))
    forget_place(tensor)
    tensor.raw_data = values


def forget_place(tensor: TensorProto) -> None:
    del tensor.external_data[:]
    tensor.ClearField("data_location")


def take_in(tensor: TensorProto, model: Path) -> None:
    """Hold the data of an external tensor of the model file in the tensor itself; one that holds them is left alone.

    onnx's own loader refuses a file with a second hard link; links are what package managers and the store save with.
    """
    if tensor.data_location == TensorProto.EXTERNAL:
        refer_to_file(tensor, model)
        hold(tensor)


_CHANGED = "The file has changed since it was read. Start again."


# --- tensors that are made -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def kept_aside(size_bytes: int) -> Iterator[None]:
    """Within the block large tensors from `tensor_of` lie in a scratch folder; what refers to them ends with it.

    Args:
        size_bytes: of the model that is worked on; those of a small one stay in memory after all.
    """
    if not is_large(size_bytes) or _folder.get() is not None:
        yield
        return
    with scratch_folder("weights") as folder:
        token = _folder.set(folder)
        try:
            yield
        finally:
            _folder.reset(token)


def tensor_of(values: Array, name: str = "") -> TensorProto:
    """A tensor with these values: in memory, or within `kept_aside` where it is large, a reference."""
    folder = _folder.get()
    values = np.asarray(values)
    if folder is None or values.nbytes < LARGE_BYTES or values.dtype.kind not in "fiu":
        tensor: TensorProto = numpy_helper.from_array(values, name or None)
        return tensor
    flat = np.ascontiguousarray(values)
    file = folder / hashlib.sha256(flat.data).hexdigest()  # equal tensors are one file and compare equal
    if not file.exists():
        flat.tofile(file)
    tensor = TensorProto(
        name=name, data_type=helper.np_dtype_to_tensor_dtype(values.dtype), dims=[int(size) for size in values.shape]
    )
    refer(tensor, ExternalPlace(location=str(file), offset=0, length=values.nbytes))
    return tensor


# --- reading a file by its fields ------------------------------------------------------------------------------------


class _Reader:
    """One pass over a file's fields, two levels deep; the data of large initializers are passed over."""

    def __init__(self, path: Path, stream: IO[bytes], large_bytes: int) -> None:
        self._path, self._stream, self._large = path, stream, large_bytes

    def model(self) -> onnx.ModelProto:
        kept: list[bytes] = []
        for number, wire, start, at, stop in self._fields(0, self._stream.seek(0, os.SEEK_END)):
            if number == GRAPH and wire == _BYTES:
                body = b"".join(self._graph(at, stop))
                kept += [tag(GRAPH), varint(len(body)), body]
            else:
                kept.append(self._bytes(start, stop))
        payload = b"".join(kept)
        kept.clear()
        proto = _parsed(onnx.ModelProto(), payload)
        if not proto.graph.node or not proto.opset_import:
            raise _Unreadable
        return proto

    def _graph(self, begin: int, end: int) -> Iterator[bytes]:
        since = begin  # runs of small fields are copied at once
        for number, wire, start, at, stop in self._fields(begin, end):
            if number != INITIALIZER or wire != _BYTES or stop - at < self._large:
                continue
            stub = self._stub(at, stop)
            if stub is None:
                continue
            yield self._bytes(since, start)
            yield tag(INITIALIZER) + varint(len(stub)) + stub
            since = stop
        yield self._bytes(since, end)

    def _stub(self, begin: int, end: int) -> bytes | None:
        """The initializer without its data; None where it has none in one piece, or not as many as it should."""
        kept: list[bytes] = []
        data: tuple[int, int] | None = None
        for number, wire, start, at, stop in self._fields(begin, end):
            if number == RAW_DATA and wire == _BYTES:
                if data is not None:
                    return None
                data = (at, stop)
            elif stop - start >= self._large:
                return None  # numbers one by one in another field
            else:
                kept.append(self._bytes(start, stop))
        tensor = _parsed(TensorProto(), b"".join(kept))
        sound = len(tensor.dims) < 33 and all(size >= 0 for size in tensor.dims)
        if data is None or tensor.data_location == TensorProto.EXTERNAL or not sound:
            return None
        length = data[1] - data[0]
        if raw_bytes(tensor) != length:
            return None
        refer(tensor, ExternalPlace(location=str(self._path), offset=data[0], length=length))
        stub: bytes = tensor.SerializeToString()
        return stub

    def _fields(self, begin: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
        """(number, wire type, start, start of the content, end) of each field."""
        at = begin
        while at < end:
            start = at
            self._stream.seek(at)
            head = self._stream.read(min(20, end - at))
            key, used = _read_varint(head, 0)
            wire = key & 7
            if wire == _BYTES:
                length, used = _read_varint(head, used)
                at = start + used + length
            elif wire == _VARINT:
                at = start + _read_varint(head, used)[1]
            else:
                at = start + used + _FIXED.get(wire, end)
            if at > end:
                raise _Unreadable
            yield key >> 3, wire, start, start + used, at

    def _bytes(self, start: int, stop: int) -> bytes:
        self._stream.seek(start)
        found = self._stream.read(stop - start)
        if len(found) != stop - start:
            raise _Unreadable
        return found


def _parsed(message: M, payload: bytes) -> M:
    try:
        message.ParseFromString(payload)
    except Exception as error:  # protobuf's DecodeError has no typed base
        raise _Unreadable from error
    return message


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Unreadable


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def tag(number: int) -> bytes:
    """Of a field of bytes."""
    return varint(number << 3 | _BYTES)
