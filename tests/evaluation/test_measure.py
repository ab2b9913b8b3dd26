"""Candidate and baseline timed side by side on a real runtime. The speed-up, on times whose truth is known."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.tiny_artifact import linear_artifact
from workbench.evaluation.measure import RawTimes, TimingProtocol, speedup, time_against_baseline
from workbench.targets import open_target
from workbench.targets.base import Array, Feeds, Session
from workbench.values.candidate import Candidate
from workbench.values.errors import MeasureError

QUICK = TimingProtocol(rounds=6, minimum_warmup=5, maximum_warmup=20, timeout_s=60)


def feeds_of(*lengths: int, batch: int = 2) -> list[Feeds]:
    return [{"x": np.ones((batch, length, 32), dtype=np.float32)} for length in lengths]


def witness(name: str, calls: list[tuple[str, int]]) -> Any:
    """A session that writes down who was called with which length."""
    return SimpleNamespace(run=lambda feeds: calls.append((name, feeds["x"].shape[1])) or {})


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Session]]:
    folder = tmp_path_factory.mktemp("linear")
    artifact = linear_artifact(folder)
    target = open_target("onnxruntime")
    opened = [target.open(artifact, folder / "compiled", Candidate(target="onnxruntime")) for _ in range(2)]
    yield opened[0], opened[1]
    for session in opened:
        session.close()


def test_p99_is_absent_below_a_thousand_samples(sessions: tuple[Session, Session]) -> None:
    protocol = TimingProtocol(calls=24, rounds=10, minimum_warmup=5, maximum_warmup=20)
    for calls, has_p99 in ((999, True), (960, False), (1000, True)):
        latency, raw = time_against_baseline(*sessions, feeds_of(2), 2, protocol, calls=calls)
        assert len(raw.feed) >= calls
        assert (latency.p99_ms is not None) == has_p99 == (latency.samples >= 1000)
        assert latency.p50_ms.low <= latency.p50_ms.value <= latency.p95_ms
        assert latency.throughput_per_s == pytest.approx(2000 * len(raw.feed) / raw.candidate_ms.astype(float).sum())
        assert latency.verdict.startswith("quiet: " if latency.quiet else "noisy: ")


def test_blocks_alternate_over_the_same_feeds_so_that_a_steady_drift_costs_both_sessions_the_same() -> None:
    calls: list[tuple[str, int]] = []
    protocol = TimingProtocol(rounds=2, minimum_warmup=1, maximum_warmup=1)
    time_against_baseline(witness("A", calls), witness("B", calls), feeds_of(5), 2, protocol, calls=12)
    # One warm-up call each, then blocks of three; a session that takes over makes one untimed call before.
    assert "".join(name for name, _ in calls) == "A" + "B" + "AAAABBBBBBBAAAA" + "BBBBAAAAAAABBBB"

    calls.clear()
    lengths = range(1, 12)
    sessions, padded = (witness("A", calls), witness("B", calls)), feeds_of(*(length + 100 for length in lengths))
    _, raw = time_against_baseline(*sessions, feeds_of(*lengths), 2, QUICK, calls=36, baseline_feeds=padded)
    assert {length for name, length in calls if name == "A"} == set(lengths)
    assert {length for name, length in calls if name == "B"} == {length + 100 for length in lengths}
    assert raw.feed[:6].tolist() == [*raw.feed[:3], *raw.feed[:3]]
    assert set(raw.feed.tolist()) == set(range(11))


def test_running_out_of_time_is_transient_and_says_what_to_do(sessions: tuple[Session, Session]) -> None:
    protocol = TimingProtocol(timeout_s=1e-6)

    with pytest.raises(MeasureError, match=r"1000 calls took longer than 1e-06 s\. Time fewer") as caught:
        time_against_baseline(*sessions, feeds_of(4), 2, protocol)

    assert caught.value.transient


def raw_times(candidate_ms: Array, baseline_ms: Array) -> RawTimes:
    """Raw times of arrays [rounds, calls per round], every call over a feed of its own."""
    rounds, calls = candidate_ms.shape
    return RawTimes(
        candidate_ms=candidate_ms.astype(np.float32).ravel(),
        baseline_ms=baseline_ms.astype(np.float32).ravel(),
        feed=np.arange(rounds * calls, dtype=np.int32),
        round=np.repeat(np.arange(rounds, dtype=np.int32), calls),
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_speedup_survives_drift_and_bursts_that_swamp_absolute_times(seed: int) -> None:
    generator = np.random.default_rng(seed)
    machine = np.linspace(1.0, 2.0, 25)[:, None] * np.exp(generator.normal(0, 0.02, (25, 40)))
    candidate = 2.0 * machine * np.exp(generator.normal(0, 0.02, (25, 40)))
    baseline = 3.0 * machine * np.exp(generator.normal(0, 0.02, (25, 40)))
    candidate[generator.random((25, 40)) < 0.02] *= 10
    candidate[7] *= 3

    found = speedup(raw_times(candidate, baseline), seed=0)

    assert found.value == pytest.approx(1.5, rel=0.006)
    assert 0.005 < found.high - found.low < 0.03
