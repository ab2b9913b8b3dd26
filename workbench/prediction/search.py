"""The best service settings of one artifact, by simulation: hundreds of settings cost seconds.

Every setting is simulated with few requests first; those that may still be the best go on to four times as many, and
so on, to a last round with enough for a P99. All settings see the same requests, gaps and luck of calls
(`serving_model.simulate`), so few requests tell them apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.evaluation.raw_times import P99_SAMPLES
from workbench.prediction.curve import at_first_speed
from workbench.prediction.simulation import Simulated, figures, for_a_measurement, simulate
from workbench.prediction.simulation.intervals import is_unstable
from workbench.prediction.simulation.service_times import IntArray
from workbench.prediction.surface import curve_at
from workbench.values.measurement import BatchCurve, Estimate, ServiceFigures, ServiceResult
from workbench.values.modelled_times.figures import served_with_intervals
from workbench.values.modelled_times.statement import CallCosts, ModelledService, ScaledService, TimingModel
from workbench.values.service import Goal, HostCosts, ServiceChoices, ServiceLoad, ServiceQuestion, ServiceSettings

_ROUNDS = ((3_000, 24, 0.4), (15_000, 10, 0.15))
"""Of each round before the last: requests of each setting, settings that go on, and how far above the limit a P99 of so
few requests may lie and still turn out to keep it."""
_LAST = 100_000
"""Requests of the figures that are reported: 1000 of them lie above the P99."""
_SATURATING = 2
"""Clients for each row that all workers together can hold, in every bin: enough that no worker waits."""
_SHARES = (0.98, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1, 0.03)
"""Of a service's capacity: rates at which the limit on P99 is tried before the interval between two is halved."""
_TIE = 0.01
"""Rates this close are found equal while a rate is sought."""
_GLANCE, _GLANCE_DOUBT, _SEEKING = 3_000, 1.25, 8_000
"""Requests at each rate that is tried: first few, whose P99 may be that far above the limit, then more."""
_UNTOLD = 0.05
"""How much lower a rate found with `_SEEKING` requests may be and the setting still be the best: its P99 is noisy."""
_FINALISTS = 6
_SCALES = (0.1, 0.2, 0.35, 0.6, 1.0, 1.5, 2.5, 4.0)
"""Factors on the times of calls that a service is simulated at; between two the logarithms lie on a line."""


def best_settings(
    curve: BatchCurve,
    choices: ServiceChoices,
    question: ServiceQuestion,
    host: HostCosts,
    lengths: IntArray,
    bins: tuple[int, ...],
    *,
    seed: int,
) -> ServiceResult:
    """Choose among `choices` what answers `question` best; a function of its arguments but for `simulated_s`.

    Bins that are a choice are simulated on the curve that `curve` is at them (`surface.curve_at`).

    Settings that cannot be told apart, since the value lies within the best one's interval, are a tie: fewer workers
    win it, then the smaller batch, the smaller timeout, the fewer bins. Where the load is sought (`question.load` is
    None), each setting's highest rate is sought downwards from its capacity, so a setting that keeps the limit at a
    high rate and at a low one, but not between, counts with the high one.

    On a device a batch runs as the next compiled one, and one beyond the largest in several calls
    (`serving_model.service_times`), which is never better than batches of that size: such choices are left out where
    others fit. `untuned` may be one of them.

    Settings are compared by intervals of the simulation; those of the result hold a measurement (`for_a_measurement`).

    Args:
        host: taken instead of `question.host`.
        lengths, bins: see `serving_model.simulate`; settings with bins of their own go before `bins`.
    """
    started = time.perf_counter()
    settings = _sensible(curve, choices)
    curves = {one.sequence_bins: curve_at(curve, one.sequence_bins) for one in (*settings, choices.untuned)}
    service = _Service(curves=curves, host=host, lengths=lengths, bins=bins, question=question, seed=seed)
    if question.load is None:
        finalists = _at_highest_rates(service, settings)
        untuned = _of(choices.untuned, finalists) or _alone(service, choices.untuned)
    else:
        finalists = _screened(service, settings, question.load)
        untuned = _of(choices.untuned, finalists) or service.tried(choices.untuned, question.load, _LAST)
    keeping = [one for one in finalists if one.keeps]
    chosen = _simplest_best(keeping, question.goal) if keeping else None
    unpadded = None if chosen is None else _at_bins_of(service, chosen, untuned, finalists)
    best = None if chosen is None else chosen.figures
    closest = _simplest_best(finalists, "p99").figures
    reported: list[ServiceFigures] = []
    for one in (best, closest, untuned.figures):
        if one is not None and one not in reported:
            reported.append(one)
    wider = [service.for_a_measurement(one) for one in reported]
    return ServiceResult(
        curve=curve,
        best=None if best is None else wider[reported.index(best)],
        closest=wider[reported.index(closest)],
        untuned=wider[reported.index(untuned.figures)],
        untuned_is_today=choices.today is not None,
        untuned_missed="" if untuned.keeps else _missed(untuned.figures, question),
        at_untuned_bins=None if unpadded is None or not unpadded.keeps else unpadded.figures,
        tried=len(settings),
        simulated_s=time.perf_counter() - started,
    )


def _at_scales(
    curve: BatchCurve,
    settings: ServiceSettings,
    question: ServiceQuestion,
    host: HostCosts,
    lengths: IntArray,
    bins: tuple[int, ...],
    *,
    seed: int,
) -> tuple[ScaledService, ...]:
    """What a service does at these settings where every call takes so many times as long, the host's costs as they are.

    With few requests: for how a figure moves, not for the figure.
    """
    scaled = []
    for scale in _SCALES:
        slower = at_first_speed(replace(curve, drift=1 / scale))
        curves = {settings.sequence_bins: curve_at(slower, settings.sequence_bins)}
        service = _Service(curves=curves, host=host, lengths=lengths, bins=bins, question=question, seed=seed)
        if question.load is not None:
            found = service.tried(settings, question.load, _SEEKING)
            keeps = found.keeps
        else:
            capacity = service.capacity_per_s(settings)
            rate = service.highest_rate(settings, capacity)
            keeps = rate is not None
            found = (
                service.at_rate(settings, rate, _SEEKING)
                if rate is not None
                else service.at_lowest_rate(settings, capacity)
            )
        figures = found.figures
        scaled.append(
            ScaledService(
                scale=scale,
                throughput_per_s=figures.throughput_per_s.value if keeps else None,
                p50_ms=figures.p50_ms.value,
                p99_ms=figures.p99_ms.value,
            )
        )
    return tuple(scaled)


def at_other_speeds(
    service: ServiceResult,
    stated: tuple[TimingModel, tuple[CallCosts, ...]],
    question: ServiceQuestion,
    host: HostCosts,
    lengths: IntArray,
    bins: tuple[int, ...],
    *,
    seed: int,
) -> ModelledService:
    """What the service does where its calls take longer or shorter, at the settings that were chosen or came closest;
    deterministic.

    Args:
        stated: the timing model, and costs of a call at each point of the service's curve.
        lengths, bins: as for `best_settings`.
    """
    shown, (clock, costs) = service.best or service.closest, stated
    points = list(zip(service.curve.points, costs, strict=True))
    served = {length for length in shown.settings.sequence_bins or bins} & set(service.curve.lengths)
    called = min((b for b in service.curve.batches if b >= shown.mean_batch), default=service.curve.batches[-1])
    calls = [cost for point, cost in points if point.batch == called and (not served or point.length in served)]
    return ModelledService(
        clock=clock,
        calls=tuple(calls),
        scaled=_at_scales(service.curve, shown.settings, question, host, lengths, bins, seed=seed),
    )


def with_modelled_errors(
    service: ServiceResult,
    shown: ServiceFigures,
    host: HostCosts,
    lengths: IntArray,
    bins: tuple[int, ...],
    *,
    seed: int,
) -> ServiceFigures:
    """Figures of this service under another load, with 95 % of what errors of its modelled times leave open. P95, of
    which they tell nothing, is as wide as the wider of P50 and P99. As they are where no costs are stated.
    Deterministic."""
    if service.modelled is None:
        return shown
    question = ServiceQuestion(load=shown.load, devices=shown.devices, host=host)
    scaled = _at_scales(service.curve, shown.settings, question, host, lengths, bins, seed=seed)
    asked = replace(
        service, best=shown, closest=shown, confirmed=None, modelled=replace(service.modelled, scaled=scaled)
    )
    found = served_with_intervals(asked).best
    assert found is not None  # it was given
    down, up = (
        f(getattr(each, end) / each.value for each in (found.p50_ms, found.p99_ms))
        for f, end in ((min, "low"), (max, "high"))
    )
    p95 = shown.p95_ms
    return replace(
        found,
        p95_ms=Estimate(value=p95.value, low=min(p95.low, p95.value * down), high=max(p95.high, p95.value * up)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """Figures of one setting under one load, and whether they keep the question's limits."""

    figures: ServiceFigures
    stable: bool
    keeps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """Everything of a simulation that the search does not vary."""

    curves: Mapping[tuple[int, ...], BatchCurve]
    host: HostCosts
    lengths: IntArray
    bins: tuple[int, ...]
    question: ServiceQuestion
    seed: int

    def tried(self, settings: ServiceSettings, load: ServiceLoad, requests: int) -> _Tried:
        simulated = self._simulated(settings, load, requests)
        found, stable, limit = figures(simulated), not is_unstable(simulated), self.question.p99_ms
        return _Tried(figures=found, stable=stable, keeps=stable and (limit is None or found.p99_ms.value <= limit))

    def for_a_measurement(self, found: ServiceFigures) -> ServiceFigures:
        """With the intervals of what is reported, for a load as long as that of the confirmation."""
        expected = found.throughput_per_s.value * self.question.confirm_s
        requests = max(round(expected), P99_SAMPLES) if self.question.confirm_s and math.isfinite(expected) else None
        bins = found.settings.sequence_bins
        curve, lengths = self.curves[bins], self.lengths
        return for_a_measurement(found, curve, self.host, lengths, bins or self.bins, requests=requests, seed=self.seed)

    def at_rate(self, settings: ServiceSettings, rate_per_s: float, requests: int) -> _Tried:
        return self.tried(settings, ServiceLoad(arrivals="poisson", rate_per_s=rate_per_s), requests)

    def keeps(self, settings: ServiceSettings, rate_per_s: float, requests: int, *, doubt: float = 1.0) -> bool:
        """Whether P99 is at most `doubt` times the limit."""
        load = ServiceLoad(arrivals="poisson", rate_per_s=rate_per_s)
        simulated = self._simulated(settings, load, requests)
        assert self.question.p99_ms is not None  # a question without a load has one
        return not is_unstable(simulated) and simulated.p99_ms <= doubt * self.question.p99_ms

    def capacity_per_s(self, settings: ServiceSettings) -> float:
        """Answers per second when there is always enough to do."""
        rows = settings.max_batch_size * settings.workers * self.question.devices
        clients = _SATURATING * max(16, rows * max(1, len(settings.sequence_bins or self.bins)))
        return self._simulated(settings, ServiceLoad(concurrency=clients), max(_GLANCE, 2 * clients)).throughput_per_s

    def highest_rate(self, settings: ServiceSettings, capacity_per_s: float, *, above: float = 0.0) -> float | None:
        """About the highest rate that keeps the limit; None where none above `above` does."""
        rates = [share * capacity_per_s for share in _SHARES]
        if above:
            top = max(rates[0], above)
            rates = [top, (top + above) / 2, above]
        breaks = max(capacity_per_s, above)
        for rate in rates:
            if self.keeps(settings, rate, _GLANCE, doubt=_GLANCE_DOUBT) and self.keeps(settings, rate, _SEEKING):
                while breaks > (1 + _TIE) * rate:
                    middle = (breaks + rate) / 2
                    if self.keeps(settings, middle, _SEEKING):
                        rate = middle
                    else:
                        breaks = middle
                return rate
            breaks = rate
        return None

    def at_highest_rate(self, settings: ServiceSettings, about: float) -> _Tried:
        """Under the highest rate that keeps the limit, given about which; the P99 reported with it keeps it too."""
        rate, found = about, self.at_rate(settings, about, _LAST)
        breaks = rate
        if found.keeps:
            while (higher := self.at_rate(settings, breaks := (1 + _UNTOLD) * rate, _LAST)).keeps:
                rate, found = breaks, higher
        while not found.keeps and rate > 0.5 * about:
            breaks, rate = rate, (1 - _UNTOLD) * rate
            found = self.at_rate(settings, rate, _LAST)
        while breaks > (1 + _TIE) * rate:
            middle = (breaks + rate) / 2
            tried = self.at_rate(settings, middle, _LAST)
            if tried.keeps:
                rate, found = middle, tried
            else:
                breaks = middle
        return found

    def p99_at_lowest_rate(self, settings: ServiceSettings, capacity_per_s: float) -> float:
        load = ServiceLoad(arrivals="poisson", rate_per_s=_SHARES[-1] * capacity_per_s)
        return self._simulated(settings, load, _GLANCE).p99_ms

    def at_lowest_rate(self, settings: ServiceSettings, capacity_per_s: float) -> _Tried:
        found = self.at_rate(settings, _SHARES[-1] * capacity_per_s, _LAST // 4)
        said = f"no rate was found that keeps P99 <= {self.question.p99_ms:g} ms"
        note = "; ".join(filter(None, (found.figures.note, said)))
        return replace(found, keeps=False, figures=replace(found.figures, note=note))

    def _simulated(self, settings: ServiceSettings, load: ServiceLoad, requests: int) -> Simulated:
        return simulate(
            self.curves[settings.sequence_bins],
            settings,
            load,
            self.host,
            self.lengths,
            settings.sequence_bins or self.bins,
            devices=self.question.devices,
            requests=requests,
            seed=self.seed,
        )


def _sensible(curve: BatchCurve, choices: ServiceChoices) -> tuple[ServiceSettings, ...]:
    largest = curve.batches[-1]
    settings = choices.settings()
    return tuple(s for s in settings if not curve.stepped or s.max_batch_size <= largest) or settings


def _screened(service: _Service, settings: Sequence[ServiceSettings], load: ServiceLoad) -> list[_Tried]:
    """Those that may be the best, under `_LAST` requests."""
    left = list(settings)
    for requests, kept, doubt in _ROUNDS:
        if len(left) > kept // 2:
            left = _shortlist([service.tried(one, load, requests) for one in left], service.question, kept, doubt)
    return [service.tried(one, load, _LAST) for one in left]


def _shortlist(tried: Sequence[_Tried], question: ServiceQuestion, kept: int, doubt: float) -> list[ServiceSettings]:
    """At most `kept`: one half for the goal, the other for a low P99, in case that the first breaks the limit."""
    limit = question.p99_ms
    possible = [t for t in tried if t.stable and (limit is None or t.figures.p99_ms.value <= (1 + doubt) * limit)]
    goal = question.goal
    chosen: dict[ServiceSettings, None] = {}
    while possible and len(chosen) < kept // 2:
        best = _simplest_best(possible, goal)
        possible.remove(best)
        chosen[best.figures.settings] = None
    for one in sorted(tried, key=lambda t: (not t.stable, t.figures.p99_ms.value, _simplicity(t.figures.settings))):
        if len(chosen) >= kept:
            break
        chosen[one.figures.settings] = None
    return list(chosen)


def _at_highest_rates(service: _Service, settings: Sequence[ServiceSettings]) -> list[_Tried]:
    """Settings that may be the best, each under the highest rate that keeps the limit.

    In the order of their capacity: once one keeps the limit at a rate, others need only be sought above it, and those
    whose capacity is lower not at all. Where none keeps it, those of the least P99 under a low rate come instead.
    """
    capacity = {one: service.capacity_per_s(one) for one in settings}
    about: dict[ServiceSettings, float] = {}
    for one in sorted(settings, key=lambda s: (-capacity[s], _simplicity(s))):
        enough = (1 - _UNTOLD) * max(about.values(), default=0.0)
        rate = service.highest_rate(one, capacity[one], above=enough) if capacity[one] > enough else None
        if rate is not None:
            about[one] = rate
    if not about:
        by_p99 = sorted(settings, key=lambda s: (service.p99_at_lowest_rate(s, capacity[s]), _simplicity(s)))
        return [service.at_lowest_rate(one, capacity[one]) for one in by_p99[:_FINALISTS]]
    enough = (1 - _UNTOLD) * max(about.values())
    by_rate = sorted((one for one in about if about[one] >= enough), key=lambda s: (-about[s], _simplicity(s)))
    simplest = sorted(by_rate, key=_simplicity)
    finalists = dict.fromkeys((*by_rate[: _FINALISTS // 2], *simplest[: _FINALISTS // 2]))
    return [service.at_highest_rate(one, about[one]) for one in finalists]


def _alone(service: _Service, settings: ServiceSettings) -> _Tried:
    capacity = service.capacity_per_s(settings)
    rate = service.highest_rate(settings, capacity)
    return service.at_lowest_rate(settings, capacity) if rate is None else service.at_highest_rate(settings, rate)


def _at_bins_of(service: _Service, best: _Tried, untuned: _Tried, tried: Sequence[_Tried]) -> _Tried | None:
    """The best settings with the untuned bins: beside it one sees what the lengths bring. None where these are no
    choice."""
    settings = replace(best.figures.settings, sequence_bins=untuned.figures.settings.sequence_bins)
    if not settings.sequence_bins:
        return None
    load = service.question.load
    known = _of(settings, (*tried, untuned))
    return known or (_alone(service, settings) if load is None else service.tried(settings, load, _LAST))


def _missed(figures: ServiceFigures, question: ServiceQuestion) -> str:
    if question.p99_ms is None:
        return f"does not keep up with {figures.load}"
    return f"misses the limit on P99 of {question.p99_ms:g} ms: {figures.p99_ms.value:.4g} ms under {figures.load}"


def _simplest_best(tried: Sequence[_Tried], goal: Goal) -> _Tried:
    """The best, or what cannot be told from it and is simpler."""
    if goal == "throughput":
        best = max(tried, key=lambda t: t.figures.throughput_per_s.value).figures.throughput_per_s
        tied = [t for t in tried if t.figures.throughput_per_s.value >= best.low]
    else:
        least = min(tried, key=lambda t: (not t.stable, t.figures.p99_ms.value))
        tied = [t for t in tried if t.stable == least.stable and t.figures.p99_ms.value <= least.figures.p99_ms.high]
    return min(tied, key=lambda t: _simplicity(t.figures.settings))


def _simplicity(settings: ServiceSettings) -> tuple[int, int, float, int]:
    return settings.workers, settings.max_batch_size, settings.batch_timeout_ms, len(settings.sequence_bins)


def _of(settings: ServiceSettings, tried: Sequence[_Tried]) -> _Tried | None:
    return next((one for one in tried if one.figures.settings == settings), None)
