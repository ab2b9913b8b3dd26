"""What slows calls of one artifact beside their shape: other sessions of it, and an idle wait before. Measured beside
its curve, used in its predictions.

Hyper-threads, shared caches and memory, and other guests of the host make two processors less than twice one. So the
artifact itself is opened again, and calls of one session are timed in turns with calls of all at once.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median

import numpy as np

from workbench.evaluation.measure import collection_paused
from workbench.prediction.host_costs.measure import processors
from workbench.prediction.simulation.intervals import Z, relative_spread
from workbench.targets.base import Feeds, Session
from workbench.values.measurement import AfterIdle, BatchCurve, Estimate, Together
from workbench.values.service import HostCosts

WAITS_MS = (1.0, 5.0, 20.0, 100.0)
REPEATS = 4
"""Of every wait, in turns: half a second in all, beside the calls."""
CROWDED, CROWDED_SPREAD = 0.72, 0.08
"""Work done while a front end, a client and as many workers as processors are busy, of what the sessions do alone, and
its relative standard deviation: each wake-up takes a worker's place and its caches [measured: with it services of 2
workers on 2 processors are predicted within 5 % of what they answered in batches of 1, 4 and 14 requests, without it
20, 17 and 8 % above]."""
MOST_SESSIONS = 4
"""Opening one costs what starting a worker costs; more of them are taken to share as so many do."""
ROUNDS = 3
SLICE_S, _FEWEST_CALLS = 0.06, 3
_RUNNING = 0.75
"""Share of the processors that there are for them which sessions must have. Those that have less waited for other
processes, or for Python's lock, which workers in processes of their own do not share: nothing can be told from it."""


class SideBySide:
    """Sessions of one artifact, and what rounds of timing them have told so far.

    Attributes:
        others: each with the thread that opened it, and calls it.
    """

    def __init__(
        self,
        session: Session,
        feeds: Sequence[Feeds],
        threads: int,
        others: Sequence[tuple[ThreadPoolExecutor, Session]],
    ) -> None:
        self._session, self._feeds, self._threads, self._others = session, feeds, threads, others
        self._ratios: dict[int, list[float]] = {}

    def time_rounds(self, rounds: int = ROUNDS, *, slice_s: float = SLICE_S) -> None:
        """Time all numbers of sessions in turns; a round in which some of them had no processor counts as none."""
        levels = sorted({1, min(2, 1 + len(self._others)), 1 + len(self._others)})
        for number in range(rounds if self._others else 0):
            with collection_paused():
                found = {n: self._rate(n, slice_s) for n in (levels if number % 2 == 0 else levels[::-1])}
            if all(running >= _RUNNING for _, running in found.values()):
                for level in levels:
                    self._ratios.setdefault(level, []).append(found[level][0] / found[1][0])

    def found(self) -> tuple[Together, ...]:
        """() where nothing was told."""
        if not self._ratios:
            return ()
        return tuple(
            Together(sessions=n, work=_moments(median(ratios), spread_of(ratios)), rounds=len(ratios))
            for n, ratios in sorted(self._ratios.items())
            if n > 1
        )

    def _rate(self, sessions: int, slice_s: float) -> tuple[float, float]:
        """Calls in a second of so many at once, and the share of the processors there are for them that they had."""
        began, spent = time.perf_counter(), time.process_time()
        running = [pool.submit(_calls, other, self._feeds, slice_s) for pool, other in self._others[: sessions - 1]]
        rate = _calls(self._session, self._feeds, slice_s) + sum(one.result() for one in running)
        wall, spent = time.perf_counter() - began, time.process_time() - spent
        return rate, spent / (wall * min(sessions * self._threads, processors()))


@contextlib.contextmanager
def side_by_side(
    session: Session, open_another: Callable[[], Session], sessions: int, feeds: Sequence[Feeds], *, threads: int
) -> Iterator[SideBySide]:
    """`sessions` of them, the given one first; the others are opened and warmed up now, and closed at the end.

    Args:
        threads: that one call keeps busy.

    Raises:
        MeasureError: another one cannot be opened, or a call failed.
    """
    with contextlib.ExitStack() as stack:
        others = []
        for _ in range(sessions - 1):
            pool = stack.enter_context(ThreadPoolExecutor(max_workers=1))
            other = pool.submit(open_another).result()
            stack.callback(_close, pool, other)
            pool.submit(_calls, other, feeds, 0.0).result()
            others.append((pool, other))
        yield SideBySide(session, feeds, threads, others)


def _close(pool: ThreadPoolExecutor, session: Session) -> None:
    pool.submit(session.close).result()


def host_beside(host: HostCosts, curve: BatchCurve) -> HostCosts:
    """The host's capacity as the artifact of the curve finds it.

    Where sessions were timed together, theirs counts; between them and beyond, the host's is scaled alike.
    More threads than processors do less together than fewer of them (`CROWDED`).
    """
    if not curve.together or curve.threads < 1:
        return host
    at = [curve.threads * n for n in (1, *(t.sessions for t in curve.together))]
    count = host.processor_count
    busy = range(1, max(count, at[-1]) + 2)
    crowded = {n for n in busy if n > count and n not in at}  # sessions alone were timed at the others
    found = [t.work.value * _at(host.capacity, curve.threads) for t in curve.together]
    factors = [1.0, *(work / _at(host.capacity, n) for work, n in zip(found, at[1:], strict=True))]
    spreads = [0.0, *(relative_spread(t.work) for t in curve.together)]
    return replace(
        host,
        processors=count,
        capacity=tuple(
            _at(host.capacity, n) * float(np.interp(n, at, factors)) * (CROWDED if n in crowded else 1.0) for n in busy
        ),
        capacity_spread=tuple(
            math.hypot(float(np.interp(n, at, spreads)), CROWDED_SPREAD if n in crowded else 0.0) for n in busy
        ),
    )


def _at(capacity: tuple[float, ...], busy: int) -> float:
    return capacity[min(busy, len(capacity)) - 1]


def _calls(session: Session, feeds: Sequence[Feeds], slice_s: float) -> float:
    """Calls in a second."""
    calls, began = 0, time.perf_counter()
    while True:
        session.run(feeds[calls % len(feeds)])
        calls += 1
        passed = time.perf_counter() - began
        if passed >= slice_s and calls >= _FEWEST_CALLS:
            return calls / max(passed, 1e-9)


def spread_of(ratios: Sequence[float]) -> float:
    """Relative standard deviation; robust, as a round in which somebody else had a processor says nothing of others."""
    logs = np.log(ratios)
    return float(1.4826 * np.median(np.abs(logs - np.median(logs))))


def _moments(value: float, spread: float) -> Estimate:
    return Estimate(value=value, low=value * math.exp(-Z * spread), high=value * math.exp(Z * spread))


def slower_after_idle(
    session: Session, feeds: Sequence[Feeds], *, waits_ms: Sequence[float] = WAITS_MS, repeats: int = REPEATS
) -> tuple[AfterIdle, ...]:
    """Median calls after each wait, less the median of those that follow another call at once; 0 for a wait after which
    the median is not above all of those, which on a noisy machine is noise.

    What is added does not depend on the shape, as far as it comes from caches and processors that wake, so one shape
    tells it: the smallest, which shows it best. A longer wait counts as no less slow than a shorter one.

    Args:
        waits_ms: ascending.

    Raises:
        MeasureError: a call failed.
    """
    times: dict[float, list[float]] = {wait: [] for wait in (0.0, *waits_ms)}
    session.run(feeds[0])
    for number in range(repeats):
        with collection_paused():
            for place, (wait_ms, found) in enumerate(times.items()):
                session.run(feeds[place % len(feeds)])
                if wait_ms:
                    time.sleep(wait_ms / 1000)  # the wait that is asked about
                began = time.perf_counter()
                session.run(feeds[(number + place) % len(feeds)])
                found.append(1000 * (time.perf_counter() - began))
    at_once, *after = times.values()
    found_ms = [median(calls) for calls in after]
    slower = np.maximum.accumulate([one - median(at_once) if one > max(at_once) else 0.0 for one in found_ms])
    return tuple(AfterIdle(wait_ms=wait, slower_ms=float(by)) for wait, by in zip(waits_ms, slower, strict=True))
