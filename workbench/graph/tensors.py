"""What must hold of one tensor or declared shape in an ONNX file: its type, its size, and that its data are there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto

from workbench.values.errors import ConfigError

MOST_ELEMENTS = 1 << 40
"""Of a stored tensor: four tebibytes of float32, more than any file that is read."""
MOST_FED_ELEMENTS = 1 << 28
"""Of the fixed part of an input or output: one sample of a gibibyte."""
MOST_DENSE_ELEMENTS = 1 << 28
"""Of a sparse tensor written out."""
MOST_RANK = 32
_LARGEST = (1 << 63) - 1

_BITS: Mapping[int, int] = {
    **dict.fromkeys((TensorProto.COMPLEX128,), 128),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64, TensorProto.COMPLEX64), 64),
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL), 8),
    **{kind: 8 for name, kind in TensorProto.DataType.items() if name.startswith("FLOAT8")},
    **{kind: 6 for name, kind in TensorProto.DataType.items() if name.startswith("FLOAT6")},
    **{kind: 4 for name, kind in TensorProto.DataType.items() if name in ("INT4", "UINT4", "FLOAT4E2M1")},
    **{kind: 2 for name, kind in TensorProto.DataType.items() if name in ("INT2", "UINT2")},
}
"""Element type → bits of one element in `raw_data`."""
_FIELDS: Mapping[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}
"""Element type → field that holds it where `raw_data` does not; `int32_data` for all others."""
_DAMAGED = "The file is damaged; copy or export it again."


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPlace:
    """Where a tensor's data lie beside the model; a `length` of 0 is as long as its shape says."""

    location: str
    offset: int
    length: int


def check_tensor(tensor: TensorProto, file: Path) -> None:
    """Raises ConfigError for an impossible shape, an unknown type, or data that are not as long as the shape says."""
    name, kind, held, what = tensor.name, tensor.data_type, 0, ""
    if not isinstance(name, str):
        raise ConfigError(f"a tensor has a name that is not UTF-8: {name!r}.", file=file, hint=_DAMAGED)
    wanted, raw = _count(tensor.dims, f"tensor {name!r}", file, MOST_ELEMENTS), tensor.HasField("raw_data")
    if kind == TensorProto.STRING:
        held, what = len(tensor.string_data), "texts"
    elif kind not in _BITS:
        raise ConfigError(f"tensor {name!r} is of no known element type ({kind}).", file=file, hint=_DAMAGED)
    elif tensor.data_location == TensorProto.EXTERNAL:
        wanted = raw_bytes(tensor)
        held, what = external_place(tensor, file).length or wanted, "bytes of external data"
    elif raw:
        wanted, held, what = raw_bytes(tensor), len(tensor.raw_data), "bytes"
    else:
        held, what = len(getattr(tensor, _FIELDS.get(kind, "int32_data"))), "numbers"
        if kind in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
            wanted *= 2
        elif (bits := _BITS[kind]) < 8:
            wanted = -(-wanted * bits // 8)
    if held != wanted or (raw and kind == TensorProto.STRING):
        raise ConfigError(f"tensor {name!r} holds {held} {what}, its shape needs {wanted}.", file=file, hint=_DAMAGED)


def raw_bytes(tensor: TensorProto) -> int:
    """Bytes of the tensor's data by its shape; 0 for texts and types that are not known."""
    count: int = math.prod(tensor.dims)
    return -(-count * _BITS.get(tensor.data_type, 0) // 8)


def external_place(tensor: TensorProto, file: Path) -> ExternalPlace:
    """Where a tensor's external data are said to lie."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not isinstance(location, str) or not location or "\0" in location:
        raise ConfigError(f"tensor {tensor.name!r} names no file with its external data.", file=file, hint=_DAMAGED)
    numbers = {}
    for key in ("offset", "length"):
        written = entries.get(key, "0")
        digits = isinstance(written, str) and written.isascii() and written.isdigit() and len(written) < 20
        if not digits or int(written) > _LARGEST:
            rule = f"tensor {tensor.name!r} has external data with the {key} {written!r}."
            raise ConfigError(rule, file=file, hint="Offsets and lengths are whole numbers of bytes.")
        numbers[key] = int(written)
    return ExternalPlace(location=location, offset=numbers["offset"], length=numbers["length"])


def check_sparse(sparse: onnx.SparseTensorProto, file: Path) -> None:
    """Raises ConfigError for a sparse tensor that is too large when written out, or holds more values than places."""
    check_tensor(sparse.values, file)
    check_tensor(sparse.indices, file)
    count = _count(sparse.dims, f"sparse tensor {sparse.values.name!r}", file, MOST_DENSE_ELEMENTS)
    if math.prod(sparse.values.dims) > count:
        rule = f"sparse tensor {sparse.values.name!r} holds more values than its shape has places."
        raise ConfigError(rule, file=file, hint=_DAMAGED)


def check_value(value: onnx.ValueInfoProto, file: Path, *, fed: bool = False) -> None:
    """Raises ConfigError for a declared shape that cannot be.

    Args:
        fed: it is an input or an output of the model, which somebody must hold in memory.
    """
    if not isinstance(value.name, str):
        raise ConfigError(f"a tensor has a name that is not UTF-8: {value.name!r}.", file=file, hint=_DAMAGED)
    kind = value.type.tensor_type
    if kind.elem_type not in (TensorProto.UNDEFINED, TensorProto.STRING, *_BITS):
        raise ConfigError(f"{value.name!r} is of no known element type ({kind.elem_type}).", file=file, hint=_DAMAGED)
    dims = [dim.dim_value for dim in kind.shape.dim if dim.HasField("dim_value")]
    if len(kind.shape.dim) > MOST_RANK:
        raise ConfigError(f"{value.name!r} has {len(kind.shape.dim)} axes, more than {MOST_RANK}.", file=file)
    if not all(isinstance(dim.dim_param, str) for dim in kind.shape.dim):
        raise ConfigError(f"an axis of {value.name!r} has a name that is not UTF-8.", file=file, hint=_DAMAGED)
    dims = [dim for dim in dims if dim != -1] if fed else [dim for dim in dims if dim >= 0]  # -1 stands for any size
    if any(dim < 0 for dim in dims):
        raise ConfigError(
            f"{value.name!r} declares an axis of the size {min(dims)}.",
            file=file,
            hint="Export again with a named dynamic axis (dim_param) instead of a negative size.",
        )
    _count(dims, f"{value.name!r}", file, MOST_FED_ELEMENTS if fed else MOST_ELEMENTS)


def _count(dims: Iterable[int], what: str, file: Path, most: int) -> int:
    sizes = [int(size) for size in dims]
    if len(sizes) > MOST_RANK:
        raise ConfigError(f"{what} has {len(sizes)} axes, more than {MOST_RANK}.", file=file, hint=_DAMAGED)
    if any(size < 0 for size in sizes):
        raise ConfigError(f"{what} has the shape {sizes}, with a negative size.", file=file, hint=_DAMAGED)
    count = math.prod(sizes)
    # a zero must not hide what the other axes say: libraries multiply them in another order
    if math.prod(filter(None, sizes)) > most:
        rule = f"{what} has the shape {sizes}, more than {most} elements."
        raise ConfigError(rule, file=file, hint="No machine holds that; the file is damaged.")
    return count
