"""How much a parameter can matter, by everything that was measured: a bound on its effect where no pairs tell.

Candidates that a search proposes seldom differ in one parameter alone. The process that the sampler expects things by
(`surrogate`) says what all of them together tell of one parameter: the effect of a choice against another in the mean
over the candidates that were tried, with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.search.parts import Seen, logged
from workbench.search.surrogate import Axes, Codes, Floats, fit

FEWEST = 12
FEWEST_EACH = 3
"""Candidates in all, and with each choice, before anything is said of a parameter."""
_NORMAL = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Of one parameter and metric.

    Attributes:
        most: the largest mean effect of one choice against another that cannot be ruled out: a share where ratios
            count (`parts.logged`), else in the metric's unit.
        noise: what two single measurements cannot tell apart, likewise, in the median.
        of: candidates that it rests on.
    """

    most: float
    noise: float
    of: int


def bounds(axes: Axes, seen: Sequence[Seen], metrics: Sequence[str]) -> dict[str, dict[str, Bound]]:
    """Parameter → metric → bound, of parameters of which every choice was tried often enough, for every metric."""
    found: dict[str, dict[str, Bound]] = {}
    for metric in metrics:
        told = [s for s in seen if _usable(s, metric)]
        if len(told) < FEWEST:
            return {}
        values, errors = _values(told, metric)
        noise = _NORMAL * math.sqrt(2) * float(np.median(errors))
        codes = axes.codes([s.assignment for s in told])
        effects = _effects(axes, codes, values, errors)
        for name, most in effects.items():
            share = logged(metric)
            bound = Bound(
                most=math.expm1(most) if share else most, noise=math.expm1(noise) if share else noise, of=len(told)
            )
            found.setdefault(name, {})[metric] = bound
    return {name: each for name, each in found.items() if len(each) == len(metrics)}


def _usable(seen: Seen, metric: str) -> bool:
    value = seen.numbers.get(metric, math.nan)
    return math.isfinite(value) and (value > 0 or not logged(metric))


def _values(told: Sequence[Seen], metric: str) -> tuple[Floats, Floats]:
    values = np.array([s.numbers[metric] for s in told])
    errors = np.array([s.errors.get(metric, 0.0) for s in told])
    return (np.log(values), errors / values) if logged(metric) else (values, errors)


def _effects(axes: Axes, codes: Codes, values: Floats, errors: Floats) -> Mapping[str, float]:
    """Parameter → the largest mean effect that cannot be ruled out."""
    process = fit(axes, codes, values, errors)
    found: dict[str, float] = {}
    for k, name in enumerate(axes.names):
        places, counts = np.unique(codes[codes[:, k] >= 0, k], return_counts=True)
        if len(places) < 2 or len(places) < len(axes.places[k]) or counts.min() < FEWEST_EACH:
            continue
        where = codes[codes[:, k] >= 0]
        most = 0.0
        for i, left in enumerate(places):
            for right in places[i + 1 :]:
                a, b = where.copy(), where.copy()
                a[:, k], b[:, k] = left, right
                mean, deviation = process.contrast(a, b)
                most = max(most, abs(mean) + _NORMAL * deviation)
        found[name] = most
    return found
