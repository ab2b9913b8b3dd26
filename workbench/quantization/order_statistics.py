"""The k-th largest and k-th smallest of a stream of float32 values, exactly, at constant memory.

One pass keeps the outermost `KEPT` values of each side; that settles every rank up to there. A rank further inside
takes a second pass: the first one has counted the upper 16 bits of every value, which tells the bucket the rank falls
into; the second one counts the lower 16 bits of the values in that bucket (radix selection).
"""

from __future__ import annotations

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
    """Ranks of one tensor: `add` all values; then `smallest`, or where `prepare` asks for it, `refine` first.

    Attributes:
        count: values added.
    """

    def __init__(self) -> None:
        self.count = 0
        self._largest = self._lowest = np.zeros(0, np.float32)  # the lowest ones' negatives
        self._counts: Counts = np.zeros(_BUCKETS, np.int64)
        self._fine: dict[int, Counts] = {}

    def add(self, values: Floats) -> None:
        """Take values of any shape; all finite."""
        flat = values.reshape(-1)
        self.count += flat.size
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK]
            self._largest, self._lowest = _outermost(self._largest, part), _outermost(self._lowest, -part)
            self._counts += np.bincount(_buckets(part), minlength=_BUCKETS)

    def prepare(self, *ranks: int) -> bool:
        """Name the ranks that will be asked for, after the last `add`; True where they take a second pass."""
        for rank in ranks:
            if KEPT < rank <= self.count - KEPT:
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

    def smallest(self, rank: int) -> float:
        """The `rank`-th smallest value, 1 <= rank <= count."""
        if rank <= KEPT:
            return -float(np.partition(self._lowest, -rank)[-rank])
        if (from_above := self.count + 1 - rank) <= KEPT:
            return float(np.partition(self._largest, -from_above)[-from_above])
        bucket, inside = self._place(rank)
        counts = self._fine[bucket]
        if bucket >= _NEGATIVE:
            inside = int(counts.sum()) + 1 - inside  # magnitudes ascend where values descend
        low = int(np.searchsorted(np.cumsum(counts), inside))
        return float(np.array([bucket << 16 | low], np.uint32).view(np.float32)[0])

    def _place(self, rank: int) -> tuple[int, int]:
        """Bucket of the `rank`-th smallest value, and its rank inside."""
        sums = np.cumsum(self._counts[_ASCENDING])
        at = int(np.searchsorted(sums, rank))
        before = int(sums[at - 1]) if at else 0
        return int(_ASCENDING[at]), rank - before


def _outermost(kept: Floats, values: Floats) -> Floats:
    """The `KEPT` largest of both; of so many the first is the smallest."""
    if kept.size == KEPT:
        values = values[values > kept[0]]
    if values.size == 0:
        return kept
    found = np.concatenate([kept, values])
    return found if found.size < KEPT else np.partition(found, found.size - KEPT)[found.size - KEPT :]


def _buckets(values: Floats) -> npt.NDArray[np.uint32]:
    """The upper 16 bits of each value: sign, exponent and 7 bits of the mantissa."""
    return np.ascontiguousarray(values).view(np.uint32) >> np.uint32(16)
