"""pyACL's data types, and conversions between what callers hold and what a compiled model holds.

Nothing is reinterpreted and nothing is lost in silence: an integer that does not fit, or a float beyond the largest of
the narrower type, is an error that names the tensor. Rounding to a narrower float is no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.values.errors import MeasureError

Array = npt.NDArray[np.generic]


TYPES: Mapping[int, str] = {
    **{0: "float32", 1: "float16", 2: "int8", 3: "int32", 4: "uint8", 6: "int16", 7: "uint16", 8: "uint32"},
    **{9: "int64", 10: "uint64", 11: "float64", 12: "bool", 16: "complex64", 17: "complex128", 27: "bfloat16"},
}
"""aclDataType → NumPy's name, or bfloat16 (pyacl.md §2.3). Left out are strings, packed int4 and uint1, and the float8
to float4 group: no model of the workbench has them at its boundary."""


def acl_type(code: int, tensor: str) -> str:
    """The type of a code of get_input_data_type or get_output_data_type.

    Raises:
        MeasureError: a type that no NumPy array can hold.
    """
    known = TYPES.get(code)
    if known is None:
        raise MeasureError(
            f"{tensor!r} has pyACL data type {code} in the compiled model; the workbench feeds "
            f"{', '.join(sorted(TYPES.values()))}. Compile without an option that changes types of inputs or outputs."
        )
    return known


def storage(name: str) -> np.dtype[Any]:
    """NumPy's type of one element in memory: bfloat16 has none of its own and is kept as uint16."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def check_convertible(source: str, to: str, tensor: str) -> None:
    """Raises MeasureError when values of one type cannot be had as the other: only like kinds convert."""
    if _kind(source) != _kind(to):
        raise MeasureError(
            f"{tensor!r} is {source} in the model and {to} in the compiled file, which is not the same kind of number. "
            "Compile it again."
        )


def to_device(array: Array, to: str, tensor: str) -> Array:
    """The values as the compiled model stores them; the array itself where the type is the same.

    Raises:
        MeasureError: a value does not fit.
    """
    if to == "bfloat16":
        return _to_bfloat16(_narrowed(array, np.dtype(np.float32), tensor), tensor)
    return _narrowed(array, np.dtype(to), tensor)


def from_device(stored: Array, source: str, to: np.dtype[Any], tensor: str) -> Array:
    """The values a caller gets; the array itself where the type is the same.

    Raises:
        MeasureError: a value does not fit.
    """
    values = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32) if source == "bfloat16" else stored
    return _narrowed(values, to, tensor)


def _kind(name: str) -> str:
    return "f" if name == "bfloat16" else np.dtype(name).kind.replace("u", "i")


def _narrowed(array: Array, to: np.dtype[Any], tensor: str) -> Array:
    if array.dtype == to:
        return array
    if np.can_cast(array.dtype, to, "safe"):
        return array.astype(to)
    if to.kind in "iu" and array.dtype.kind in "iu":
        limits = np.iinfo(to)
        lowest, highest = int(array.min(initial=0)), int(array.max(initial=0))
        if lowest < limits.min or highest > limits.max:
            raise MeasureError(
                f"{tensor!r} holds {lowest if lowest < limits.min else highest}, which does not fit {to}, the type in "
                "the compiled model. Feed smaller values, or compile without changing this type."
            )
        return array.astype(to)
    if to.kind == "f" and array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            converted = array.astype(to)
        lost = np.isinf(converted) & np.isfinite(array)
        if lost.any():
            worst = array[lost].flat[0]
            raise MeasureError(
                f"{tensor!r} holds {worst:.6g}, which overflows {to} (largest {np.finfo(to).max:.6g}). Scale it, or "
                "compile it to keep its type."
            )
        return converted
    raise MeasureError(f"{tensor!r} is {array.dtype} and cannot be had as {to} without loss.")


def _to_bfloat16(values: Array, tensor: str) -> Array:
    """float32 → the upper 16 bits, rounded half to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    upper = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    upper = np.where(np.isnan(values), np.uint16(0x7FC0), upper)
    if ((upper & np.uint16(0x7FFF) == np.uint16(0x7F80)) & np.isfinite(values)).any():
        raise MeasureError(
            f"{tensor!r} holds a value that overflows bfloat16. Scale it, or compile it to keep its type."
        )
    return upper
