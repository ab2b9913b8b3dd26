"""Which files an execution left, and what is in one (accuracy guide 8.5.0; msaccucmp.py, class BigDumpDataParser).

    <time, 14 digits>/<device>/<model>/<model id>/<data index>/<op type>.<op name>.<task>.<stream>.<time stamp>

A name that the file system could not take is in mapping.csv beside the file. Anything else in there is left alone. A
file holds what an operator read and wrote:

    length of the header, u64 little-endian │ DumpData (protobuf) │ data of inputs │ of outputs │ of buffers │ of space

The header says of each tensor its type, shape and bytes. Every length in it is checked against the file before a byte
of it is believed. Field numbers are those of dump_data.proto as MindSpore publishes it; that DT_BF16 is 27, and that
`space` is field 8, is [inferred].
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import ml_dtypes
import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no stubs

from workbench.quantization.amct.protobuf_text import message_class
from workbench.targets.base import Array
from workbench.values.documents.input_files import read_bytes
from workbench.values.errors import ConfigError, MeasureError

MOST_HEADER_BYTES = 1 << 20
MOST_FILE_BYTES = 1 << 36
MOST_TENSORS, MOST_RANK = 1024, 32
_LENGTH = struct.Struct("<Q")
_DTYPES: Mapping[int, str] = {
    **{1: "float32", 2: "float16", 3: "int8", 4: "uint8", 5: "int16", 6: "uint16", 7: "int32", 8: "int64"},
    **{9: "uint32", 10: "uint64", 11: "bool", 12: "float64", 16: "complex64", 17: "complex128", 27: "bfloat16"},
}
NC1HWC0, FRACTAL_NZ = 3, 29
"""Formats of acl (pyacl.md §2.4)."""

_TENSOR = {"data_type=1": "uint64", "format=2": "uint64", "shape=3": "Shape"}
_DUMP_DATA = message_class(
    "DumpData",
    {
        "DumpData": {
            **{"output=3": "repeated Output", "input=4": "repeated Input", "buffer=5": "repeated Plain"},
            **{"op_name=6": "bytes", "space=8": "repeated Plain", "emulator=20000": "bytes"},
        },
        "Output": {**_TENSOR, "origin=4": "Origin", "size=6": "uint64", "original_shape=7": "Shape"},
        "Input": {**_TENSOR, "size=5": "uint64", "original_shape=6": "Shape"},
        "Plain": {"size=3": "uint64"},
        "Shape": {"dim=1": "repeated uint64"},
        "Origin": {"name=1": "bytes", "output_index=2": "uint64"},
    },
    "proto3",
)


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
        try:
            with self.file.open("rb") as stream:
                stream.seek(self.offset)
                content = stream.read(self.size_bytes)
            values = np.frombuffer(content, _numpy_type(self.dtype)).reshape(self.shape)
        except (OSError, ValueError) as error:
            raise MeasureError(f"{self.file}: {self.dtype} of shape {list(self.shape)}: {error}") from error
        plain = values.astype(np.float32) if self.dtype == "bfloat16" else values
        return in_model_order(plain, self.format, self.original_shape)


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
                raise _damaged(file, f"{size} bytes are no dump")
            if size > MOST_FILE_BYTES:
                raise _damaged(file, f"it has more than {MOST_FILE_BYTES >> 30} GiB")
            (length,) = _LENGTH.unpack(head)
            if not 0 < length <= min(size - _LENGTH.size, MOST_HEADER_BYTES):
                raise _damaged(file, f"its header would have {length} bytes, in a file of {size}")
            header = stream.read(length)
    except OSError as error:
        _unreadable(error)
    return _parsed(file, header, _LENGTH.size + length, size)


def _damaged(file: Path, why: str) -> MeasureError:
    return MeasureError(f"{file}: no sound dump: {why}. Dump again, or copy it again.")


def _parsed(file: Path, header: bytes, start: int, size: int) -> DumpFile:
    told = _DUMP_DATA()
    try:
        told.ParseFromString(header)
    except DecodeError as error:
        raise _damaged(file, f"its header is cut off, or no protobuf message ({error})") from error
    at = start
    tensors: dict[str, list[DumpedTensor]] = {"input": [], "output": []}
    for kind in ("input", "output", "buffer", "space"):
        entries = getattr(told, kind)
        if len(entries) > MOST_TENSORS:
            raise _damaged(file, f"it has more than {MOST_TENSORS} tensors")
        for entry in entries:
            if entry.size > size - at:
                raise _damaged(file, f"{kind} data of {entry.size} bytes do not fit a file of {size}: it is truncated")
            if kind in tensors:
                tensors[kind].append(_placed(file, entry, at))
            at += entry.size
    if at != size:
        raise _damaged(file, f"its sizes add up to {at} bytes, and it has {size}")
    inputs, outputs = map(tuple, tensors.values())
    return DumpFile(op_name=_text(told.op_name), emulator=_text(told.emulator), inputs=inputs, outputs=outputs)


def _placed(file: Path, entry: Any, at: int) -> DumpedTensor:
    shape, original = tuple(entry.shape.dim), tuple(entry.original_shape.dim)
    if max(len(shape), len(original)) > MOST_RANK:
        raise _damaged(file, f"a tensor has more than {MOST_RANK} dimensions")
    dtype = _DTYPES.get(entry.data_type, "")
    if dtype and math.prod(shape) * _numpy_type(dtype).itemsize != entry.size:
        raise _damaged(file, f"{entry.size} bytes are no {dtype} of shape {list(shape)}")
    origin = getattr(entry, "origin", None)
    return DumpedTensor(
        file=file,
        dtype=dtype,
        format=entry.format,
        shape=shape,
        offset=at,
        size_bytes=entry.size,
        origin=(_text(origin.name), origin.output_index) if origin is not None and origin.name else None,
        original_shape=original,
    )


def _numpy_type(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


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


# --- which files an execution left ------------------------------------------------------------------------------------


MAPPING = "mapping.csv"
MOST_FILES = 200_000
_MOST_MAPPING_BYTES = 1 << 24
_LEVELS = tuple(map(re.compile, (r"\d{14}", "[0-9]+", ".+", "[0-9]+", "[0-9]+")))
"""Folders, one in the other: of the time, the device, the model, its id, the data index."""
_NAME = re.compile(r"(?P<type>[^.]+)\.(?P<name>.+?)\.(?P<task>\d+)\.(?:(?P<stream>\d+)\.)?(?P<stamp>\d{6,})")
_STATUS = "Opdebug.Node_OpDebug."


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFile:
    """Attributes:
    op_name: with underscores for points, slashes, backslashes and blanks.
    """

    path: Path
    op_type: str
    op_name: str
    task: int
    stream: int
    stamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One folder `<data index>`: its operators in the order in which they ran."""

    model: str
    index: int
    files: tuple[OperatorFile, ...]


def is_dump(folder: Path) -> bool:
    """Whether executions lie in here, as a device writes them."""
    try:
        return any(_LEVELS[0].fullmatch(entry.name) and entry.is_dir() for entry in folder.iterdir())
    except OSError:
        return False


def executions(folder: Path) -> tuple[Execution, ...]:
    """Every execution of a dump folder, the oldest first; no link is followed.

    Raises:
        ConfigError: nothing was dumped there.
        MeasureError: there are too many files, or a folder cannot be read.
    """
    found, count = [], 0
    for place, inside, _ in os.walk(folder, onerror=_unreadable):
        parts = Path(place).relative_to(folder).parts
        count += len(inside)
        if len(parts) < len(_LEVELS):
            inside[:] = sorted(name for name in inside if _LEVELS[len(parts)].fullmatch(name))
        else:
            inside.clear()
            files = sorted(operator_files(Path(place)), key=lambda file: (file.stamp, file.task))
            count += len(files)
            if files:
                found.append(Execution(model=parts[2], index=int(parts[4]), files=tuple(files)))
        if count > MOST_FILES:
            raise MeasureError(f"{folder}: more than {MOST_FILES} dump files. Dump fewer calls or fewer operators.")
    if not found:
        raise ConfigError(
            "no dump of a model is in this folder.",
            file=folder,
            hint="It holds folders by time; dump_path of acl.json, not a folder inside it.",
        )
    return tuple(sorted(found, key=lambda one: (one.files[0].stamp, one.index)))


def _unreadable(error: OSError) -> NoReturn:
    raise MeasureError(f"{error.filename}: it cannot be read: {error.strerror}") from error


def operator_files(place: Path) -> Iterator[OperatorFile]:
    """The operators' dumps of one execution, in no order.

    Raises:
        MeasureError: the folder cannot be read.
    """
    try:
        with os.scandir(place) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError as error:
        _unreadable(error)
    mapping: dict[str, str] = {}
    if MAPPING in names:
        try:
            lines = read_bytes(place / MAPPING, limit_bytes=_MOST_MAPPING_BYTES).decode("utf-8", errors="replace")
        except ConfigError as error:
            raise MeasureError(str(error)) from error
        pairs = (line.partition(",") for line in lines.splitlines())
        mapping = {short: long for short, comma, long in pairs if comma}
    for name in names:
        told = mapping.get(name, name)
        match = _NAME.fullmatch(told)
        if match is None or told.startswith(_STATUS):
            continue
        yield OperatorFile(
            path=place / name,
            op_type=match["type"],
            op_name=match["name"],
            task=int(match["task"][:18]),
            stream=int((match["stream"] or "0")[:18]),
            stamp=int(match["stamp"][:18]),
        )
