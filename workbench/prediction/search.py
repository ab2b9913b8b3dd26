"""The best service settings of one artifact, by simulation: hundreds of settings cost seconds.

Every setting is simulated with few requests first; those that may still be the best go on to a last round with enough
for a P99. All settings see the same requests, gaps and luck of calls
(`simulation.simulate`), so few requests tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.evaluation.measure import P99_SAMPLES
from workbench.prediction.curve import at_first_speed
from workbench.prediction.simulation import Simulated, figures, for_a_measurement, simulate
from workbench.prediction.simulation.intervals import is_unstable
from workbench.prediction.simulation.simulation import IntArray
from workbench.prediction.surface import curve_at
from workbench.values.measurement import BatchCurve, Estimate, ServiceFigures, ServiceResult
from workbench.values.modelled_times.figures import served_with_intervals
from workbench.values.modelled_times.statement import CallCosts, ModelledService, ScaledService, TimingModel
from workbench.values.service import Goal, HostCosts, ServiceChoices, ServiceLoad, ServiceQuestion, ServiceSettings

_SCREENING, _SCREENED, _DOUBT = 10_000, 16, 0.2
"""Requests of each setting at first, settings that go on, and how far above the limit a P99 of so few requests may lie
and still turn out to keep it."""
_LAST = 100_000
"""Requests of the figures that are reported: 1000 of them lie above the P99."""
_SATURATING = 2
"""Clients for each row that all workers together can hold, in every bin: enough that no worker waits."""
_SHARES = (0.98, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1, 0.03)
"""Of a service's capacity: rates at which the limit on P99 is tried before the interval between two is halved."""
_TIE = 0.01
"""Rates this close are found equal while a rate is sought."""
_SEEKING = 8_000
"""Requests at each rate that is tried while settings are compared."""
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
    """Choose among `choices` what answers `question` best; a function of its arguments.

    Bins that are a choice are simulated on the curve that `curve` is at them (`surface.curve_at`).

    Settings that cannot be told apart, since the value lies within the best one's interval, are a tie: fewer workers
    win it, then the smaller batch, the smaller timeout, the fewer bins. Where the load is sought (`question.load` is
    None), each setting's highest rate is sought downwards from its capacity, so a setting that keeps the limit at a
    high rate and at a low one, but not between, counts with the high one.

    On a device a batch runs as the next compiled one, and one beyond the largest in several calls
    (`simulation.service_times`), which is never better than batches of that size: such choices are left out where
    others fit. `untuned` may be one of them.

    Settings are compared by intervals of the simulation; those of the result hold a measurement (`for_a_measurement`).

    Args:
        host: taken instead of `question.host`.
        lengths, bins: see `simulation.simulate`; settings with bins of their own go before `bins`.
    """
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
        else:
            found = service.at_highest_rate(settings) or service.at_lowest_rate(settings, _SEEKING)
        figures = found.figures
        scaled.append(
            ScaledService(
                scale=scale,
                throughput_per_s=figures.throughput_per_s.value if found.keeps else None,
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

    def capacity_per_s(self, settings: ServiceSettings) -> float:
        """Answers per second when there is always enough to do."""
        rows = settings.max_batch_size * settings.workers * self.question.devices
        clients = _SATURATING * max(16, rows * max(1, len(settings.sequence_bins or self.bins)))
        return self._simulated(settings, ServiceLoad(concurrency=clients), max(3_000, 2 * clients)).throughput_per_s

    def at_highest_rate(self, settings: ServiceSettings, *, above: float = 0.0) -> _Tried | None:
        """Under about the highest rate that keeps the limit; None where none above `above` does."""
        capacity = self.capacity_per_s(settings)
        rates = [share * capacity for share in _SHARES if share * capacity > above]
        return self._first_kept(settings, [*rates, above] if above else rates, _SEEKING)

    def in_full(self, about: _Tried) -> _Tried:
        """The same with `_LAST` requests: the P99 reported with the rate keeps the limit too."""
        settings, rate = about.figures.settings, about.figures.load.rate_per_s
        assert rate is not None
        rates = [rate * (1 + _UNTOLD * step) for step in range(2, -10, -1)]
        return self._first_kept(settings, rates, _LAST) or self.at_rate(settings, rates[-1], _LAST)

    def _first_kept(self, settings: ServiceSettings, rates: Sequence[float], requests: int) -> _Tried | None:
        """At the first of these descending rates that keeps the limit, or between it and the one before."""
        breaks = 0.0
        for rate in rates:
            found = self.at_rate(settings, rate, requests)
            while found.keeps and breaks > (1 + _TIE) * rate:
                tried = self.at_rate(settings, (breaks + rate) / 2, requests)
                if tried.keeps:
                    rate, found = (breaks + rate) / 2, tried
                else:
                    breaks = (breaks + rate) / 2
            if found.keeps:
                return found
            breaks = rate
        return None

    def at_lowest_rate(self, settings: ServiceSettings, requests: int = _LAST // 4) -> _Tried:
        """For settings of which no rate keeps the limit."""
        found = self.at_rate(settings, _SHARES[-1] * self.capacity_per_s(settings), requests)
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
    """Those that may be the best, under `_LAST` requests: one half for the goal, the other for a low P99, in case that
    the first breaks the limit."""
    question, left = service.question, list(settings)
    if len(left) > _SCREENED // 2:
        tried = [service.tried(one, load, _SCREENING) for one in left]
        most = math.inf if question.p99_ms is None else (1 + _DOUBT) * question.p99_ms
        possible = [t for t in tried if t.stable and t.figures.p99_ms.value <= most]
        chosen: dict[ServiceSettings, None] = {}
        while possible and len(chosen) < _SCREENED // 2:
            best = _simplest_best(possible, question.goal)
            possible.remove(best)
            chosen[best.figures.settings] = None
        by_p99 = sorted(tried, key=lambda t: (not t.stable, t.figures.p99_ms.value, _simplicity(t.figures.settings)))
        left = list(chosen | dict.fromkeys(t.figures.settings for t in by_p99))[:_SCREENED]
    return [service.tried(one, load, _LAST) for one in left]


def _at_highest_rates(service: _Service, settings: Sequence[ServiceSettings]) -> list[_Tried]:
    """Settings that may be the best, each under the highest rate that keeps the limit.

    In the order of their capacity: once one keeps the limit at a rate, others need only be sought above it, and those
    whose capacity is lower not at all. Where none keeps it, those of the least P99 under a low rate come instead.
    """
    capacity = {one: service.capacity_per_s(one) for one in settings}
    about: list[tuple[float, _Tried]] = []
    for one in sorted(settings, key=lambda s: (-capacity[s], _simplicity(s))):
        enough = (1 - _UNTOLD) * max((rate for rate, _ in about), default=0.0)
        found = service.at_highest_rate(one, above=enough) if capacity[one] > enough else None
        if found is not None:
            about.append((found.figures.load.rate_per_s or 0.0, found))
    if not about:
        lowest = [service.at_lowest_rate(one, _SEEKING) for one in settings]
        lowest.sort(key=lambda t: (t.figures.p99_ms.value, _simplicity(t.figures.settings)))
        return [service.at_lowest_rate(one.figures.settings) for one in lowest[:_FINALISTS]]
    enough = (1 - _UNTOLD) * max(rate for rate, _ in about)
    left = [(rate, found) for rate, found in about if rate >= enough]
    by_rate = sorted(left, key=lambda one: (-one[0], _simplicity(one[1].figures.settings)))
    simplest = sorted(by_rate, key=lambda one: _simplicity(one[1].figures.settings))
    finalists = [*by_rate[: _FINALISTS // 2], *simplest[: _FINALISTS // 2]]
    return [service.in_full(found) for found in {one.figures.settings: one for _, one in finalists}.values()]


def _alone(service: _Service, settings: ServiceSettings) -> _Tried:
    found = service.at_highest_rate(settings)
    return service.at_lowest_rate(settings) if found is None else service.in_full(found)


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
