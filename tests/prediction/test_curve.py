"""Batch curves of a real session; what follows from the calls, on a session whose times are known."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.evaluations import latency
from tests.session_clock import Clock
from tests.tiny_artifact import linear_artifact
from workbench.prediction import curve as batch_curve
from workbench.prediction.curve import (
    FEWEST_CALLS,
    Yardstick,
    measure_curve,
    modelled_curve,
    startup_s,
    with_agreed_drift,
)
from workbench.targets import open_target
from workbench.targets.base import Array, Feeds, Session
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import decode, encode
from workbench.values.errors import MeasureError
from workbench.values.measurement import BatchCurve
from workbench.values.modelled_times.statement import CallCosts, TimingModel, Work

Shape = tuple[int, int]


def feeds_of(batch: int, length: int) -> list[Feeds]:
    return [{"x": np.full((batch, length, 32), value, dtype=np.float32)} for value in (0.5, 1.0)]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("linear")
    artifact = linear_artifact(folder)
    opened = open_target("onnxruntime").open(artifact, folder / "compiled", Candidate(target="onnxruntime"))
    yield opened
    opened.close()


CLOCK = Clock()


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are timed by the clock of the sessions of this file."""
    monkeypatch.setattr(batch_curve, "time", CLOCK)


class Paced:
    """A session whose calls take as long as they are told by `CLOCK`, and which writes down their shapes."""

    def __init__(self, ms: float = 0.0, *, of: dict[Shape, float] | None = None) -> None:
        self.ms, self.of = ms, of or {}
        self.calls: list[Shape] = []

    def run(self, feeds: Feeds) -> dict[str, Array]:
        shape = (feeds["x"].shape[0], feeds["x"].shape[1])
        self.calls.append(shape)
        CLOCK.call(self.of.get(shape, self.ms))
        return {}

    def close(self) -> None:
        pass


def measured(session: Session, batches: Sequence[int], lengths: Sequence[int], budget_s: float = 0.2) -> BatchCurve:
    return measure_curve(session, batches, lengths, feeds_of, threads=1, stepped=False, budget_s=budget_s)


# --- measured ---------------------------------------------------------------------------------------------------


def test_a_curve_of_a_real_session_holds_every_point_sorted_by_length_then_batch(session: Session) -> None:
    curve = measured(session, [16, 1, 4], [32, 8])

    assert [(p.length, p.batch) for p in curve.points] == [(8, 1), (8, 4), (8, 16), (32, 1), (32, 4), (32, 16)]
    assert (curve.batches, curve.lengths) == ((1, 4, 16), (8, 32))
    assert (curve.clock, curve.threads, curve.stepped, curve.drift) == ("host", 1, False, 1.0)
    for point in curve.points:
        assert point.calls >= FEWEST_CALLS
        assert 0 < point.p50_ms.low <= point.p50_ms.value <= point.p50_ms.high
        assert list(point.quantiles_ms) == sorted(point.quantiles_ms)
        assert point.quantiles_ms[0] <= point.p50_ms.value <= point.quantiles_ms[-1]
        assert point.quantiles_ms[10] == pytest.approx(point.p50_ms.value)
    assert curve.verdict.startswith("quiet: " if curve.quiet else "noisy: ")
    assert decode(BatchCurve, encode(curve)) == curve


@pytest.mark.usefixtures("paced")
def test_drift_is_the_baselines_median_now_over_the_first_one() -> None:
    baseline, seen = Paced(0.5), []

    def first_ms(now_ms: float) -> float:
        seen.append(now_ms)
        return now_ms / 2

    curve = measure_curve(
        Paced(0.2),
        [1],
        [8],
        feeds_of,
        threads=1,
        stepped=False,
        yardstick=Yardstick(session=baseline, batch=1, length=8, feeds=feeds_of(1, 8), first_ms=first_ms),
        budget_s=0.02,
    )

    assert curve.drift == pytest.approx(2.0)
    assert seen[0] == pytest.approx(0.5, rel=0.02)
    assert len(baseline.calls) >= FEWEST_CALLS


def test_a_slow_baseline_counts_as_far_as_both_looks_at_it_agree() -> None:
    curve = BatchCurve(points=(), stepped=False, threads=1, clock="host", drift=1.2, speed_spread=0.2)
    for own, other, agreed in ((2.5, 1.2, 1.2), (1.1, 1.3, 1.1), (0.9, 0.8, 0.9), (1.3, 0.9, 1.0)):
        found = with_agreed_drift(replace(curve, drift=own, speed_spread=1.0), latency(1.0, 1.0, drift=other))
        assert found.drift == pytest.approx(agreed)
        assert found.speed_spread > abs(math.log(own / other)) / 2
    same = with_agreed_drift(curve, latency(1.0, 1.0, drift=1.2))
    assert (same.drift, same.speed_spread) == pytest.approx((1.2, 0.2))


@pytest.mark.usefixtures("paced")
def test_a_machine_that_slows_down_meanwhile_is_called_noisy() -> None:
    class Slowing(Paced):
        def run(self, feeds: Feeds) -> dict[str, Array]:
            self.ms = 0.5 + len(self.calls) / 60
            return super().run(feeds)

    curve = measured(Slowing(), [1, 2], [8], budget_s=0.01)

    assert not curve.quiet
    assert "calls slowed by" in curve.verdict


@pytest.mark.usefixtures("paced")
def test_a_small_call_follows_small_ones_after_a_large_one_took_its_caches() -> None:
    class Cached(Paced):
        """A call after one of batch 4 takes 3 ms longer, and brings everything back."""

        def run(self, feeds: Feeds) -> dict[str, Array]:
            self.ms = 1.0 + 3.0 * (self.calls[-1:] == [(4, 8)] and len(feeds["x"]) < 4)
            return super().run(feeds)

    curve = measured(Cached(), [1, 4], [8])
    assert [point.p50_ms.value for point in curve.points] == pytest.approx([1.0, 1.0], rel=0.01)


# --- modelled ---------------------------------------------------------------------------------------------------


class Modelled(Paced):
    """A device's session that states 2 ms and 0.1 ms for each row and position."""

    def costs(self) -> tuple[TimingModel, CallCosts]:
        batch, length = self.calls[-1]
        return PRICED, CallCosts(works=(Work(count=1, amounts=(("call", 1.0), ("position", float(batch * length)))),))


PRICED = TimingModel(name="a card", prices=(("call", 2000.0), ("position", 100.0)), unknowns=())


def test_a_modelled_curve_has_what_one_call_of_each_shape_is_stated_to_cost() -> None:
    session = Modelled()

    curve = modelled_curve(session, [4, 1], [16, 8], feeds_of)

    assert session.calls == [(1, 8), (4, 8), (1, 16), (4, 16)]
    assert [p.p50_ms.value for p in curve.points] == pytest.approx([2.8, 5.2, 3.6, 8.4])
    assert all(p.quantiles_ms == (p.mean_ms, p.mean_ms) for p in curve.points)
    assert (curve.clock, curve.threads, curve.stepped, curve.quiet) == ("modelled", 0, True, True)
    assert "not measured" in curve.verdict
    with pytest.raises(MeasureError, match="states no costs"):
        modelled_curve(Paced(1.0), [1], [8], feeds_of)


# --- start-up ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("paced")
def test_startup_counts_opening_and_the_first_answer_to_every_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Session] = []
    closed: list[Session] = []

    class Opened(Paced):
        def close(self) -> None:
            closed.append(self)

    def open_session() -> Session:
        CLOCK.sleep(0.01)
        opened.append(Opened(5.0))
        return opened[-1]

    seconds = startup_s(open_session, [*feeds_of(1, 8), *feeds_of(4, 8)])

    assert seconds == pytest.approx(0.03, rel=0.02)
    assert len(opened) == 3
    assert closed == opened
    assert isinstance(opened[0], Paced)
    assert opened[0].calls == [(1, 8), (1, 8), (4, 8), (4, 8)]
    opened.clear()
    monkeypatch.setattr(batch_curve, "_QUICK_STARTUP_S", 0.001)
    startup_s(open_session, feeds_of(1, 8))
    assert len(opened) == 1, "a slow one is timed once"
