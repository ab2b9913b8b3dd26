"""IFMR, AMCT's default for activations: a clip range from order statistics, refined by a search (amct.md §4.2).

The maximum is the k-th largest value. Factors of it are tried, and the one with the smallest squared error of
quantizing wins; only the maximum moves, the minimum stays. `calibrate.py` runs the search on every value of a tensor;
`ifmr_range` runs it on a histogram, in a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.quantization.histogram import BINS_PER_SIDE, Doubles, Histogram, density_of
from workbench.quantization.recipe import ActivationRecipe
from workbench.quantization.record import SMALLEST_SCALE, Range

Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]

_LANES = 8
_FEW = 16_384
"""Distinct values up to which each is quantized by itself; beyond, the sort pays off."""

_AT_ONCE = 1024  # times the candidates: scratch that stays in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The parameters that the search tries; one row per factor.

    Attributes:
        low: float32 value of the start of the range; 0 or below.
        clips: float32 [n], the upper clip of the range; the lower one is `low`, or -clip where symmetric.
        scales: float32 [n].
        lowest, highest: int64 [n], the integers that the ends of the range are rounded to: q = round(x / scale)
            without a zero point, as AMCT's search has it.
        symmetric: whether the range ends at -clip instead of `low`.
    """

    low: float
    symmetric: bool
    clips: Floats
    scales: Floats
    lowest: npt.NDArray[np.int64]
    highest: npt.NDArray[np.int64]

    def levels(self) -> Doubles:
        """float64 [n, levels], ascending: what the integers stand for; the last one repeated where rows are shorter."""
        count = int((self.highest - self.lowest).max()) + 1
        integers = np.minimum(self.lowest[:, None] + np.arange(count), self.highest[:, None])
        values: Doubles = (integers.astype(np.float32) * self.scales[:, None]).astype(np.float64)
        return values


def search_factors(recipe: ActivationRecipe) -> Floats:
    """start + i·step, the end excluded, as float32 numbers.

    The default 0.7, 1.3, 0.01 gives 61 factors up to 1.30, since (1.3 - 0.7) / 0.01 is just above 60. AMCT's Python
    code does the same [observed]. Its C++ code of 9.0.0 counts in float32 and tries 60, up to 1.29; which one the
    closed 8.5 has is open (amct.md §13, 1), 61 is assumed here [inferred]. A `search_end` of 1.295 tries those 60.

    The last digits are those of torch.arange on a CPU, which AMCT's record files agree with: in blocks of eight, a
    float32 start plus the lane's steps; what does not fill two blocks, one by one [inferred].
    """
    start, step = recipe.search_start, recipe.search_step
    index = np.arange(np.arange(start, recipe.search_end, step).size)
    lane = index % _LANES
    bases = (start + step * (index - lane)).astype(np.float32)
    blocks = (bases.astype(np.float64) + lane * step).astype(np.float32)
    alone = index >= index.size // (2 * _LANES) * (2 * _LANES)
    return np.where(alone, (start + step * index).astype(np.float32), blocks)


def tail_rank(count: int, share: float) -> int:
    """k: the search starts from the k-th largest (smallest) of `count` values, k = n - int(share·n) (amct.md §4.2)."""
    return 1 if 1 - share < SMALLEST_SCALE else max(count - int(share * count), 1)


def candidates(low: float, high: float, recipe: ActivationRecipe) -> Candidates:
    """What the search tries, in AMCT's float32 arithmetic.

    Args:
        low, high: the order statistics, float32 values; each is moved to contain zero.
    """
    bottom, top = np.float32(min(low, 0.0)), np.float32(max(high, 0.0))
    factors = search_factors(recipe)
    if recipe.symmetric:
        clips = factors * max(top, -bottom)
        scales = _usable(clips / np.float32(128 if -bottom > top else 127))
        lowest = -np.rint(clips / scales)
    else:
        clips = factors * top
        scales = _usable((clips - bottom) / np.float32(255))
        lowest = np.rint(bottom / scales)
    return Candidates(
        low=float(bottom),
        symmetric=recipe.symmetric,
        clips=clips,
        scales=scales,
        lowest=lowest.astype(np.int64),
        highest=np.rint(clips / scales).astype(np.int64),
    )


def parameters(tried: Candidates, best: int) -> tuple[float, int]:
    """Scale and zero point of the winner: offset = -round(min / scale) - 128 (amct.md §4.2)."""
    scale = tried.scales[best]
    if tried.symmetric:
        return float(scale), 0
    zero_point = -int(np.rint(np.float32(tried.low) / scale)) - 128
    return float(scale), min(max(zero_point, -128), 127)


def clip_ends(tried: Candidates, best: int) -> Range:
    """The winner as a clip range that `int8_parameters` turns into the same scale."""
    clip = float(tried.clips[best])
    if not tried.symmetric:
        return tried.low, clip
    over_128 = -tried.low > 0 and int(tried.highest[best]) == 128
    return -clip, clip * 127 / 128 if over_128 else clip


def squared_errors(values: Floats, tried: Candidates) -> Doubles:
    """Σ (q - x)² over one piece of a tensor, for every candidate; the pieces' sums add up to the tensor's.

    Few distinct values are quantized one by one, in AMCT's float32 arithmetic: where a tensor has only a few (a mask,
    a constant), several candidates represent them almost exactly, and the last digits decide. Of many values, those
    between two neighbouring integers of a candidate are summed at once, from a sort and prefix sums; that agrees to
    about 1e-6. Sums are float64; AMCT's are float32, and may put a neighbour first at a closer tie.

    Args:
        values: float32, any shape.
    """
    ordered = np.sort(values, axis=None)
    starts = np.flatnonzero(np.diff(ordered, prepend=np.float32(np.nan)) != 0)
    if starts.size <= _FEW:
        return _literal_errors(ordered[starts], np.diff(starts, append=ordered.size), tried)
    return _errors_between_borders(ordered, tried)


def ifmr_range(histogram: Histogram, recipe: ActivationRecipe) -> Range:
    """The clip range of IFMR on a histogram.

    The order statistics and the errors are those of values spread evenly inside each bin. An order statistic is off
    by at most a bin, 1/2048 of the largest |x|; the error of a candidate by as much as `expected_error` is. Where
    neighbouring factors are about as good as each other, a neighbour of the exact choice may win: the scale then
    differs by a step of the search, 1 % by default. Exact for the extremes (percentiles 1). On the 37 weighted layers
    of a 6-layer encoder (32 sentences) every factor was the exact one, and the scales agreed to 2e-4.

    That is for equal activations. AMCT's are downstream of quantized weights, those of `observe` of float ones, which
    changed the same scales by 0.4 % in the median and 8 % at most; `calibrate.py` has AMCT's.
    """
    if histogram.count == 0:
        return 0.0, 0.0
    tried = candidates(*_order_statistics(histogram, recipe), recipe)
    losses = density_of(histogram).errors(tried.levels() / histogram.width)
    return clip_ends(tried, int(np.argmin(losses)))


def _literal_errors(values: Floats, counts: npt.NDArray[np.int64], tried: Candidates) -> Doubles:
    scales, clips = tried.scales[:, None], tried.clips[:, None]
    lower = np.float32(tried.low) if not tried.symmetric else -clips
    errors = np.zeros(tried.scales.size)
    for start in range(0, values.size, _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        quantized = np.minimum(np.maximum(part, lower), clips)
        quantized /= scales
        np.rint(quantized, out=quantized)
        quantized *= scales
        quantized -= part
        np.square(quantized, out=quantized)
        errors += quantized.astype(np.float64) @ counts[start : start + _AT_ONCE]
    return errors


def _errors_between_borders(ordered: Floats, tried: Candidates) -> Doubles:
    exact = ordered.astype(np.float64)
    first = np.concatenate([[0.0], np.cumsum(exact)])
    second = np.concatenate([[0.0], np.cumsum(exact * exact)])
    levels = tried.levels()
    borders = ((levels[:, 1:] + levels[:, :-1]) / 2).astype(np.float32)
    ends = np.zeros((len(levels), levels.shape[1] + 1), np.int64)
    ends[:, 1:-1] = np.searchsorted(ordered, borders)
    ends[:, -1] = ordered.size
    errors = np.diff(second[ends], axis=1) - 2 * levels * np.diff(first[ends], axis=1)
    errors += levels * levels * np.diff(ends, axis=1)
    summed: Doubles = errors.sum(axis=1)
    return summed


def _usable(scales: Floats) -> Floats:
    return np.where(scales < np.float32(SMALLEST_SCALE), np.float32(1), scales).astype(np.float32)


def _order_statistics(histogram: Histogram, recipe: ActivationRecipe) -> Range:
    positive = histogram.counts[BINS_PER_SIDE:]
    negative = histogram.counts[BINS_PER_SIDE - 1 :: -1]
    above = tail_rank(histogram.count, recipe.max_percentile)
    below = tail_rank(histogram.count, recipe.min_percentile)
    high = _from_the_end(positive, above, max(histogram.maximum, 0.0), histogram.width)
    low = _from_the_end(negative, below, max(-histogram.minimum, 0.0), histogram.width)
    return -low, high


def _from_the_end(counts: npt.NDArray[np.int64], rank: int, largest: float, width: float) -> float:
    """The `rank`-th largest of the magnitudes of one side; 0 where that side has fewer."""
    if rank == 1:
        return largest
    beyond = np.cumsum(counts[::-1])
    if rank > beyond[-1]:
        return 0.0
    at = int(np.searchsorted(beyond, rank))
    bin_index = counts.size - 1 - at
    inside = (rank - 0.5 - (beyond[at] - counts[bin_index])) / counts[bin_index]
    return min((bin_index + 1 - float(inside)) * width, largest)


# --- the k-th largest and k-th smallest of a stream, exactly, at constant memory --------------------------------------
#
# One pass keeps the outermost `KEPT` values of each side; that settles every rank up to there. A rank further inside
# takes a second pass: the first one has counted the upper 16 bits of every value, which tells the bucket the rank falls
# into; the second one counts the lower 16 bits of the values in that bucket (radix selection).

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
