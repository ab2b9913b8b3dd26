"""Two arrays whose sizes depend on the data: the part that both have.

A model that chooses the length of its output (speech from text) may choose another one once it is quantized.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def common_part(a: Array, b: Array) -> tuple[Array, Array]:
    """Both cut to the smaller size along every axis; the very same arrays where they have one shape.

    Raises:
        ValueError: they differ in their number of axes.
    """
    if a.shape == b.shape:
        return a, b
    if a.ndim != b.ndim:
        raise ValueError(f"shapes {a.shape} and {b.shape} differ in their number of axes")
    common = tuple(slice(min(sizes)) for sizes in zip(a.shape, b.shape, strict=True))
    return np.ascontiguousarray(a[common]), np.ascontiguousarray(b[common])
