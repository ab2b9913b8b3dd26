"""Figures of timed calls and of a service with the errors of the timing model behind them.

Each array is [moved] of `costs.at_errors`: first the figure as it was kept, then that figure times what an error
changes. Of two candidates the ratio is taken error by error: it is the same device for both.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from workbench.values.measurement import Estimate, Latency, Measurement, ServiceFigures, ServiceResult
from workbench.values.modelled_times.costs import Floats, Priced, at_errors, interval, parts_us
from workbench.values.modelled_times.statement import ModelledCalls, ModelledService, TimingModel

Figures = dict[str, Floats]
"""Metric → [moved]."""


def clock_of(measurement: Measurement) -> TimingModel | None:
    """The modelled clock behind its times; None where they were measured, or their costs not stated."""
    latency = measurement.latency
    return None if latency is None or latency.modelled is None else latency.modelled.clock


def figures_of(measurement: Measurement, priced: Priced) -> Figures:
    """Everything of `metrics` that a clock decides."""
    found = {} if measurement.latency is None else latency_figures(measurement.latency, priced)
    return found if measurement.service is None else found | service_figures(measurement.service, priced)


def latency_figures(latency: Latency, priced: Priced) -> Figures:
    """Nothing where no costs are stated."""
    if latency.modelled is None:
        return {}
    times, ratios, weights = _paired(latency.modelled, priced)
    mean = weights @ times / weights.sum()
    found = {
        "latency_p50_ms": latency.p50_ms.value / latency.drift * _relative(_quantile(times, weights, 0.5)),
        "latency_p95_ms": latency.p95_ms / latency.drift * _relative(_quantile(times, weights, 0.95)),
        "throughput_per_s": latency.throughput_per_s * latency.drift / _relative(mean),
        "speedup": latency.speedup.value * _relative(np.exp(weights @ np.log(ratios) / weights.sum())),
    }
    if latency.p99_ms is not None:
        found["latency_p99_ms"] = latency.p99_ms / latency.drift * _relative(_quantile(times, weights, 0.99))
    return found


def service_figures(service: ServiceResult, priced: Priced) -> Figures:
    """At the settings chosen under our clock: another clock might choose others. NaN where no rate keeps the limit."""
    shown = service.best or service.closest
    if service.modelled is None or service.confirmed is not None:
        return {}
    scale = _scales(service.modelled, priced)
    found = {
        "service_p50_ms": shown.p50_ms.value * _served(service.modelled, "p50_ms", scale),
        "service_p99_ms": shown.p99_ms.value * _served(service.modelled, "p99_ms", scale),
    }
    if service.best is not None:
        rate = shown.throughput_per_s.value * _served(service.modelled, "throughput_per_s", scale)
        found["service_throughput_per_s"] = rate
    return found


def with_intervals(latency: Latency) -> Latency:
    """Its median and speed-up with 95 % of what errors leave open; as it is where no costs are stated."""
    if latency.modelled is None:
        return latency
    found = latency_figures(latency, at_errors(latency.modelled.clock))
    p50 = interval(found["latency_p50_ms"] * latency.drift)
    return replace(latency, p50_ms=p50, speedup=interval(found["speedup"]))


def served_with_intervals(service: ServiceResult) -> ServiceResult:
    """The same of the figures that it shows; their own intervals, which tell settings apart, stay."""
    if service.modelled is None:
        return service
    found = service_figures(service, at_errors(service.modelled.clock))

    def widened(shown: ServiceFigures) -> ServiceFigures:
        def both(own: Estimate, name: str) -> Estimate:
            values = found.get(name)
            if values is None or not np.isfinite(values).all():
                return own
            by_clock = interval(values)
            return replace(own, low=min(own.low, by_clock.low), high=max(own.high, by_clock.high))

        return replace(
            shown,
            throughput_per_s=both(shown.throughput_per_s, "service_throughput_per_s"),
            p50_ms=both(shown.p50_ms, "service_p50_ms"),
            p99_ms=both(shown.p99_ms, "service_p99_ms"),
        )

    closest = widened(service.closest) if service.best in (None, service.closest) else service.closest
    return replace(service, best=None if service.best is None else widened(service.best), closest=closest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorShare:
    """An error that a modelled time has.

    Attributes:
        unknown, about: whose it is.
        share: of the time that it moves.
        factor_95: 95 % of measured times lie within it.
        source: what it was found on.
        command: measures it on a device.
    """

    unknown: str
    about: str
    share: float
    factor_95: float
    source: str
    command: str

    def words(self) -> str:
        """'40 % of the time, 95 % within a factor of 1.7: 38 timed cases …'."""
        return f"{self.share:.0%} of the time, 95 % within a factor of {self.factor_95:.2g}: {self.source}"


def error_shares(latency: Latency) -> tuple[ErrorShare, ...]:
    """What the candidate's time may be off by, the widest first; none of measured times."""
    if latency.modelled is None:
        return ()
    prices = dict(latency.modelled.clock.prices)
    parts: defaultdict[str, float] = defaultdict(float)
    for call, _, times in latency.modelled.pairs:
        for part, spent in parts_us(latency.modelled.candidate[call], prices).items():
            parts[part] += times * spent
    whole = sum(parts.values())
    found = [
        ErrorShare(
            unknown=one.name,
            about=one.about,
            share=sum(parts[part] for part in one.moves) / whole,
            factor_95=one.factor_95,
            source=one.source,
            command=one.settled_by,
        )
        for one in latency.modelled.clock.unknowns
        if whole and any(parts[part] for part in one.moves)
    ]
    return tuple(sorted(found, key=lambda one: -one.share * math.log(one.factor_95)))


def may_be_alike(a: Measurement, b: Measurement, metric: str) -> bool | None:
    """Whether 95 % of what modelled times may be off by leaves open which of two is better: errors of parts that both
    have cancel. None where one of them has no such figure, or the two are of different timing models."""
    clock = clock_of(a)
    if clock is None or clock != clock_of(b):
        return None
    priced = at_errors(clock)
    ours, theirs = figures_of(a, priced).get(metric), figures_of(b, priced).get(metric)
    if ours is None or theirs is None or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    found = interval(ours / theirs)
    return found.low <= 1 <= found.high


def interval_of(latency: Latency, metric: str) -> Estimate:
    """One of `latency_figures` of modelled times, with its 95 %."""
    assert latency.modelled is not None  # the caller has looked
    return interval(latency_figures(latency, at_errors(latency.modelled.clock))[metric])


def ratio(latency: Latency, other: Latency, metric: str) -> Estimate | None:
    """One figure over the other's with its 95 %; None without stated costs, and of different timing models."""
    if latency.modelled is None or other.modelled is None or latency.modelled.clock != other.modelled.clock:
        return None
    priced = at_errors(latency.modelled.clock)
    ours, theirs = (latency_figures(each, priced)[metric] for each in (latency, other))
    return interval(ours / theirs)


def _paired(calls: ModelledCalls, priced: Priced) -> tuple[Floats, Floats, Floats]:
    """[pairs, moved] times of the candidate and baseline over candidate, [pairs] calls."""
    pairs = np.array(calls.pairs)
    ours, theirs = priced.call_ms(calls.candidate)[pairs[:, 0]], priced.call_ms(calls.baseline)[pairs[:, 1]]
    return ours, theirs / ours, pairs[:, 2].astype(np.float64)


def _quantile(times: Floats, weights: Floats, share: float) -> Floats:
    """[moved] the least time that at least this share of the calls does not exceed."""
    order = np.argsort(times, axis=0, kind="stable")
    reached = np.cumsum(weights[order], axis=0) >= share * weights.sum() * (1 - 1e-12)
    place = np.take_along_axis(order, reached.argmax(axis=0)[None], axis=0)
    return np.asarray(np.take_along_axis(times, place, axis=0)[0])


def _relative(values: Floats) -> Floats:
    return np.asarray(values / values[0])


def _scales(service: ModelledService, priced: Priced) -> Floats:
    times = np.log(priced.call_ms(service.calls))
    return np.asarray(np.exp((times - times[:, :1]).mean(axis=0)))


def _served(service: ModelledService, name: str, scale: Floats) -> Floats:
    """[moved] a figure over that at scale 1, on lines between logarithms, the outer ones prolonged."""
    known = [(one.scale, getattr(one, name)) for one in service.scaled]
    scales = np.log([each for each, _ in known])
    values = np.array([np.nan if value is None else np.log(max(value, 1e-9)) for _, value in known])
    at = np.concatenate([[0.0], np.log(scale)])
    place = np.clip(np.searchsorted(scales, at) - 1, 0, max(len(scales) - 2, 0))
    if len(scales) == 1:
        return np.ones(len(scale))
    slope = (values[place + 1] - values[place]) / (scales[place + 1] - scales[place])
    found = values[place] + slope * (at - scales[place])
    return np.asarray(np.exp(found[1:] - found[0]))
