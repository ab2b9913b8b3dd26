"""Latency against batch and length bin, measured once for each artifact: what every prediction of a service rests on.

A service calls one model with ever changing shapes. So the curve is timed in rounds, each of which visits every point:
a machine that changes its speed while the curve is taken changes all points alike. Batches follow each other from the
smallest to the largest, lengths of one batch in a scattered order, as a service of one largest batch makes them. Those
of the smallest are made once more before, untimed: what a large call took from the caches comes back over several
(after one of 44 ms, calls of 0.85 ms took 1.58, 1.30, 1.08; INT8 MiniLM, 2 processors). Intervals come from resampling
rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from workbench.evaluation.measure import collection_paused, golden
from workbench.evaluation.modelled_latency import modelled_call
from workbench.evaluation.noise import read_counters, steadiness, verdict
from workbench.targets.base import Feeds, Session
from workbench.values.errors import MeasureError
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate, Latency
from workbench.values.significance import bootstrap_rounds

Floats = npt.NDArray[np.float64]
FeedsOf = Callable[[int, int], Sequence[Feeds]]
"""(batch, length) → distinct feeds of that shape, such as `Dataset.sample_feeds` gives; length 0: no sequences."""

BUDGET_S = 6.0
FEWEST_CALLS = 15
"""Of every point, whatever that takes: the interval of a median from fewer is the range of the calls."""
MOST_ROUNDS = 60
_MOST_VISITS = 4
"""Of a cheap point in one round; what it gains by more is less than the machine's drift."""
_WARMUP_CALLS = 3
_SETTLING = 0.2
"""Of a round: what calls of the smallest batch may take that nobody times."""
_QUANTILES = 21
_STARTUPS = 3
_QUICK_STARTUP_S = 1.0
_QUARTERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """The float baseline, timed once in every round: how fast the machine was while the curve was taken.

    Attributes:
        batch, length: of all feeds, so that however many rounds there are, their median is of the same work.
        first_ms: the median that the sweep saw first, given the one seen now (`Journal.anchor`).
    """

    session: Session
    batch: int
    length: int
    feeds: Sequence[Feeds]
    first_ms: Callable[[float], float]


def measure_curve(
    session: Session,
    batches: Sequence[int],
    lengths: Sequence[int],
    feeds_of: FeedsOf,
    *,
    beside: Sequence[tuple[int, int]] = (),
    fewest: int = FEWEST_CALLS,
    threads: int,
    stepped: bool,
    yardstick: Yardstick | None = None,
    budget_s: float = BUDGET_S,
    timeout_s: float = 600.0,
    seed: int = 0,
) -> BatchCurve:
    """Time calls of every (batch, length) by the host's clock.

    After a few untimed calls of each point come `fewest` to 60 rounds, as many as the budget holds. Every round visits
    each point once, and one that costs less than the mean up to four times where the budget allows. `fewest`
    are timed even where they take longer than it. Garbage collection is off inside a round. Take `measure.device_lock`
    around the call.

    Args:
        lengths: (0,) where samples are no sequences.
        beside: (batch, length) of further points, which stand behind the others.
        fewest: rounds, whatever they take.
        threads: that one call keeps busy on the host; 0 where a device computes.
        stepped: whether the session pads a batch to the next compiled one (see `BatchCurve.stepped`).
        timeout_s: for all of it; looked at between calls.
        seed: of the bootstrap.

    Raises:
        MeasureError: a call failed, or (transient) the time is up.
    """
    shapes = [*_shapes(batches, lengths), *beside]
    feeds = [list(feeds_of(batch, length)) for batch, length in shapes]
    end_s = time.perf_counter() + timeout_s
    costs_ms = [_warm_up(session, each, end_s) for each in feeds]
    baseline_ms = _warm_up(yardstick.session, yardstick.feeds, end_s) if yardstick is not None else 0.0
    visits = _visits(costs_ms, budget_s * 1000 / fewest - baseline_ms)
    round_ms = sum(cost * count for cost, count in zip(costs_ms, visits, strict=True)) + baseline_ms
    order = _order(shapes, visits)
    smallest = [point for point in order if shapes[point][0] == shapes[order[0]][0]]
    few = sum(costs_ms[point] for point in smallest) <= _SETTLING * round_ms
    settling = smallest if few else order[:1]
    round_ms += sum(costs_ms[point] for point in settling)
    rounds = min(max(math.ceil(budget_s * 1000 / round_ms), fewest), MOST_ROUNDS)
    times: list[list[list[float]]] = [[] for _ in shapes]
    baseline: list[float] = []
    before = read_counters()
    for number in range(rounds):
        for calls in times:
            calls.append([])
        with collection_paused():
            for place, point in enumerate(settling):  # the baseline's call, or the largest, has just taken the caches
                _call_ms(session, feeds[point][(number + place) % len(feeds[point])], end_s)
            for place, point in enumerate(order):
                each = feeds[point]
                times[point][-1].append(_call_ms(session, each[(number + place) % len(each)], end_s))
            if yardstick is not None:
                baseline.append(_call_ms(yardstick.session, yardstick.feeds[number % len(yardstick.feeds)], end_s))
    after = read_counters()
    # every point is the same work in every round
    work = np.concatenate([np.full(np.shape(point), number) for number, point in enumerate(times)], axis=1)
    steady = steadiness(np.concatenate([np.array(point) for point in times], axis=1), work)
    quiet, words, holds = verdict(steady, before, after, of="calls")
    points = [_point(b, n, np.array(found), seed) for (b, n), found in zip(shapes, times, strict=True)]
    drift, seen, first_ms = 1.0, None, 0.0
    if yardstick is not None:
        seen = _point(yardstick.batch, yardstick.length, np.array(baseline)[:, None], seed)
        first_ms = yardstick.first_ms(seen.p50_ms.value)
        drift = seen.p50_ms.value / first_ms
    return BatchCurve(
        points=tuple(points),
        stepped=stepped,
        threads=threads,
        clock="host",
        drift=drift,
        quiet=quiet,
        verdict=words,
        holds=holds,
        speed_spread=_speed_spread(times, drift),
        baseline=seen,
        baseline_first_ms=first_ms,
    )


def with_agreed_drift(curve: BatchCurve, latency: Latency) -> BatchCurve:
    """The curve with as much drift as both measurements of the machine's speed tell, made seconds apart.

    What slows the baseline in one of them alone is no speed of the machine: threads of two sessions that get in each
    other's way made it 2.5 times as slow among the calls of a curve whose own calls were 1.4 times as slow. What the
    two differ by is not known better, and widens what is predicted.
    """
    ours, other = math.log(curve.drift), math.log(latency.drift)
    agreed = 0.0 if ours * other <= 0 else min(ours, other, key=abs)
    rounds = max(curve.speed_spread**2 - ours**2 / 2, 0.0)
    spread = math.sqrt(rounds + agreed**2 / 2 + ((ours - other) / 2) ** 2)
    return replace(curve, drift=math.exp(agreed), speed_spread=spread)


def at_first_speed(curve: BatchCurve) -> BatchCurve:
    """The curve as the machine would give it at the speed the sweep began with (`results.Latency.drift`), so that
    candidates predicted hours apart compare; `drift` still says by how much it was changed."""

    def scaled(estimate: Estimate) -> Estimate:
        values = (estimate.value, estimate.low, estimate.high)
        value, low, high = (each / curve.drift for each in values)
        return replace(estimate, value=value, low=low, high=high)

    def all_scaled(points: tuple[CurvePoint, ...]) -> tuple[CurvePoint, ...]:
        return tuple(
            replace(
                p,
                p50_ms=scaled(p.p50_ms),
                mean_ms=p.mean_ms / curve.drift,
                quantiles_ms=tuple(q / curve.drift for q in p.quantiles_ms),
            )
            for p in points
        )

    slower = tuple(replace(one, slower_ms=one.slower_ms / curve.drift) for one in curve.after_idle)
    return replace(curve, points=all_scaled(curve.points), checks=all_scaled(curve.checks), after_idle=slower)


def modelled_curve(session: Session, batches: Sequence[int], lengths: Sequence[int], feeds_of: FeedsOf) -> BatchCurve:
    """The same from what calls cost on an emulated device, equal for equal shapes: one call of each, no spread.

    Copies and execution count, nothing of the host. Nothing here was measured, and `clock` says so.

    Raises:
        MeasureError: a call failed, or the session states no costs.
    """
    points, calls = [], []
    for batch, length in _shapes(batches, lengths):
        calls.append(modelled_call(session, feeds_of(batch, length)[0]))
        points.append(CurvePoint.exact(batch, length, calls[-1].ms))
    return BatchCurve(
        points=tuple(points),
        stepped=True,
        threads=0,
        clock="modelled",
        verdict="modelled, not measured: from the costs that the emulated device states",
        modelled=(calls[0].model, tuple(call.costs for call in calls)),
    )


def startup_s(open_session: Callable[[], Session], feeds: Sequence[Feeds]) -> float:
    """Seconds from opening an artifact until the first answer to each of the feeds.

    A median of three when that takes less than a second, else one. The runtime's libraries and the files are in
    memory already, as they are where a service starts again: a first start after boot also reads them from disk.

    Args:
        open_session: opens it anew; the session is closed here.
        feeds: one for every compiled file, or for every shape where one file serves all.

    Raises:
        MeasureError: it cannot be opened, or a call failed.
    """
    times: list[float] = []
    while not times or (len(times) < _STARTUPS and times[0] < _QUICK_STARTUP_S):
        began = time.perf_counter()
        session = open_session()
        try:
            for feed in feeds:
                session.run(feed)
            times.append(time.perf_counter() - began)
        finally:
            session.close()
    return median(times)


def _shapes(batches: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int]]:
    """(batch, length) in the order of a curve's points."""
    found = [(batch, length) for length in sorted(set(lengths)) for batch in sorted(set(batches))]
    if not found or min(batches) < 1 or min(lengths) < 0:
        raise ValueError(f"no curve over batches {list(batches)} and lengths {list(lengths)}")
    return found


def _call_ms(session: Session, feed: Feeds, end_s: float) -> float:
    start_ns = time.perf_counter_ns()
    session.run(feed)
    end_ns = time.perf_counter_ns()
    if end_ns > end_s * 1e9:
        raise MeasureError(
            "timing the batch curve took longer than allowed. Ask for fewer batches or lengths, or allow more time.",
            transient=True,
        )
    return max(end_ns - start_ns, 1) / 1e6


def _warm_up(session: Session, feeds: Sequence[Feeds], end_s: float) -> float:
    """Milliseconds of a warm call."""
    return min(_call_ms(session, feeds[i % len(feeds)], end_s) for i in range(_WARMUP_CALLS))


def _visits(costs_ms: Sequence[float], round_ms: float) -> list[int]:
    """How often a round visits each point: cheap ones more often, as interruptions weigh more on short calls.

    Args:
        round_ms: what a round may take; once each where it is not enough for more.
    """
    mean_ms = sum(costs_ms) / len(costs_ms)
    visits = [min(max(round(mean_ms / cost), 1), _MOST_VISITS) for cost in costs_ms]
    taken_ms = sum(cost * count for cost, count in zip(costs_ms, visits, strict=True))
    return visits if taken_ms <= round_ms else [1] * len(costs_ms)


def _order(shapes: Sequence[tuple[int, int]], visits: Sequence[int]) -> list[int]:
    """Every point as often as it is visited: by batch, and the visits of one batch spread."""
    points = np.repeat(np.arange(len(visits)), visits)
    batches = np.array([batch for batch, _ in shapes])[points]
    return [int(point) for point in points[np.lexsort((golden(len(points)), batches))]]


def _point(batch: int, length: int, rounds: Floats, seed: int) -> CurvePoint:
    """Args: rounds: milliseconds [rounds, calls in a round]."""
    return CurvePoint(
        batch=batch,
        length=length,
        calls=rounds.size,
        p50_ms=bootstrap_rounds(rounds, lambda drawn: np.asarray(np.median(drawn, axis=-1)), seed=seed),
        mean_ms=float(rounds.mean()),
        quantiles_ms=tuple(float(q) for q in np.quantile(rounds, np.linspace(0, 1, _QUANTILES))),
    )


def _speed_spread(times: Sequence[Sequence[Sequence[float]]], drift: float) -> float:
    """How the machine's speed differs between two moments of some seconds: between quarters of the rounds, and between
    now and the sweep's first moment, at whose speed a service is predicted while a load meets one of its own."""
    levels = np.mean([_levels(np.array(point)) for point in times], axis=0)
    quarters = [float(part.mean()) for part in np.array_split(levels, min(_QUARTERS, len(levels)))]
    return math.hypot(float(np.std(quarters, ddof=1)), math.log(drift) / math.sqrt(2))


def _levels(rounds: Floats) -> Floats:
    """[rounds] logarithm of the median call over that of all rounds."""
    return np.asarray(np.log(np.median(rounds, axis=1) / np.median(rounds)), dtype=np.float64)
