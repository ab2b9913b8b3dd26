"""Calls after an idle wait: how they are timed, and what a simulation makes of them."""

from dataclasses import replace

import numpy as np
import pytest

from tests.prediction.simulation.services import exact, served, trace_ms
from tests.session_clock import Clock
from workbench.prediction import together
from workbench.prediction.curve import at_first_speed
from workbench.prediction.together import slower_after_idle
from workbench.targets.base import Array, Feeds
from workbench.values.documents.canonical import decode, encode
from workbench.values.measurement import AfterIdle, BatchCurve

SLOWER = (AfterIdle(wait_ms=10.0, slower_ms=1.0), AfterIdle(wait_ms=50.0, slower_ms=2.0))


class Dozing:
    """A session that takes 30 ms instead of 1 where it did nothing for 20 ms."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.last = clock, clock.perf_counter()

    def run(self, feeds: Feeds) -> dict[str, Array]:
        self.clock.call(30.0 if self.clock.perf_counter() - self.last >= 0.02 else 1.0)
        self.last = self.clock.perf_counter()
        return {}

    def close(self) -> None:
        pass


def test_a_session_that_dozes_off_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(together, "time", clock)  # the clock that calls are timed by

    shorter, longer = slower_after_idle(Dozing(clock), [{}], waits_ms=(1.0, 25.0), repeats=3)

    assert shorter.slower_ms < 1
    assert longer.slower_ms == pytest.approx(29, rel=0.05)


def test_a_call_takes_longer_the_longer_its_worker_had_nothing_to_do() -> None:
    curve = replace(exact(lambda *_: 5.0), after_idle=SLOWER)

    latency_ms = served(curve, trace_ms(0, 5, 10, 20, 47, 200)).latency_ms

    # no wait, none, none, 5 ms, 21.5 ms, and more than was timed
    assert latency_ms == pytest.approx([5, 5, 5, 5.5, 6.2875, 7])


def test_of_two_workers_the_one_that_was_idle_longest_gets_the_next_batch() -> None:
    curve = replace(exact(lambda *_: 5.0), after_idle=SLOWER)

    latency_ms = served(curve, trace_ms(*np.arange(0, 200, 10)), workers=2).latency_ms

    # each waits for two gaps less its call: 5 + 1 + (20 - call - 10) / 40; one gap would be too short for 1 ms more
    assert latency_ms[2:] == pytest.approx([250 / 41] * 18, abs=0.03)


def test_it_is_brought_to_the_first_speed_as_the_curve_is_and_kept() -> None:
    curve = replace(exact(lambda *_: 5.0), after_idle=SLOWER, drift=2.0)

    assert [one.slower_ms for one in at_first_speed(curve).after_idle] == [0.5, 1.0]
    assert decode(BatchCurve, encode(curve)) == curve
