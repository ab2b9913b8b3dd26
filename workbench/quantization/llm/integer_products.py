"""Products of 8-bit integers with exact 32-bit sums, by the first kernel here that is exact.

Kernels:

- `int8`: `torch._int_mm`, which is oneDNN's s8 × s8 → s32. With the instructions of VNNI or AMX its sums are exact; on
  processors without them some kernels add pairs of products in 16 bits, which saturate.
- `float32`: float products of 1024 columns at a time, added as integers. 1024 · 128 · 128 = 2**24, so every partial
  sum is an integer that float32 holds, in whatever order a kernel adds. A caller who lowered torch's precision of
  float32 products (`torch.set_float32_matmul_precision`) makes it inexact.

Before the first product of a process each is tried on the extremes that saturate or cancel (±128 · 128, ±127 · 127, in
shapes with and without whole tiles) and on random integers, and the first that gives every sum exactly is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import torch

Kernel = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MOST_COLUMNS = (1 << 17) - 1
"""K up to which no sum of products of two int8 numbers leaves int32: K · 128 · 128 < 2**31."""
_COLUMNS_IN_FLOAT32 = 1024
_TRIED_ROWS = (1, 3, 17, 64)
_TRIED_SHAPES = ((7, 1), (5, 3), (16, 64), (33, 255), (64, 576))
"""(N, K), tried with each number of rows."""


def integer_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x · weightᵀ with every sum exact, whatever the processor.

    Args:
        x: int8 [M, K].
        weight: int8 [N, K].

    Returns:
        int32 [M, N].
    """
    if x.dtype != torch.int8 or weight.dtype != torch.int8:
        raise ValueError(f"{x.dtype} by {weight.dtype}; both have to be int8.")
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"{list(x.shape)} by {list(weight.shape)} have no product over the last axis.")
    if x.shape[1] > MOST_COLUMNS:
        raise ValueError(f"{x.shape[1]} columns; above {MOST_COLUMNS} a sum may leave int32.")
    return KERNELS[exact_kernel()](x, weight)


@cache
def exact_kernel() -> str:
    """The name of the first that is exact here; the first call tries them."""
    for name, kernel in KERNELS.items():
        if is_exact(kernel):
            return name
    raise RuntimeError("no kernel of torch gives exact sums of 8-bit products on this machine; reinstall torch.")


def is_exact(kernel: Kernel) -> bool:
    """Whether a kernel gives every sum exactly on what it is tried with; one that torch does not have here does not."""
    try:
        return all(torch.equal(kernel(x, weight), _reference(x, weight)) for x, weight in _trials())
    except (RuntimeError, NotImplementedError, AttributeError):  # torch's own words for a kernel that it does not have
        return False


def _reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x.to(torch.int32), weight.to(torch.int32).T)


def _trials() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    random = torch.Generator().manual_seed(8)
    for rows in _TRIED_ROWS:
        for outputs, columns in _TRIED_SHAPES:
            x = torch.empty(rows, columns, dtype=torch.int8)
            weight = torch.empty(outputs, columns, dtype=torch.int8)
            for left, right in ((-128, -128), (-128, 127), (127, -128), (127, 127)):
                yield x.fill_(left), weight.fill_(right)
            yield tuple(  # type: ignore[misc]  # two tensors
                torch.randint(-128, 128, each.shape, dtype=torch.int8, generator=random) for each in (x, weight)
            )


def _int8(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if x.shape[1] == 1:  # torch 2.13 takes a column for a row where a stride says nothing, and gives wrong products
        return x.to(torch.int32) * weight.to(torch.int32).T
    return torch._int_mm(x, weight.T)


def _float32(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(len(x), len(weight), dtype=torch.int32)
    for start in range(0, x.shape[1], _COLUMNS_IN_FLOAT32):
        part = slice(start, start + _COLUMNS_IN_FLOAT32)
        total += (x[:, part].to(torch.float32) @ weight[:, part].to(torch.float32).T).to(torch.int32)
    return total


KERNELS: dict[str, Kernel] = {"int8": _int8, "float32": _float32}
