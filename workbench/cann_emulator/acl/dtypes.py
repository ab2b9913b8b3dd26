"""Data types of ACL: code, name in an offline model, bytes, numpy (pyacl.md §2.3)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

CODES: Mapping[str, int] = {
    **{"float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4},
    **{"int64": 9, "uint64": 10, "bool": 12, "bfloat16": 27},
}

SIZES: Mapping[int, int] = {
    **{0: 4, 1: 2, 2: 1, 3: 4, 4: 1, 6: 2, 7: 2, 8: 4, 9: 8, 10: 8, 11: 8, 12: 1, 13: 0, 16: 8, 17: 16, 27: 2},
    **{29: 1, 30: 1, 33: 4, 34: 1, 35: 1, 36: 1, 37: 1, 38: 1, 39: 1, 40: 1, 41: 1},
}
"""Bytes per element as `acl.data_type_size` gives them; 38 to 41 are [inferred] from int4, which gives 1."""

_STORED: Mapping[str, str] = {"bfloat16": "uint16"}
"""What numpy has no type for travels as words."""


def numpy_dtype(name: str) -> npt.DTypeLike:
    return np.dtype(_STORED.get(name, name))


def item_bytes(name: str) -> int:
    return SIZES[CODES[name]]
