"""The k-th largest and k-th smallest of a stream of float32 values, exactly, at constant memory.

One pass keeps the outermost `KEPT` values of each side; that settles every rank up to there. A rank further inside
takes a second pass: the first one has counted the upper 16 bits of every value, which tells the bucket the rank falls
into; the second one counts the lower 16 bits of the values in that bucket (radix selection).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]

KEPT = 4096
"""Values kept per side; IFMR's default percentile needs no second pass up to 4e9 values."""

_CHUNK = 65536
_BUCKETS = 65536
_NEGATIVE = _BUCKETS // 2  # buckets from here on hold negative values, the smallest ones last
_ASCENDING = np.concatenate([np.arange(_BUCKETS - 1, _NEGATIVE - 1, -1), np.arange(_NEGATIVE)])


class OrderStatistics:
    """Ranks of one tensor: `add` all values; then `largest` and `smallest`, or where they ask for it, `refine` first.

    Attributes:
        count: values added.
    """

    def __init__(self) -> None:
        self.count = 0
        self._upper = _Tail()
        self._lower = _Tail()  # of -x
        self._counts: Counts = np.zeros(_BUCKETS, np.int64)
        self._fine: dict[int, Counts] = {}

    def add(self, values: Floats) -> None:
        """Take values of any shape; all finite."""
        flat = values.reshape(-1)
        if flat.size == 0:
            return
        self.count += flat.size
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            self._upper.add(part)
            self._lower.add(-part)
            self._counts += np.bincount(_buckets(part), minlength=_BUCKETS)

    def settled(self, rank: int) -> bool:
        """Whether the `rank`-th largest and smallest are known without a second pass."""
        return rank <= KEPT

    def prepare(self, largest: int, smallest: int) -> bool:
        """Name the ranks that will be asked for, after the last `add`; True where they take a second pass."""
        for rank in (self._ascending(largest), smallest):
            if not self.settled(rank) and not self.settled(self.count + 1 - rank):
                self._fine[self._place(rank)[0]] = np.zeros(_BUCKETS, np.int64)
        return bool(self._fine)

    def refine(self, values: Floats) -> None:
        """The second pass: the same values again, in any order."""
        flat = values.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            part = np.ascontiguousarray(flat[start : start + _CHUNK])
            buckets = _buckets(part)
            for bucket, counts in self._fine.items():
                inside = part.view(np.uint32)[buckets == bucket] & 0xFFFF
                counts += np.bincount(inside, minlength=_BUCKETS)

    def largest(self, rank: int) -> float:
        """The `rank`-th largest value, 1 <= rank <= count."""
        return self.smallest(self._ascending(rank))

    def smallest(self, rank: int) -> float:
        """The `rank`-th smallest value, 1 <= rank <= count."""
        if not 1 <= rank <= self.count:
            raise ValueError(f"there is no value of rank {rank} among {self.count}")
        if self.settled(rank):
            return -self._lower.largest(rank)
        if self.settled(self._ascending(rank)):
            return self._upper.largest(self._ascending(rank))
        bucket, inside = self._place(rank)
        counts = self._fine[bucket]
        if bucket >= _NEGATIVE:
            inside = int(counts.sum()) + 1 - inside  # magnitudes ascend where values descend
        low = int(np.searchsorted(np.cumsum(counts), inside))
        return float(np.array([bucket << 16 | low], np.uint32).view(np.float32)[0])

    def _ascending(self, rank: int) -> int:
        return self.count + 1 - rank

    def _place(self, rank: int) -> tuple[int, int]:
        """Bucket of the `rank`-th smallest value, and its rank inside."""
        sums = np.cumsum(self._counts[_ASCENDING])
        at = int(np.searchsorted(sums, rank))
        before = int(sums[at - 1]) if at else 0
        return int(_ASCENDING[at]), rank - before


class _Tail:
    """The `KEPT` largest values seen."""

    def __init__(self) -> None:
        self._values: Floats = np.zeros(0, np.float32)
        self._floor = -math.inf

    def add(self, values: Floats) -> None:
        larger = values[values > np.float32(self._floor)]
        if larger.size == 0:
            return
        self._values = np.concatenate([self._values, larger])
        if self._values.size > KEPT:
            self._values = np.partition(self._values, -KEPT)[-KEPT:]
            self._floor = float(self._values[0])

    def largest(self, rank: int) -> float:
        return float(np.partition(self._values, -rank)[-rank])


def _buckets(values: Floats) -> npt.NDArray[np.uint32]:
    """The upper 16 bits of each value: sign, exponent and 7 bits of the mantissa."""
    return np.ascontiguousarray(values).view(np.uint32) >> np.uint32(16)
