"""Measurements that several candidates share: under which equivalence key one stands, whose it is, and what an audit of
its reuse found. All of it lies in the evaluation it belongs to, so that the journal keeps, seals and mends both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from workbench.values.documents.canonical import added_later
from workbench.values.measurement import BatchCurve, Estimate, Latency

ReuseKind = Literal["latency", "curve", "accuracy"]

KINDS: Mapping[str, str] = {
    "latency": "times of calls were",
    "curve": "batch curve was",
    "accuracy": "answers were",
}
"""What of a kind is reused, for a sentence."""
CERTAIN = 3.29
"""Standard errors: about one audit in a thousand finds a difference where there is none."""
BETWEEN = 0.03
"""Standard error of one measurement, on the log scale, that the rounds inside it cannot show: memory lies elsewhere in
another process, and a machine treats two models differently at another moment."""
GROSS = 2.0
_NORMAL = 1.96  # of the 95 % intervals that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What could have been reused and was measured all the same.

    Attributes:
        source: id of the candidate whose measurement would have been taken.
        ratio: own time over the reused one, each at the speed that the sweep began with; its interval holds the error
            between measurements too. Of answers, own accuracy over the reused one, which has no interval.
        agrees: False where 1 lies outside of the interval, widened to `CERTAIN`, or one answer is another. Where the
            machine was too noisy for ratios only a factor of `GROSS` says so, and None says that nothing can be told.
    """

    EARLIER: ClassVar = {"lender": "source"}
    source: str
    ratio: Estimate
    agrees: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """One measurement of an evaluation.

    Attributes:
        key: of what decides it, 64 hex digits; measurements of equal keys stand for each other.
        source: id of the candidate that it was measured on; None where that is the evaluation's own.
        replaces: source of what was reused here before an audit found its kind of reuse wrong.
    """

    EARLIER: ClassVar = {"lender": "source", "repeat": None}
    kind: ReuseKind
    key: str
    source: str | None = None
    audit: Audit | None = None
    replaces: str | None = added_later(None)


def audit_of_latency(own: Latency, reused: Latency, source: str, ratio: Estimate | None = None) -> Audit:
    """By the speed-ups: those are ratios to the baseline in the same moments, which no drift touches.

    Args:
        ratio: of the times, from the single calls; it knows better than the two speed-ups what the feeds differ by.
    """
    log_ratio = math.log(reused.speedup.value / own.speedup.value)
    inside = math.hypot(error_of(own.speedup), error_of(reused.speedup))
    if ratio is not None:
        log_ratio, inside = math.log(ratio.value), error_of(ratio)
    return _audit(log_ratio, inside, source, holds=reusable(own) and reusable(reused))


def audit_of_curve(own: BatchCurve, reused: BatchCurve, source: str) -> Audit:
    """By the mean of the ratios at the points that both have. Both at first speed, whose error all points of a curve
    have in common: so the error of the mean is taken to be that of a point, not less."""
    theirs_at = {(point.batch, point.length): point for point in reused.points}
    pairs = [(mine, theirs_at[at]) for mine in own.points if (at := (mine.batch, mine.length)) in theirs_at]
    ratios = [math.log(mine.p50_ms.value / theirs.p50_ms.value) for mine, theirs in pairs]
    errors = [math.hypot(error_of(mine.p50_ms), error_of(theirs.p50_ms)) for mine, theirs in pairs]
    mean = sum(ratios) / len(ratios)
    spread = math.sqrt(sum((ratio - mean) ** 2 for ratio in ratios) / max(1, len(ratios) - 1))
    inside = math.hypot(max(errors), spread / math.sqrt(len(ratios)))
    return _audit(mean, inside, source, holds=reusable(own) and reusable(reused))


def audit_of_answers(own: float, reused: float, source: str, *, same: bool) -> Audit:
    """Args: own, reused: the primary metric of either; same: every outcome is, bit for bit."""
    ratio = own / reused if reused else 1.0
    return Audit(source=source, ratio=Estimate(value=ratio, low=ratio, high=ratio), agrees=same)


def reusable(times: Latency | BatchCurve) -> bool:
    """Whether others may take them: a machine that only changed its speed changed the baseline's beside them alike."""
    return times.quiet or times.holds


def error_of(estimate: Estimate) -> float:
    """One standard error of a positive figure, on the log scale."""
    return (math.log(estimate.high) - math.log(estimate.low)) / (2 * _NORMAL)


def _audit(log_ratio: float, inside: float, source: str, *, holds: bool) -> Audit:
    """Args: inside: standard error that the rounds of the two show."""
    error = math.hypot(inside, math.sqrt(2) * BETWEEN)
    differs = abs(log_ratio) > CERTAIN * error
    agrees: bool | None = not differs
    if not holds:
        agrees = False if differs and abs(log_ratio) > math.log(GROSS) else None
    value, low, high = (math.exp(log_ratio + sign * _NORMAL * error) for sign in (0, -1, 1))
    return Audit(source=source, ratio=Estimate(value=value, low=low, high=high), agrees=agrees)
