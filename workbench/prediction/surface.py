"""A time surface over batch and length: measured at few, interpolated between, and checked at points left out.

One compiled file runs at any length, so one surface tells what a service takes with any bins: `curve_at` gives the
batch curve that a measurement at exactly those bins would have given, within `BatchCurve.fit_error`. How time grows
with length is measured at the smallest batch, where calls are cheap; how it grows with the batch at few lengths, since
the ratio of a large batch to a small one changes slowly with length.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from workbench.values.errors import ConfigError
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate

Floats = npt.NDArray[np.float64]
_LENGTHS, _BATCHES = 12, 4
"""So many are timed, of fewer all; what time does between two of them is told by the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Where a surface is measured.

    Attributes:
        lengths: at which the smallest batch is timed, ascending.
        beside: (batch, length) of larger ones, at some of these lengths.
        checks: (batch, length) that are left out of the fit.
    """

    batch: int
    lengths: tuple[int, ...]
    beside: tuple[tuple[int, int], ...]
    checks: tuple[tuple[int, int], ...]


def chosen_points(batches: Sequence[int], lengths: Sequence[int]) -> Points:
    """A few of these batches and lengths, and points to check by what lies between.

    The smallest batch is timed at every length, of many at `_LENGTHS` evenly spread by their logarithm; the largest at
    both ends and the middle one, batches between at the middle one.

    Args:
        lengths: those that may be asked for; the surface is never asked beyond the last.
    """
    lengths, batches = sorted(set(lengths)), sorted(set(batches))
    least, most, middle = batches[0], batches[-1], _nearest(lengths, 0.5)
    ends = sorted({lengths[0], middle, lengths[-1]})
    taken_lengths, taken_batches = _spread(lengths, _LENGTHS), _spread(batches, _BATCHES)
    beside = [(most, length) for length in ends] if most > least else []
    beside += [(batch, middle) for batch in taken_batches if least < batch < most]
    return Points(
        batch=least,
        lengths=taken_lengths,
        beside=tuple(beside),
        checks=_checks(batches, lengths, taken_batches, taken_lengths, ends),
    )


def _spread(offered: Sequence[int], count: int) -> tuple[int, ...]:
    if len(offered) <= count:
        return tuple(offered)
    return tuple(sorted({_nearest(offered, part / (count - 1)) for part in range(count)}))


def _nearest(offered: Sequence[int], part: float) -> int:
    """The one at this part of the way from the first to the last, by logarithm."""
    wanted = (1 - part) * math.log(offered[0]) + part * math.log(offered[-1])
    return min(offered, key=lambda one: abs(math.log(one) - wanted))


def fitted(curve: BatchCurve, points: Points) -> BatchCurve:
    """A curve measured at these points as a surface: the checks are left out of the fit, and the largest share by which
    it misses one is `fit_error`."""
    checks = tuple(p for p in curve.points if (p.batch, p.length) in points.checks)
    fit = sorted((p for p in curve.points if p not in checks), key=lambda p: (p.length, p.batch))
    surface = replace(curve, points=tuple(fit))
    missed = max((abs(_predicted_ms(surface, p.batch, p.length) / p.p50_ms.value - 1) for p in checks), default=0.0)
    said = f"{len(fit)} points of batch and length; "
    said += (
        f"{len(checks)} that were left out differ by {missed:.1%} at most" if checks else "nothing else is asked for"
    )
    return replace(surface, checks=checks, fit_error=missed, verdict=f"{curve.verdict}; {said}")


def curve_at(surface: BatchCurve, bins: Sequence[int]) -> BatchCurve:
    """The batch curve at exactly these lengths: measured points as they are, others interpolated, never extrapolated.

    At the smallest batch every quantile follows a monotone cubic through the measured lengths; at a larger one it is
    that times the ratio of the two, which lies between those measured. A bin shorter than all costs what the shortest
    does. The interval of a point in between is as wide as those it lies between and `fit_error` together, and
    `speed_spread` holds what all may be wrong by alike.

    Raises:
        ConfigError: a bin is longer than every measured length.
    """
    known, batches = surface.lengths, surface.batches
    if not bins or known == (0,):
        return surface
    if max(bins) > known[-1]:
        raise ConfigError(
            f"length bin {max(bins)} is longer than every measured length {list(known)}.",
            key="bins",
            hint="Measure the surface up to the longest bin.",
        )
    fit = _Fit(surface)
    points = [
        replace(fit.point(batch, max(length, known[0])), length=length)
        for length in sorted(set(bins))
        for batch in batches
    ]
    spread = math.hypot(surface.speed_spread, surface.fit_error / 2)
    return replace(surface, points=tuple(points), speed_spread=spread)


class _Fit:
    """The surface as a function: [quantiles, mean, median] of a call of any measured batch at any length between."""

    def __init__(self, surface: BatchCurve) -> None:
        self._error = surface.fit_error
        self._count = max(len(p.quantiles_ms) for p in surface.points)
        self._points = {(p.batch, p.length): p for p in surface.points}
        self._batches = surface.batches
        self._lengths = {b: [p.length for p in surface.points if p.batch == b] for b in self._batches}
        self._rows = {at: self._row(p) for at, p in self._points.items()}

    def point(self, batch: int, length: int) -> CurvePoint:
        if (batch, length) in self._points:
            return self._points[batch, length]
        found = self._at(batch, length)
        value = float(found[-1])
        nearest = [self._near(b, length) for b in {batch, self._batches[0]}]
        low, high = (
            max(abs(getattr(p.p50_ms, side) / p.p50_ms.value - 1) for near in nearest for p in near)
            for side in ("low", "high")
        )
        own = Estimate(value=value, low=value * (1 - low), high=value * (1 + high))
        return CurvePoint(
            batch=batch,
            length=length,
            calls=0,
            p50_ms=widened(own, self._error),
            mean_ms=float(found[-2]),
            quantiles_ms=tuple(float(q) for q in np.maximum.accumulate(found[: self._count])),
        )

    def _at(self, batch: int, length: int) -> Floats:
        least, most = self._batches[0], self._batches[-1]
        if batch == least:
            at = self._lengths[least]
            return interpolated(at, np.array([self._rows[least, each] for each in at]), length)
        ratio = self._ratio(batch, length)
        places = self._lengths[batch]
        if len(places) == 1 and batch != most:  # its one ratio changes with length as the largest batch's does
            share = math.log(batch / least) / math.log(most / least)
            ratio = ratio * (self._ratio(most, length) / self._ratio(most, places[0])) ** share
        return np.asarray(self._at(least, length) * ratio, dtype=np.float64)

    def _ratio(self, batch: int, length: int) -> Floats:
        """To the smallest batch; beyond the lengths of this batch as at the nearest of them."""
        places = self._lengths[batch]
        ratios = np.array([self._rows[batch, each] / self._at(self._batches[0], each) for each in places])
        inside = min(max(length, places[0]), places[-1])
        return ratios[0] if len(places) == 1 else interpolated(np.log(places), ratios, math.log(inside))

    def _near(self, batch: int, length: int) -> list[CurvePoint]:
        """The one or two of this batch that a length lies between."""
        places = self._lengths[batch]
        below, above = [p for p in places if p <= length][-1:], [p for p in places if p >= length][:1]
        return [self._points[batch, place] for place in {*below, *above}]

    def _row(self, point: CurvePoint) -> Floats:
        evenly = np.linspace(0, 1, self._count)
        quantiles = np.interp(evenly, np.linspace(0, 1, len(point.quantiles_ms)), point.quantiles_ms)
        return np.array([*quantiles, point.mean_ms, point.p50_ms.value])


def widened(estimate: Estimate, share: float) -> Estimate:
    """With a further error of so large a share of the value, independent of the interval's own."""
    further = share * abs(estimate.value)
    return replace(
        estimate,
        low=estimate.value - math.hypot(estimate.value - estimate.low, further),
        high=estimate.value + math.hypot(estimate.high - estimate.value, further),
    )


def interpolated(at: Sequence[float] | Floats, values: Floats, wanted: float) -> Floats:
    """values[k] belongs to at[k], ascending; the value at `wanted` between the ends, by monotone cubics: through every
    value, never beyond its neighbours, straight between two."""
    from scipy.interpolate import pchip_interpolate  # half a second that only a sweep should cost

    found = values[0] if len(at) == 1 else pchip_interpolate(at, values, wanted)
    return np.asarray(found, dtype=np.float64)


def _checks(
    batches: Sequence[int],
    lengths: Sequence[int],
    taken_batches: Sequence[int],
    taken_lengths: Sequence[int],
    ends: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    """Up to four, each as far from measured ones as can be: the smallest batch at a length left out, the largest
    between each two of its lengths, a batch left out."""
    left_lengths, left_batches = set(lengths) - set(taken_lengths), set(batches) - set(taken_batches)
    found = [(taken_batches[0], _farthest(left_lengths, taken_lengths))] if left_lengths else []
    if len(taken_batches) > 1:
        gaps = [{one for one in lengths if low < one < high} for low, high in pairwise(ends)]
        found += [(taken_batches[-1], _farthest(inside, ends)) for inside in gaps if inside]
    found += [(_farthest(left_batches, taken_batches), ends[len(ends) // 2])] if left_batches else []
    return tuple(found)


def _farthest(offered: Collection[int], taken: Sequence[int]) -> int:
    return max(sorted(offered), key=lambda one: min(abs(math.log(one / other)) for other in taken))


def _predicted_ms(surface: BatchCurve, batch: int, length: int) -> float:
    by_batch = curve_at(surface, (length,)).points
    return float(np.interp(batch, [p.batch for p in by_batch], [p.p50_ms.value for p in by_batch]))
