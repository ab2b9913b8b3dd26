"""One dump file: what an operator read and wrote (accuracy guide 8.5.0; msaccucmp.py, class BigDumpDataParser).

    length of the header, u64 little-endian │ DumpData (protobuf) │ data of inputs │ of outputs │ of buffers │ of space

The header says of each tensor its type, shape and bytes. Every length in it is checked against the file before a byte
of it is believed. Field numbers are those of dump_data.proto as MindSpore publishes it; that DT_BF16 is 27, and that
`space` is field 8, is [inferred].
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.targets.base import Array
from workbench.values.errors import MeasureError

MOST_HEADER_BYTES = 1 << 20
MOST_FILE_BYTES = 1 << 36
MOST_TENSORS, MOST_RANK, MOST_NAME_BYTES = 1024, 32, 1 << 16
_LENGTH = struct.Struct("<Q")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EMULATED_FIELD = 20000
_DTYPES: Mapping[int, str] = {
    **{1: "float32", 2: "float16", 3: "int8", 4: "uint8", 5: "int16", 6: "uint16", 7: "int32", 8: "int64"},
    **{9: "uint32", 10: "uint64", 11: "bool", 12: "float64", 16: "complex64", 17: "complex128", 27: "bfloat16"},
}
_DATA = {"output": 3, "input": 4, "buffer": 5, "space": 8}
_SIZE_FIELD = {"output": 6, "input": 5, "buffer": 3, "space": 3}
_ORIGINAL_SHAPE_FIELD = {"output": 7, "input": 6}
_SHAPE_FIELD, _ORIGIN_FIELD = 3, 4
NC1HWC0, FRACTAL_NZ = 3, 29
"""Formats of acl (pyacl.md §2.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedTensor:
    """Attributes:
    dtype: NumPy's name, or bfloat16; '' for a type that has none.
    format: of acl, 2 is ND (pyacl.md §2.4).
    original_shape: of the model's tensor, where the device keeps it in an order of its own; else empty.
    origin: node of the model and index of its output, where the compiler wrote it; outputs only.
    """

    file: Path
    dtype: str
    format: int
    shape: tuple[int, ...]
    offset: int
    size_bytes: int
    origin: tuple[str, int] | None = None
    original_shape: tuple[int, ...] = ()

    def load(self) -> Array:
        """The values in the model's order; bfloat16 as float32.

        Raises:
            MeasureError: the file cannot be read any more, or the type has no form here.
        """
        if not self.dtype:
            raise MeasureError(f"{self.file}: a tensor has a type that is not read here.")
        kind = np.dtype(np.uint16) if self.dtype == "bfloat16" else np.dtype(self.dtype)
        try:
            with self.file.open("rb") as stream:
                stream.seek(self.offset)
                content = stream.read(self.size_bytes)
            values = np.frombuffer(content, kind).reshape(self.shape)
        except (OSError, ValueError) as error:
            raise MeasureError(f"{self.file}: {self.dtype} of shape {list(self.shape)}: {error}") from error
        if self.dtype == "bfloat16":
            values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return in_model_order(values, self.format, self.original_shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpFile:
    """Attributes:
    op_name: '' where the writer did not say it.
    emulator: who wrote it, where that was an emulator.
    """

    op_name: str
    inputs: tuple[DumpedTensor, ...]
    outputs: tuple[DumpedTensor, ...]
    emulator: str = ""


def read_dump_file(file: Path) -> DumpFile:
    """What is in a file; the values stay there until they are loaded.

    Raises:
        MeasureError: it cannot be read, is truncated, or says what no dump says.
    """
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            head = stream.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                raise _Damaged(f"{size} bytes are no dump")
            if size > MOST_FILE_BYTES:
                raise _Damaged(f"it has more than {MOST_FILE_BYTES >> 30} GiB")
            (length,) = _LENGTH.unpack(head)
            if not 0 < length <= min(size - _LENGTH.size, MOST_HEADER_BYTES):
                raise _Damaged(f"its header would have {length} bytes, in a file of {size}")
            header = stream.read(length)
        return _parsed(file, header, _LENGTH.size + length, size)
    except OSError as error:
        raise MeasureError(f"{file}: it cannot be read: {error.strerror}") from error
    except _Damaged as error:
        raise MeasureError(f"{file}: no sound dump: {error}. Dump again, or copy it again.") from error


class _Damaged(Exception):
    """What is wrong with the bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """A tensor of the header, before its place in the file is known."""

    kind: str
    data_type: int
    format: int
    shape: tuple[int, ...]
    size_bytes: int
    origin: tuple[str, int] | None
    original_shape: tuple[int, ...]


def _parsed(file: Path, header: bytes, start: int, size: int) -> DumpFile:
    names = {number: kind for kind, number in _DATA.items()}
    entries: dict[str, list[_Described]] = {kind: [] for kind in _DATA}
    op_name = emulator = ""
    for number, value in _fields(header):
        if number in names and isinstance(value, bytes):
            kind = names[number]
            entries[kind].append(_described(kind, value))
            if len(entries[kind]) > MOST_TENSORS:
                raise _Damaged(f"it has more than {MOST_TENSORS} tensors")
        elif number == 6 and isinstance(value, bytes):
            op_name = _text(value)
        elif number == _EMULATED_FIELD and isinstance(value, bytes):
            emulator = _text(value)
    at, placed = start, []
    for kind in ("input", "output", "buffer", "space"):
        for entry in entries[kind]:
            if entry.size_bytes > size - at:
                raise _Damaged(f"{kind} data of {entry.size_bytes} bytes do not fit a file of {size}: it is truncated")
            placed.append((kind, _placed(file, entry, at)))
            at += entry.size_bytes
    if at != size:
        raise _Damaged(f"its sizes add up to {at} bytes, and it has {size}")
    return DumpFile(
        op_name=op_name,
        emulator=emulator,
        inputs=tuple(tensor for kind, tensor in placed if kind == "input"),
        outputs=tuple(tensor for kind, tensor in placed if kind == "output"),
    )


def _placed(file: Path, entry: _Described, at: int) -> DumpedTensor:
    dtype = _DTYPES.get(entry.data_type, "")
    if entry.kind in ("input", "output") and dtype:
        item = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        if math.prod(entry.shape) * item != entry.size_bytes:
            raise _Damaged(f"{entry.size_bytes} bytes are no {dtype} of shape {list(entry.shape)}")
    return DumpedTensor(
        file=file,
        dtype=dtype,
        format=entry.format,
        shape=entry.shape,
        offset=at,
        size_bytes=entry.size_bytes,
        origin=entry.origin,
        original_shape=entry.original_shape,
    )


def _described(kind: str, content: bytes) -> _Described:
    numbers: dict[int, int] = {}
    shape: tuple[int, ...] = ()
    original: tuple[int, ...] = ()
    origin = None
    for number, value in _fields(content):
        if isinstance(value, int):
            numbers[number] = value
        elif kind in ("input", "output") and number == _SHAPE_FIELD:
            shape = _shape(value)
        elif number == _ORIGINAL_SHAPE_FIELD.get(kind):
            original = _shape(value)
        elif kind == "output" and number == _ORIGIN_FIELD:
            origin = _origin(value)
    return _Described(
        kind=kind,
        data_type=numbers.get(1, 0),
        format=numbers.get(2, 0),
        shape=shape,
        size_bytes=numbers.get(_SIZE_FIELD[kind], 0),
        origin=origin,
        original_shape=original,
    )


def _shape(content: bytes) -> tuple[int, ...]:
    sizes: list[int] = []
    for number, value in _fields(content):
        if number == 1 and isinstance(value, int):
            sizes.append(value)
        elif number == 1 and isinstance(value, bytes):  # a packed list
            at = 0
            while at < len(value):
                size, at = _varint(value, at)
                sizes.append(size)
        if len(sizes) > MOST_RANK:
            raise _Damaged(f"a tensor has more than {MOST_RANK} dimensions")
    return tuple(sizes)


def _origin(content: bytes) -> tuple[str, int] | None:
    name, index = "", 0
    for number, value in _fields(content):
        if number == 1 and isinstance(value, bytes):
            name = _text(value)
        elif number == 2 and isinstance(value, int):
            index = value
    return (name, index) if name else None


def _text(content: bytes) -> str:
    if len(content) > MOST_NAME_BYTES:
        raise _Damaged(f"a name has {len(content)} bytes")
    return content.decode("utf-8", errors="replace")


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers of a protobuf message with their values."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(content, at)
            yield key >> 3, value
        elif wire in (_BYTES, _FIXED64, _FIXED32):
            length, at = _varint(content, at) if wire == _BYTES else (8 if wire == _FIXED64 else 4, at)
            if length > len(content) - at:
                raise _Damaged("its header is cut off")
            if wire == _BYTES:
                yield key >> 3, content[at : at + length]
            at += length
        else:
            raise _Damaged("its header is no protobuf message")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 70:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise _Damaged("its header is cut off")


# --- orders of elements that the device keeps tensors in (graph engine, data formats) --------------------------------


def in_model_order(values: Array, format: int, shape: tuple[int, ...]) -> Array:
    """Values in the order and shape of the model's tensor; as they are where nothing says that order.

        NC1HWC0      [N, C1, H, W, C0]           channels in groups of C0
        FRACTAL_NZ   […, N1, M1, M0, N0]         a matrix in blocks of M0 x N0, blocks column by column

    Both are padded up to whole groups or blocks; the model's shape says what of it is real.

    Args:
        format: of acl (pyacl.md §2.4).
        shape: the model's; empty where it is not known.
    """
    if shape == values.shape or not shape:
        return values
    if format == NC1HWC0 and values.ndim == 5 and len(shape) == 4:
        n, groups, height, width, inside = values.shape
        plain = values.transpose(0, 1, 4, 2, 3).reshape(n, groups * inside, height, width)
        return _cut(plain, shape, values)
    if format == FRACTAL_NZ and values.ndim >= 4 and len(shape) == values.ndim - 2:
        columns, rows, inner_rows, inner_columns = values.shape[-4:]
        order = (*range(values.ndim - 4), -3 % values.ndim, -2 % values.ndim, -4 % values.ndim, -1 % values.ndim)
        plain = values.transpose(order).reshape(*values.shape[:-4], rows * inner_rows, columns * inner_columns)
        return _cut(plain, shape, values)
    return values.reshape(shape) if math.prod(shape) == values.size else values


def _cut(plain: Array, shape: tuple[int, ...], values: Array) -> Array:
    """The real part; the values as they came where the shape is none of theirs."""
    if any(size > room for size, room in zip(shape, plain.shape, strict=True)):
        return values
    return np.ascontiguousarray(plain[tuple(slice(size) for size in shape)])
