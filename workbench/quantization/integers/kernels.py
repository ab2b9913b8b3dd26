"""Exact integer Conv, ConvTranspose, AveragePool and matrix products, on integers that are kept in floating point.

A sum of integers whose magnitudes add up to at most 2**24 is exact in float32, whatever the order of the additions;
up to 2**53 in float64. So every product may go to BLAS, and no instruction set can saturate it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

EXACT_FLOAT32 = float(2**24)
EXACT_FLOAT64 = float(2**53)

Integers = npt.NDArray[np.floating[Any]]
"""Float32 or float64 arrays of whole numbers."""
Attributes = Mapping[str, Any]
"""Of an ONNX node, as `onnx.helper.get_attribute_value` gives them."""


def exact_type(bound: float) -> type[np.float32] | type[np.float64]:
    """The narrower type in which sums of magnitude `bound` at most are exact."""
    return np.float32 if bound <= EXACT_FLOAT32 else np.float64


def product(a: Integers, b: Integers, bound: float) -> Integers:
    """a @ b, exact.

    Args:
        bound: no sum of |a|·|b| over the inner dimension is larger; at most 2**53.
    """
    kind = exact_type(bound)
    a, b = a.astype(kind, copy=False), b.astype(kind, copy=False)
    if a.ndim > 2 and b.ndim == 2:  # one large product in place of many small ones
        flat: Integers = np.matmul(a.reshape(-1, a.shape[-1]), b)
        return flat.reshape(*a.shape[:-1], b.shape[-1])
    result: Integers = np.matmul(a, b)
    return result


def conv(x: Integers, w: Integers, attributes: Attributes, bound: float) -> Integers:
    """ONNX Conv without bias: x [N, Cin, ...], w [Cout, Cin / group, ...]; padding is the number 0."""
    kind = exact_type(bound)
    groups = int(attributes.get("group", 1))
    columns, places = unfolded(x.astype(kind, copy=False), w.shape[2:], attributes)
    rows = w.astype(kind, copy=False).reshape(groups, w.shape[0] // groups, -1)
    result: Integers = np.matmul(rows, columns)
    return result.reshape(len(x), w.shape[0], *places)


def unfolded(x: Integers, kernel: Sequence[int], attributes: Attributes) -> tuple[Integers, list[int]]:
    """What a Conv's weights meet, [N, groups, Cin / groups · kernel elements, output positions], and the positions'
    sizes."""
    groups, rank = int(attributes.get("group", 1)), len(kernel)
    strides, dilations = _steps(attributes, rank)
    pads = _pads(attributes, x.shape[2:], kernel, strides, dilations)
    windows = _windows(_padded(x, pads), kernel, strides, dilations)
    batch, channels, *rest = windows.shape
    places = rest[:rank]
    # [N, Cin, places, kernel] → [N, groups, Cin / groups · kernel, places]
    axes = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    shape = (batch, groups, channels // groups * math.prod(kernel), math.prod(places))
    return windows.transpose(axes).reshape(shape), places


def conv_transpose(x: Integers, w: Integers, attributes: Attributes, bound: float) -> Integers:
    """ONNX ConvTranspose without bias: x [N, Cin, ...], w [Cin, Cout / group, ...]."""
    kind = exact_type(bound)
    groups = int(attributes.get("group", 1))
    kernel, places = w.shape[2:], x.shape[2:]
    strides, dilations = _steps(attributes, len(kernel))
    extra = tuple(attributes.get("output_padding", ())) or (0,) * len(kernel)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    full = tuple(s * (n - 1) + r + e for s, n, r, e in zip(strides, places, reach, extra, strict=True))
    pads = _transposed_pads(attributes, full, places, strides)
    batch, channels = x.shape[:2]
    rows = x.astype(kind, copy=False).reshape(batch, groups, channels // groups, -1)
    columns = w.astype(kind, copy=False).reshape(groups, channels // groups, -1).transpose(0, 2, 1)
    spread = np.matmul(columns, rows).reshape(batch, groups * w.shape[1], *kernel, *places)
    result = np.zeros((batch, groups * w.shape[1], *full), kind)
    for taps in itertools.product(*map(range, kernel)):
        target = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(taps, dilations, strides, places, strict=True)
        )
        result[(slice(None), slice(None), *target)] += spread[(slice(None), slice(None), *taps)]
    inner = tuple(slice(before, size - after) for (before, after), size in zip(pads, full, strict=True))
    return np.ascontiguousarray(result[(slice(None), slice(None), *inner)])


def average_pool(x: Integers, attributes: Attributes) -> npt.NDArray[np.float32]:
    """ONNX AveragePool: exact sums, divided in float32. The means are no integers any more (amct.md §6.6)."""
    kernel = tuple(attributes["kernel_shape"])
    strides, dilations = _steps(attributes, len(kernel))
    pads = _pads(attributes, x.shape[2:], kernel, strides, dilations)
    padded = [(0, 0), (0, 0), *pads]
    values = np.pad(x.astype(np.float64), padded)
    included = 1 if attributes.get("count_include_pad", 0) else 0
    counted = np.pad(np.ones((1, 1, *x.shape[2:])), padded, constant_values=included)
    if attributes.get("ceil_mode", 0):
        sizes = zip(x.shape[2:], pads, kernel, strides, dilations, strict=True)
        tail = [(0, 0), (0, 0), *((0, _ceiling_tail(size, pair, k, s, d)) for size, pair, k, s, d in sizes)]
        values, counted = np.pad(values, tail), np.pad(counted, tail)
    axes = tuple(range(-len(kernel), 0))
    sums = _windows(values, kernel, strides, dilations).sum(axis=axes)
    counts = _windows(counted, kernel, strides, dilations).sum(axis=axes)
    means: npt.NDArray[np.float32] = sums.astype(np.float32) / counts.astype(np.float32)
    return means


def _ceiling_tail(size: int, pads: tuple[int, int], kernel: int, stride: int, dilation: int) -> int:
    """Positions to add at the end so that a last, partial window exists; none that starts in the end padding."""
    reach, padded = dilation * (kernel - 1) + 1, size + sum(pads)
    windows = -(-(padded - reach) // stride) + 1
    if (windows - 1) * stride >= size + pads[0]:
        windows -= 1
    return max(0, (windows - 1) * stride + reach - padded)


def _steps(attributes: Attributes, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ones = (1,) * rank
    return tuple(attributes.get("strides", ones)), tuple(attributes.get("dilations", ones))


def _pads(
    attributes: Attributes,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[tuple[int, int]]:
    mode = _auto_pad(attributes)
    if mode == "NOTSET":
        return _explicit(attributes, len(kernel))
    if mode == "VALID":
        return [(0, 0)] * len(kernel)
    every = zip(sizes, kernel, strides, dilations, strict=True)
    return _halved([(-(-size // s) - 1) * s + d * (k - 1) + 1 - size for size, k, s, d in every], mode)


def _transposed_pads(
    attributes: Attributes, full: Sequence[int], places: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """What is cut from a ConvTranspose's full output; `output_shape` wins over `pads`, as ONNX has it."""
    mode = _auto_pad(attributes)
    wanted = tuple(attributes.get("output_shape", ()))[-len(full) :]
    if not wanted and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(n * s for n, s in zip(places, strides, strict=True))
    if not wanted:
        return _explicit(attributes, len(full))
    return _halved([size - target for size, target in zip(full, wanted, strict=True)], mode)


def _explicit(attributes: Attributes, rank: int) -> list[tuple[int, int]]:
    pads = list(attributes.get("pads", [0] * 2 * rank))
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _halved(totals: Sequence[int], mode: str) -> list[tuple[int, int]]:
    pairs = [(max(0, total) // 2, max(0, total) - max(0, total) // 2) for total in totals]
    return pairs if mode == "SAME_UPPER" else [(large, small) for small, large in pairs]


def _auto_pad(attributes: Attributes) -> str:
    mode = attributes.get("auto_pad", "NOTSET")
    return mode.decode() if isinstance(mode, bytes) else str(mode)


def _padded(x: Integers, pads: Sequence[tuple[int, int]]) -> Integers:
    return np.pad(x, [(0, 0), (0, 0), *pads]) if any(any(pair) for pair in pads) else x


def _windows(x: Integers, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Integers:
    """A view [N, C, places..., kernel...] of x [N, C, ...]."""
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, x.ndim)))
    step = tuple(slice(None, None, s) for s in strides)
    tap = tuple(slice(None, None, d) for d in dilations)
    return view[(slice(None), slice(None), *step, *tap)]
