"""The innermost loops of calibration, counting and sorting, in machine code where numba is installed.

NumPy's `bincount` takes 1.5 ns a value, holds the interpreter's lock meanwhile, and needs the bin numbers in an array
of 64-bit integers first: 2.9 ns a value in all. The loop below takes 1.0 ns, holds no lock, and gives the same
counts to the last one; without numba the histogram counts with NumPy. Sorting: see `compiled_sort`.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Count = Callable[[npt.NDArray[np.float32], np.float32, int, npt.NDArray[np.int64]], int]
"""(values, 1 / bin width, number of counts[0]'s bin, counts) → how many were zero, which are not counted."""

Sort = Callable[[npt.NDArray[np.float32]], tuple[npt.NDArray[Any], ...]]
"""values → (ordered, sums of the first n, sums of their squares, place of the first of each bucket, distinct)."""
Search = Callable[
    [npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.int64]], None
]
"""(ordered, places of buckets, borders [rows, n], ends [rows, n + 2]): ends[:, 1:-1] become those of `searchsorted`."""
CountUpper = Callable[[npt.NDArray[np.float32], npt.NDArray[np.int64]], None]
"""(values, counts by the upper 16 bits, added to)."""

_TOGETHER = 1024  # values whose bin numbers stay in the first-level cache


def compiled_count() -> Count | None:
    """The loop in machine code; None without numba.

    Compiled at the first call (about a second), and read from numba's own cache on disk later.
    """
    return _compiled("int64(values, float32, int64, int64[::1])", _count)


def compiled_sort() -> Sort | None:
    """A radix sort with prefix sums, as `numpy.sort` and `numpy.cumsum` give them to the last bit; None without numba.

    40 ns a value are numpy's on a processor without AVX-512, 10 ns are these.
    """
    kinds = "float32[::1], float64[::1], float64[::1], int64[::1], int64"
    return _compiled(f"Tuple(({kinds}))(values)", _sorted_with_sums)


def compiled_search() -> Search | None:
    return _compiled("void(float32[::1], int64[::1], float32[:, ::1], int64[:, ::1])", _search)


def compiled_count_upper() -> CountUpper | None:
    return _compiled("void(values, int64[::1])", _count_upper)


@functools.cache
def _compiled(signature: str, loop: Callable[..., Any]) -> Callable[..., Any] | None:
    """Args:
    signature: numba's, with `values` for float32 values that may be read-only.
    """
    if importlib.util.find_spec("numba") is None:
        return None
    import numba

    values = numba.types.Array(numba.types.float32, 1, "C", readonly=True)
    of = eval(signature, {**vars(numba.types), "values": values})  # as numba reads its signatures
    try:
        compiled: Callable[..., Any] = numba.njit(of, nogil=True, cache=True)(loop)
    except RuntimeError:  # numba finds no place for its cache: neither this folder nor the user's can be written
        compiled = numba.njit(of, nogil=True)(loop)
    return compiled


def _count(
    values: npt.NDArray[np.float32], inverse_width: np.float32, first: int, counts: npt.NDArray[np.int64]
) -> int:
    # Two short loops: the first one is vectorized, the second one only adds.
    zeros = 0
    bins = np.empty(_TOGETHER, np.uint32)
    for start in range(0, values.size, _TOGETHER):
        size = min(_TOGETHER, values.size - start)
        for place in range(size):
            scaled = values[start + place] * inverse_width
            zeros += scaled == np.float32(0)
            bins[place] = np.uint32(np.int32(np.floor(scaled)) - np.int32(first))
        for place in range(size):
            counts[bins[place]] += 1
    counts[-first] -= zeros  # they were counted into the bin that begins at zero
    return zeros


def _sorted_with_sums(values: npt.NDArray[np.float32]) -> tuple[Any, ...]:
    size = values.size
    keys = np.empty(size, np.uint32)
    bits = (values + np.float32(0)).view(np.uint32)  # -0.0 becomes 0.0: they are one value and must share a bucket
    low, middle, high = np.zeros(2048, np.int64), np.zeros(2048, np.int64), np.zeros(1024, np.int64)
    for at in range(size):
        bit = bits[at]
        key = bit ^ (np.uint32(0xFFFFFFFF) if bit >> np.uint32(31) else np.uint32(0x80000000))
        keys[at] = key
        low[key & np.uint32(2047)] += 1
        middle[(key >> np.uint32(11)) & np.uint32(2047)] += 1
        high[key >> np.uint32(22)] += 1
    for counts in (low, middle, high):
        total = 0
        for at in range(counts.size):
            count = counts[at]
            counts[at] = total
            total += count
    other = np.empty(size, np.uint32)
    for at in range(size):
        key = keys[at]
        digit = key & np.uint32(2047)
        other[low[digit]] = key
        low[digit] += 1
    for at in range(size):
        key = other[at]
        digit = (key >> np.uint32(11)) & np.uint32(2047)
        keys[middle[digit]] = key
        middle[digit] += 1
    for at in range(size):
        key = keys[at]
        digit = key >> np.uint32(22)
        other[high[digit]] = key
        high[digit] += 1
    places = np.empty(65537, np.int64)
    first, second = np.empty(size + 1), np.empty(size + 1)
    first[0] = second[0] = 0.0
    sums, squares, distinct, bucket, before = 0.0, 0.0, 0, 0, np.uint32(0)
    for at in range(size):
        key = other[at]
        distinct += at == 0 or key != before
        before = key
        while bucket <= np.int64(key >> np.uint32(16)):
            places[bucket] = at
            bucket += 1
        keys[at] = key ^ (np.uint32(0x80000000) if key >> np.uint32(31) else np.uint32(0xFFFFFFFF))
    while bucket < 65537:
        places[bucket] = size
        bucket += 1
    ordered = keys.view(np.float32)
    for at in range(size):
        value = np.float64(ordered[at])
        sums += value
        squares += value * value
        first[at + 1] = sums
        second[at + 1] = squares
    return ordered, first, second, places, distinct


def _search(
    ordered: npt.NDArray[np.float32],
    places: npt.NDArray[np.int64],
    borders: npt.NDArray[np.float32],
    ends: npt.NDArray[np.int64],
) -> None:
    rows, count = borders.shape
    bits = (borders + np.float32(0)).view(np.uint32)
    for row in range(rows):
        for at in range(count):
            bit, border = bits[row, at], borders[row, at]
            key = bit ^ (np.uint32(0xFFFFFFFF) if bit >> np.uint32(31) else np.uint32(0x80000000))
            bucket = np.int64(key >> np.uint32(16))
            low, high = places[bucket], places[bucket + 1]
            while low < high:
                half = (low + high) >> 1
                if ordered[half] < border:
                    low = half + 1
                else:
                    high = half
            ends[row, at + 1] = low


def _count_upper(values: npt.NDArray[np.float32], counts: npt.NDArray[np.int64]) -> None:
    bits = values.view(np.uint32)
    for at in range(bits.size):
        counts[bits[at] >> np.uint32(16)] += 1
