"""The vendor's dump file: a header about tensors, then their bytes.

    length of the header, u64 little-endian │ DumpData (protobuf, without data) │ inputs │ outputs

Names, order and numbers are those of the parser in the toolkit (msaccucmp.py, class BigDumpDataParser) and of
dump_data.proto as MindSpore publishes it; DT_BF16 = 27 follows the graph engine's own list [inferred]. Files of the
emulator carry one more field, which other readers skip, so that nobody takes them for a device's.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no stubs

from workbench.cann_emulator.om import Dtype, Kernel
from workbench.quantization.amct.protobuf_text import message_class

VERSION = "2.0"
DATA_TYPES: Mapping[Dtype, int] = {
    **{"float32": 1, "float16": 2, "int8": 3, "uint8": 4, "int32": 7, "int64": 8, "uint64": 10, "bool": 11},
    "bfloat16": 27,
}
_LENGTH = struct.Struct("<Q")
_TENSOR = {"data_type": "int32", "format": "int32", "shape": "Shape"}
_DUMP_DATA = message_class(
    "DumpData",
    {
        "OriginalOp": {"name": "string", "output_index": "uint32", "data_type": "int32", "format": "int32"},
        "Shape": {"dim": "repeated uint64"},
        "OpOutput": {**_TENSOR, "original_op": "OriginalOp", "size=6": "uint64", "original_shape=7": "Shape"},
        "OpInput": {**_TENSOR, "size=5": "uint64", "original_shape=6": "Shape"},
        "DumpData": {
            **{"version": "string", "dump_time": "uint64", "output": "repeated OpOutput", "input": "repeated OpInput"},
            **{"op_name=6": "string", "emulated=20000": "string"},
        },
    },
    "proto3",
)
"""Enumerations are plain numbers on the wire."""


class NoDumpFile(Exception):
    """The bytes are no dump file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """One tensor as the device holds it."""

    array: npt.NDArray[Any]  # in the stored dtype, bfloat16 as uint16 words
    dtype: Dtype
    format: int = 2
    # node of the model and index of its output, where the compiler knows it; outputs only
    origin: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelValues:
    """What a kernel read from and wrote to memory; a value inside of it exists nowhere on a device."""

    kernel: Kernel
    task: int  # place of the kernel in the model's execution order
    inputs: tuple[Values, ...]
    outputs: tuple[Values, ...]
    inside: tuple[Values, ...] = ()  # what it rounds to halves on its way, and hands on within itself


def dump_bytes(
    op_name: str, inputs: Sequence[Values], outputs: Sequence[Values], *, time_us: int, emulator: str
) -> bytes:
    """A dump file's content."""
    header = _DUMP_DATA(version=VERSION, dump_time=time_us, op_name=op_name, emulated=emulator)
    arrays = [np.ascontiguousarray(values.array) for values in (*inputs, *outputs)]
    for values in inputs:
        _describe(header.input.add(), values)
    for values in outputs:
        entry = header.output.add()
        _describe(entry, values)
        if values.origin is not None:
            entry.original_op.name, entry.original_op.output_index = values.origin
            entry.original_op.data_type = DATA_TYPES[values.dtype]
            entry.original_op.format = values.format
    content = header.SerializeToString()
    return b"".join([_LENGTH.pack(len(content)), content, *(array.tobytes() for array in arrays)])


def outputs_in(content: bytes) -> list[bytes]:
    """The bytes of each output; NoDumpFile where lengths do not fit, or the header cannot be read."""
    try:
        (length,) = _LENGTH.unpack_from(content)
        header = _DUMP_DATA.FromString(content[_LENGTH.size : _LENGTH.size + length])
    except (struct.error, DecodeError) as error:
        raise NoDumpFile(f"the header cannot be read: {error}") from error
    at, parts = _LENGTH.size + length, []
    for entry in (*header.input, *header.output):
        parts.append(content[at : at + entry.size])
        at += entry.size
    if at != len(content):
        raise NoDumpFile("the sizes in the header do not add up to the file's")
    return parts[len(header.input) :]


def _describe(entry: Any, values: Values) -> None:
    entry.data_type, entry.format, entry.size = DATA_TYPES[values.dtype], values.format, values.array.nbytes
    entry.shape.dim.extend(values.array.shape)
    entry.original_shape.dim.extend(values.array.shape)
