"""Sessions that run at once: how much that slows them, and what a prediction makes of it."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.prediction.simulation.services import exact
from tests.tiny_artifact import linear_artifact
from workbench.prediction.together import host_beside, side_by_side
from workbench.targets import open_target
from workbench.targets.base import Array, Feeds
from workbench.values.candidate import Candidate
from workbench.values.measurement import Estimate, Together
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
        ("too many threads do less together", HOST, 2, 0.85, (1.0, 1.6, 1.6 * 0.925, 1.6 * 0.85)),
    ):
        found = host_beside(host, replace(exact(lambda *_: 5.0, threads=threads), together=(together(2, work),)))
        assert found.capacity == pytest.approx(expected), why
        assert found.processor_count == host.processor_count, "more threads are no more processors"
        if threads == 1 and host is HOST:
            assert found.capacity_spread == pytest.approx((0, np.log(1 / 0.81) / (2 * 1.96)))
    assert host_beside(HOST, exact(lambda *_: 5.0)) is HOST
