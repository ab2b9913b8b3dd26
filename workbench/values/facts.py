"""What a measurement is worth to other candidates: the key it may be lent under, from whom it was borrowed, and what
an audit of a loan found. Facts lie in the evaluations they belong to, so that the journal keeps, seals and mends both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from workbench.values.measurement import BatchCurve, Estimate, Latency

FactKind = Literal["latency", "curve"]

CERTAIN = 3.29
"""Standard errors: about one audit in a thousand that finds a difference where there is none."""
GROSS = 2.0
_NORMAL = 1.96  # of the 95 % intervals that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A loan that was measured all the same.

    Attributes:
        lender: id of the candidate whose measurement would have been taken.
        ratio: own time over the lent one, each at the speed that the sweep began with.
        agrees: False where 1 lies outside of the interval, widened to `CERTAIN`. On a machine that was not quiet only a
            factor of `GROSS` says so, and None says that nothing can be told.
    """

    lender: str
    ratio: Estimate
    agrees: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One measurement of an evaluation.

    Attributes:
        key: of what decides it, 64 hex digits; equal keys may lend to each other.
        lender: id of the candidate that it was measured on; None where that is the evaluation's own.
    """

    kind: FactKind
    key: str
    lender: str | None = None
    audit: Audit | None = None


def audit_of_latency(own: Latency, lent: Latency, lender: str) -> Audit:
    """By the speed-ups: those are ratios to the baseline in the same moments, which no drift touches."""
    return _audit(
        math.log(lent.speedup.value / own.speedup.value),
        math.hypot(_error(own.speedup), _error(lent.speedup)),
        lender,
        quiet=own.quiet and lent.quiet,
    )


def audit_of_curve(own: BatchCurve, lent: BatchCurve, lender: str) -> Audit:
    """By the mean of the points' ratios. Both at first speed, whose error all points of a curve have in common: so the
    error of the mean is taken to be that of a point, not less."""
    pairs = list(zip(own.points, lent.points, strict=True))
    ratios = [math.log(mine.p50_ms.value / theirs.p50_ms.value) for mine, theirs in pairs]
    errors = [math.hypot(_error(mine.p50_ms), _error(theirs.p50_ms)) for mine, theirs in pairs]
    mean = sum(ratios) / len(ratios)
    spread = math.sqrt(sum((ratio - mean) ** 2 for ratio in ratios) / max(1, len(ratios) - 1))
    error = math.hypot(max(errors), spread / math.sqrt(len(ratios)))
    return _audit(mean, error, lender, quiet=own.quiet and lent.quiet)


def _audit(log_ratio: float, error: float, lender: str, *, quiet: bool) -> Audit:
    low, high = (math.exp(log_ratio + sign * _NORMAL * error) for sign in (-1, 1))
    ratio = Estimate(value=math.exp(log_ratio), low=low, high=high)
    differs = abs(log_ratio) > CERTAIN * error
    if quiet:
        return Audit(lender=lender, ratio=ratio, agrees=not differs)
    gross = differs and abs(log_ratio) > math.log(GROSS)
    return Audit(lender=lender, ratio=ratio, agrees=False if gross else None)


def _error(estimate: Estimate) -> float:
    """One standard error of a positive figure, on the log scale."""
    return (math.log(estimate.high) - math.log(estimate.low)) / (2 * _NORMAL)
