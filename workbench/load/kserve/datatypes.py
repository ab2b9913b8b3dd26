"""Tensors as the protocol names and lays them out: little endian, row major, without gaps; texts with their length."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from workbench.values.errors import MeasureError
from workbench.values.preprocess import Array

BYTES = "BYTES"
NUMPY: dict[str, str] = {
    "BOOL": "?",
    **{
        f"{sign}INT{bits}": f"<{letter}{bits // 8}"
        for sign, letter in (("", "i"), ("U", "u"))
        for bits in (8, 16, 32, 64)
    },
    **{f"FP{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}
"""Datatype of the protocol → NumPy's; BF16, which NumPy has not, is missing."""


def to_bytes(array: Array, datatype: str) -> bytes:
    """The tensor's bytes; of BYTES each element's length as four bytes, then its UTF-8."""
    if datatype != BYTES:
        return np.ascontiguousarray(array, dtype=NUMPY[datatype]).tobytes()
    parts = [str(text).encode() for text in array.ravel().tolist()]
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def from_bytes(content: bytes, datatype: str, shape: tuple[int, ...], name: str) -> Array:
    """The array of an answer's bytes, not writable.

    Raises:
        MeasureError: a datatype that is no number, or another number of bytes than the shape takes.
    """
    kind = numpy_type(datatype, name)
    wanted = kind.itemsize * int(np.prod(shape, dtype=np.int64))
    if len(content) != wanted:
        raise MeasureError(
            f"output {name!r} has {len(content)} bytes; {datatype} of the shape {list(shape)} has {wanted}."
        )
    return np.frombuffer(content, dtype=kind).reshape(shape)


def from_numbers(data: Any, datatype: str, shape: tuple[int, ...], name: str) -> Array:
    """The array of an answer's numbers, flat or nested.

    Raises:
        MeasureError: a datatype that is no number, something else than numbers, or another number of them.
    """
    kind = numpy_type(datatype, name)
    if min(shape, default=0) < 0:
        raise MeasureError(f"output {name!r} has the shape {list(shape)}, which is none.")
    try:
        return np.asarray(data, dtype=kind).reshape(shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise MeasureError(f"output {name!r} is no {datatype} of the shape {list(shape)}: {error}.") from error


def numpy_type(datatype: str, name: str) -> np.dtype[Any]:
    """NumPy's type of a datatype.

    Raises:
        MeasureError: texts, BF16, and what the protocol does not know.
    """
    if datatype not in NUMPY:
        raise MeasureError(f"output {name!r} is of datatype {datatype!r}, which is no number that can be compared.")
    return np.dtype(NUMPY[datatype])
