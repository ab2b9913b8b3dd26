"""pyACL's data types, and conversions between what callers hold and what a compiled model holds.

Nothing is reinterpreted and nothing is lost in silence: an integer that does not fit, or a float beyond the largest of
the narrower type, is an error that names the tensor. Rounding to a narrower float is no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from workbench.targets.base import Array
from workbench.values.errors import MeasureError

TYPES: Mapping[int, str] = {
    **{0: "float32", 1: "float16", 2: "int8", 3: "int32", 4: "uint8", 6: "int16", 7: "uint16", 8: "uint32"},
    **{9: "int64", 10: "uint64", 11: "float64", 12: "bool", 16: "complex64", 17: "complex128", 27: "bfloat16"},
}
"""aclDataType → NumPy's name, or bfloat16 (pyacl.md §2.3). Left out are strings, packed int4 and uint1, and the float8
to float4 group: no model of the workbench has them at its boundary."""


def stored_type(code: int, declared: str, tensor: str) -> np.dtype[Any]:
    """The type of a code of get_input_data_type or get_output_data_type, of a tensor that the model declares so.

    Raises:
        MeasureError: a type that no array can hold, or of another kind of number: only like kinds convert.
    """
    known = TYPES.get(code)
    if known is None:
        raise MeasureError(
            f"{tensor!r} has pyACL data type {code} in the compiled model; the workbench feeds "
            f"{', '.join(sorted(TYPES.values()))}. Compile without an option that changes types of inputs or outputs."
        )
    found = np.dtype(ml_dtypes.bfloat16 if known == "bfloat16" else known)
    if _kind(found) != _kind(np.dtype(declared)):
        raise MeasureError(
            f"{tensor!r} is {declared} in the model and {known} in the compiled file, which is not the same kind of "
            "number. Compile it again."
        )
    return found


def _kind(dtype: np.dtype[Any]) -> str:
    return "f" if dtype == ml_dtypes.bfloat16 else dtype.kind.replace("u", "i")


def converted(array: Array, to: np.dtype[Any], tensor: str) -> Array:
    """The values in another type; the array itself where that is its own.

    Raises:
        MeasureError: a value does not fit.
    """
    if array.dtype == to:
        return array
    if np.can_cast(array.dtype, to, "safe"):
        return array.astype(to)
    kinds = _kind(array.dtype), _kind(to)
    if kinds == ("i", "i"):
        limits = np.iinfo(to)
        lowest, highest = int(array.min(initial=0)), int(array.max(initial=0))
        if lowest < limits.min or highest > limits.max:
            raise MeasureError(
                f"{tensor!r} holds {lowest if lowest < limits.min else highest}, which does not fit {to}, the type in "
                "the compiled model. Feed smaller values, or compile without changing this type."
            )
    elif kinds != ("f", "f"):
        raise MeasureError(f"{tensor!r} is {array.dtype} and cannot be had as {to} without loss.")
    with np.errstate(over="ignore"):
        found = array.astype(to)
    if kinds == ("f", "f") and (lost := np.isinf(found) & np.isfinite(array)).any():
        largest = float(ml_dtypes.finfo(to).max)  # type: ignore[no-untyped-call]  # it has no annotations
        raise MeasureError(
            f"{tensor!r} holds {float(array[lost].flat[0]):.6g}, which overflows {to} (largest {largest:.6g}). Scale "
            "it, or compile it to keep its type."
        )
    return found
