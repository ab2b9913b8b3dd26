"""Sessions that run at once: how much they slow each other, and what a prediction makes of it."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.prediction.simulation.services import exact
from tests.prediction.simulation.test_intervals import HOST
from tests.tiny_artifact import linear_artifact
from workbench.prediction.together import SideBySide, host_beside, side_by_side
from workbench.targets import open_target
from workbench.targets.base import Array, Feeds
from workbench.values.candidate import Candidate
from workbench.values.measurement import Estimate, Together
from workbench.values.service import HostCosts


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


def test_one_session_alone_opens_no_other() -> None:
    with side_by_side(Asleep(), lambda: pytest.fail("opened"), 1, [{}], threads=1) as alone:
        alone.time_rounds()

    assert isinstance(alone, SideBySide)
    assert alone.found() == ()


def together(sessions: int, work: float) -> Together:
    return Together(sessions=sessions, work=Estimate(value=work, low=work * 0.9, high=work / 0.9), rounds=6)


def test_what_the_artifact_found_replaces_what_the_matrix_product_found() -> None:
    curve = replace(exact(lambda *_: 5.0), together=(together(2, 1.5),))

    found = host_beside(HOST, curve)

    assert found.capacity == pytest.approx((1.0, 1.5))
    assert found.capacity_spread[0] == 0
    assert found.capacity_spread[1] == pytest.approx(np.log(1 / 0.81) / (2 * 1.96))


def test_more_sessions_than_were_timed_share_as_the_matrix_product_says() -> None:
    host = HostCosts(request_ms=0.1, capacity=(1.0, 2.0, 3.0, 4.0), origin="a test")
    curve = replace(exact(lambda *_: 5.0), together=(together(2, 1.5),))

    assert host_beside(host, curve).capacity == pytest.approx((1.0, 1.5, 2.25, 3.0))


def test_calls_of_two_threads_count_for_two() -> None:
    host = HostCosts(request_ms=0.1, capacity=(1.0, 1.8, 2.6, 3.2), origin="a test")
    curve = replace(exact(lambda *_: 5.0, threads=2), together=(together(2, 1.5),))

    assert host_beside(host, curve).capacity == pytest.approx((1.0, 1.8, 2.6 * (1 + 1.5 * 1.8 / 3.2) / 2, 1.5 * 1.8))


def test_a_host_that_is_told_of_more_threads_than_it_has_processors_keeps_its_number_of_processors() -> None:
    curve = replace(exact(lambda *_: 5.0, threads=2), together=(together(2, 0.85),))

    found = host_beside(HOST, curve)

    assert len(found.capacity) == 4
    assert found.processor_count == HOST.processor_count == 2


def test_too_many_threads_may_do_less_together() -> None:
    curve = replace(exact(lambda *_: 5.0, threads=2), together=(together(2, 0.85),))

    assert host_beside(HOST, curve).capacity == pytest.approx((1.0, 1.6, 1.6 * 0.925, 1.6 * 0.85))


def test_a_curve_without_it_leaves_the_host_as_it_is() -> None:
    assert host_beside(HOST, exact(lambda *_: 5.0)) is HOST
