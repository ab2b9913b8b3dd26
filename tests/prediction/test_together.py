"""Sessions that run at once: how much that slows them, and what a prediction makes of it."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.prediction.simulation.services import exact, served, trace_ms
from tests.session_clock import Clock
from tests.tiny_artifact import linear_artifact
from workbench.prediction import together as timing
from workbench.prediction.curve import at_first_speed
from workbench.prediction.together import CROWDED, CROWDED_SPREAD, host_beside, side_by_side, slower_after_idle
from workbench.targets import open_target
from workbench.targets.base import Array, Feeds
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import decode, encode
from workbench.values.measurement import AfterIdle, BatchCurve, Estimate, Together
from workbench.values.service import HostCosts

HOST = HostCosts(request_ms=0.2, capacity=(1.0, 1.6), origin="a test")


class Asleep:
    """A session that waits for something instead of computing, and writes down whose thread called it."""

    def __init__(self) -> None:
        self.callers: set[int] = set()
        self.closed = False

    def run(self, feeds: Feeds) -> dict[str, Array]:
        self.callers.add(threading.get_ident())
        time.sleep(0.001)  # a call that keeps no processor busy
        return {}

    def close(self) -> None:
        self.callers.add(threading.get_ident())
        self.closed = True


def test_real_sessions_are_timed_together_or_it_cannot_be_told(tmp_path: Path) -> None:
    """Where others have the processors, no round counts."""
    artifact = linear_artifact(tmp_path)
    target, candidate = open_target("onnxruntime"), Candidate(target="onnxruntime")
    feeds = [{"x": np.ones((8, 32, 32), dtype=np.float32)}]

    def another():
        return target.open(artifact, tmp_path / "compiled", candidate)

    first = another()
    with side_by_side(first, another, 2, feeds, threads=1) as both:
        both.time_rounds(2, slice_s=0.02)
    first.close()

    for one in both.found():
        assert one.sessions == 2
        assert 0.2 < one.work.value < 4
        assert one.work.low <= one.work.value <= one.work.high


def test_sessions_without_a_processor_tell_nothing_and_each_stays_in_its_thread() -> None:
    first, opened = Asleep(), []

    def another() -> Asleep:
        opened.append(Asleep())
        return opened[-1]

    with side_by_side(first, another, 3, [{}], threads=1) as sessions:
        sessions.time_rounds(1, slice_s=0.01)

    assert sessions.found() == ()
    assert [one.closed for one in opened] == [True, True]
    assert not first.closed
    assert [len(one.callers) for one in (first, *opened)] == [1, 1, 1]
    with side_by_side(Asleep(), lambda: pytest.fail("opened"), 1, [{}], threads=1) as alone:
        alone.time_rounds()
    assert alone.found() == ()


def together(sessions: int, work: float) -> Together:
    return Together(sessions=sessions, work=Estimate(value=work, low=work * 0.9, high=work / 0.9), rounds=6)


def test_what_sessions_of_the_artifact_do_together_scales_the_host() -> None:
    four = HostCosts(request_ms=0.1, capacity=(1.0, 2.0, 3.0, 4.0), origin="a test")
    uneven = replace(four, capacity=(1.0, 1.8, 2.6, 3.2))
    for why, host, threads, work, expected in (
        ("two sessions", HOST, 1, 1.5, (1.0, 1.5)),
        ("more than were timed share as the host says", four, 1, 1.5, (1.0, 1.5, 2.25, 3.0)),
        ("two threads", uneven, 2, 1.5, (1.0, 1.8, 2.6 * (1 + 1.5 * 1.8 / 3.2) / 2, 1.5 * 1.8)),
        ("too many threads do less together", HOST, 2, 0.85, (1.0, 1.6, CROWDED * 1.6 * 0.925, 1.6 * 0.85)),
    ):
        found = host_beside(host, replace(exact(lambda *_: 5.0, threads=threads), together=(together(2, work),)))
        assert found.capacity == pytest.approx((*expected, CROWDED * expected[-1])), why
        assert found.processor_count == host.processor_count, "more threads are no more processors"
        if threads == 1 and host is HOST:
            told = np.log(1 / 0.81) / (2 * 1.96)
            assert found.capacity_spread == pytest.approx((0, told, np.hypot(told, CROWDED_SPREAD)))
    assert host_beside(HOST, exact(lambda *_: 5.0)) is HOST


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
    monkeypatch.setattr(timing, "time", clock)  # the clock that calls are timed by

    shorter, longer = slower_after_idle(Dozing(clock), [{}], waits_ms=(1.0, 25.0), repeats=3)

    assert shorter.slower_ms < 1
    assert longer.slower_ms == pytest.approx(29, rel=0.05)


def test_a_call_takes_longer_the_longer_its_worker_had_nothing_to_do() -> None:
    curve = replace(exact(lambda *_: 5.0), after_idle=SLOWER)

    latency_ms = served(curve, trace_ms(0, 5, 10, 20, 47, 200)).latency_ms

    # no wait, none, none, 5 ms, 21.5 ms, and more than was timed
    assert latency_ms == pytest.approx([5, 5, 5, 5.5, 6.2875, 7])


def test_what_the_front_end_does_after_a_batch_delays_its_answers_and_not_the_next_batch() -> None:
    host = replace(HOST, request_ms=0.0, batch_after_ms=1.0, capacity=(1.0, 2.0))

    assert served(exact(lambda *_: 5.0), trace_ms(0, 1, 20), host=host).latency_ms == pytest.approx([6, 10, 6])


def test_of_two_workers_the_one_that_was_idle_longest_gets_the_next_batch() -> None:
    curve = replace(exact(lambda *_: 5.0), after_idle=SLOWER)

    latency_ms = served(curve, trace_ms(*np.arange(0, 200, 10)), workers=2).latency_ms

    # each waits for two gaps less its call: 5 + 1 + (20 - call - 10) / 40; one gap would be too short for 1 ms more
    assert latency_ms[2:] == pytest.approx([250 / 41] * 18, abs=0.03)


def test_it_is_brought_to_the_first_speed_as_the_curve_is_and_kept() -> None:
    curve = replace(exact(lambda *_: 5.0), after_idle=SLOWER, drift=2.0)

    assert [one.slower_ms for one in at_first_speed(curve).after_idle] == [0.5, 1.0]
    assert decode(BatchCurve, encode(curve)) == curve
