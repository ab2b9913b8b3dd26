"""Orders of elements that the device keeps tensors in, brought back to the model's (graph engine, data formats).

    NC1HWC0      [N, C1, H, W, C0]           channels in groups of C0
    FRACTAL_NZ   […, N1, M1, M0, N0]         a matrix in blocks of M0 x N0, blocks column by column

Both are padded up to whole groups or blocks; the model's shape says what of it is real.
"""

from __future__ import annotations

import math

import numpy as np

from workbench.targets.base import Array

NC1HWC0, FRACTAL_NZ = 3, 29


def in_model_order(values: Array, format: int, shape: tuple[int, ...]) -> Array:
    """Values in the order and shape of the model's tensor; as they are where nothing says that order.

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
