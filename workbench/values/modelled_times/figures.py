"""Times of costed calls by a timing model, and what its errors leave open of figures of calls and services.

Errors of a timing model are independent of each other, each a factor on the prices that it moves. A figure is worked
out at both ends of each; what it moves by is added in quadrature of logarithms. Of two candidates the ratio is taken
error by error: it is the same device for both, so that what they have in common cancels.

An array [moved] is first the figure as it was kept, then that figure times what an error changes.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.values.measurement import Estimate, Latency, ServiceFigures, ServiceResult
from workbench.values.modelled_times.statement import Amounts, CallCosts, ModelledService, TimingModel

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """A timing model as it is, and moved.

    Attributes:
        prices: parameter → [moved] microseconds a unit, the first as it is.
        known: [moved] microseconds of works; candidates have most kernels in common.
    """

    prices: Mapping[str, Floats]
    known: dict[Amounts, Floats] = field(default_factory=dict)

    def call_ms(self, calls: Sequence[CallCosts]) -> Floats:
        """[calls, moved] milliseconds.

        Raises:
            KeyError: a call needs a parameter without a price.
        """
        width = len(next(iter(self.prices.values())))
        found = np.zeros((len(calls), width))
        for row, call in zip(found, calls, strict=True):
            for work in call.works:
                if work.amounts not in self.known:
                    self.known[work.amounts] = sum((a * self.prices[name] for name, a in work.amounts), np.zeros(width))
                row += work.count / 1000 * self.known[work.amounts]
        return found


@functools.lru_cache(maxsize=16)
def at_errors(clock: TimingModel) -> Priced:
    """As it is, then each error by itself at the lower and at the upper end of its 95 %."""
    prices = {name: np.full(1 + 2 * len(clock.unknowns), price) for name, price in clock.prices}
    for place, unknown in enumerate(clock.unknowns):
        for parameter in unknown.moves:
            reach = math.log(unknown.factor_95)
            prices[parameter][1 + 2 * place] *= np.exp(-reach)
            prices[parameter][2 + 2 * place] *= np.exp(reach)
    return Priced(prices=prices)


def interval(values: Floats) -> Estimate:
    """A positive figure with 95 % of what errors leave open.

    Args:
        values: [moved] of `at_errors`.
    """
    value = float(values[0])
    logs = np.log(values[1:] / value).reshape(-1, 2)
    down, up = (float(np.linalg.norm(np.maximum(sign * logs, 0).max(axis=1))) for sign in (-1, 1))
    return Estimate(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def own_ms(clock: TimingModel, call: CallCosts) -> float:
    """Milliseconds of a call at the model's own prices."""
    prices = dict(clock.prices)
    return sum(work.count / 1000 * sum(amount * prices[name] for name, amount in work.amounts) for work in call.works)


def latency_figures(latency: Latency) -> dict[str, Floats]:
    """Metric → [moved]; nothing where no costs are stated."""
    if latency.modelled is None:
        return {}
    priced, pairs = at_errors(latency.modelled.clock), np.array(latency.modelled.pairs)
    times = priced.call_ms(latency.modelled.candidate)[pairs[:, 0]]
    ratios = priced.call_ms(latency.modelled.baseline)[pairs[:, 1]] / times
    weights = pairs[:, 2].astype(np.float64)
    found = {
        "latency_p50_ms": latency.p50_ms.value / latency.drift * _relative(_quantile(times, weights, 0.5)),
        "latency_p95_ms": latency.p95_ms / latency.drift * _relative(_quantile(times, weights, 0.95)),
        "throughput_per_s": latency.throughput_per_s * latency.drift / _relative(weights @ times / weights.sum()),
        "speedup": latency.speedup.value * _relative(np.exp(weights @ np.log(ratios) / weights.sum())),
    }
    if latency.p99_ms is not None:
        found["latency_p99_ms"] = latency.p99_ms / latency.drift * _relative(_quantile(times, weights, 0.99))
    return found


def service_figures(service: ServiceResult) -> dict[str, Floats]:
    """At the settings chosen by the model as it is: another might choose others. NaN where no rate keeps the limit."""
    shown = service.best or service.closest
    if service.modelled is None or service.confirmed is not None:
        return {}
    times = np.log(at_errors(service.modelled.clock).call_ms(service.modelled.calls))
    scale = np.exp((times - times[:, :1]).mean(axis=0))
    names = ("throughput_per_s", "p50_ms", "p99_ms") if service.best is not None else ("p50_ms", "p99_ms")
    return {f"service_{n}": getattr(shown, n).value * _served(service.modelled, n, scale) for n in names}


def with_intervals(latency: Latency) -> Latency:
    """Its median and speed-up with 95 % of what errors leave open; as it is where no costs are stated."""
    if latency.modelled is None:
        return latency
    found = latency_figures(latency)
    p50 = interval(found["latency_p50_ms"] * latency.drift)
    return replace(latency, p50_ms=p50, speedup=interval(found["speedup"]))


def served_with_intervals(service: ServiceResult) -> ServiceResult:
    """The same of the figures that it shows; their own intervals, which tell settings apart, stay."""
    by_model = {
        name.removeprefix("service_"): interval(values)
        for name, values in service_figures(service).items()
        if np.isfinite(values).all()
    }

    def widened(shown: ServiceFigures) -> ServiceFigures:
        wider: dict[str, Any] = {}
        for name, found in by_model.items():
            own: Estimate = getattr(shown, name)
            wider[name] = replace(own, low=min(own.low, found.low), high=max(own.high, found.high))
        return replace(shown, **wider)

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
    """

    unknown: str
    about: str
    share: float
    factor_95: float
    source: str

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
        for work in latency.modelled.candidate[call].works:
            for part, amount in work.amounts:
                parts[part] += times * work.count * amount * prices[part]
    whole = sum(parts.values())
    found = [
        ErrorShare(
            unknown=one.name,
            about=one.about,
            share=sum(parts[part] for part in one.moves) / whole,
            factor_95=one.factor_95,
            source=one.source,
        )
        for one in latency.modelled.clock.unknowns
        if whole and any(parts[part] for part in one.moves)
    ]
    return tuple(sorted(found, key=lambda one: -one.share * math.log(one.factor_95)))


def ratio(ours: Latency | ServiceResult | None, theirs: Latency | ServiceResult | None, metric: str) -> Estimate | None:
    """One figure over the other's with its 95 %; None where one of them has no such figure, or the two are of different
    timing models."""
    if ours is None or theirs is None or ours.modelled is None or theirs.modelled is None:
        return None
    a, b = (
        (service_figures(each) if isinstance(each, ServiceResult) else latency_figures(each)).get(metric)
        for each in (ours, theirs)
    )
    if ours.modelled.clock != theirs.modelled.clock or a is None or b is None or not np.isfinite(a / b).all():
        return None
    return interval(a / b)


def _quantile(times: Floats, weights: Floats, share: float) -> Floats:
    """[moved] the least time that at least this share of the calls does not exceed."""
    order = np.argsort(times, axis=0, kind="stable")
    reached = np.cumsum(weights[order], axis=0) >= share * weights.sum() * (1 - 1e-12)
    place = np.take_along_axis(order, reached.argmax(axis=0)[None], axis=0)
    return np.asarray(np.take_along_axis(times, place, axis=0)[0])


def _relative(values: Floats) -> Floats:
    return np.asarray(values / values[0])


def _served(service: ModelledService, name: str, scale: Floats) -> Floats:
    """[moved] a figure over that at scale 1, on lines between logarithms, the outer ones prolonged."""
    if len(service.scaled) == 1:
        return np.ones(len(scale))
    scales = np.log([one.scale for one in service.scaled])
    known = [getattr(one, name) for one in service.scaled]
    values = np.array([np.nan if value is None else np.log(max(value, 1e-9)) for value in known])
    at = np.concatenate([[0.0], np.log(scale)])
    place = np.clip(np.searchsorted(scales, at) - 1, 0, len(scales) - 2)
    slope = (values[place + 1] - values[place]) / (scales[place + 1] - scales[place])
    found = values[place] + slope * (at - scales[place])
    return np.asarray(np.exp(found[1:] - found[0]))
