"""Timing on a real runtime; the statistics on arrays whose truth is known. No test asks how fast this machine is."""

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny_artifact import linear_artifact
from workbench.evaluation.measure import (
    RawTimes,
    TimingProtocol,
    _scattered,
    device_lock,
    load_raw_times,
    save_raw_times,
    speedup,
    time_against_baseline,
)
from workbench.targets import open_target
from workbench.targets.base import Array, Feeds, Session
from workbench.values.candidate import Candidate
from workbench.values.errors import MeasureError, ToolchainError

QUICK = TimingProtocol(rounds=6, minimum_warmup=5, maximum_warmup=20, timeout_s=60)


def feeds_of(*lengths: int, batch: int = 2) -> list[Feeds]:
    return [{"x": np.ones((batch, length, 32), dtype=np.float32)} for length in lengths]


class Witness:
    """A session that writes down who was called with which length."""

    def __init__(self, name: str, calls: list[tuple[str, int]]) -> None:
        self.name, self.calls = name, calls

    def run(self, feeds: Feeds) -> dict[str, Array]:
        self.calls.append((self.name, feeds["x"].shape[1]))
        return {}

    def close(self) -> None:
        pass


def raw_times(candidate_ms: Array, baseline_ms: Array) -> RawTimes:
    """Raw times of arrays [rounds, calls per round], every call over a feed of its own."""
    rounds, calls = candidate_ms.shape
    return RawTimes(
        candidate_ms=candidate_ms.astype(np.float32).ravel(),
        baseline_ms=baseline_ms.astype(np.float32).ravel(),
        feed=np.arange(rounds * calls, dtype=np.int32),
        round=np.repeat(np.arange(rounds, dtype=np.int32), calls),
    )


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Session]]:
    folder = tmp_path_factory.mktemp("linear")
    artifact = linear_artifact(folder)
    target = open_target("onnxruntime")
    opened = [target.open(artifact, folder / "compiled", Candidate()) for _ in range(2)]
    yield opened[0], opened[1]
    for session in opened:
        session.close()


# --- a real session ---------------------------------------------------------------------------------------------


def test_every_number_of_a_latency_follows_from_the_raw_times(sessions: tuple[Session, Session]) -> None:
    latency, raw = time_against_baseline(*sessions, feeds_of(4, 8, 16), 2, QUICK, calls=60)

    assert latency.samples == len(raw.candidate_ms) == 60
    assert latency.p50_ms.value == pytest.approx(float(np.median(raw.candidate_ms)))
    assert latency.p50_ms.low <= latency.p50_ms.value <= latency.p50_ms.high
    assert latency.p50_ms.value <= latency.p95_ms
    assert latency.baseline_p50_ms == pytest.approx(float(np.median(raw.baseline_ms)))
    assert latency.throughput_per_s == pytest.approx(1000 * 2 * 60 / raw.candidate_ms.astype(float).sum())
    assert latency.speedup == speedup(raw, seed=0)
    assert (latency.batch, latency.drift) == (2, 1.0)
    assert latency.verdict.startswith("quiet: " if latency.quiet else "noisy: ")


@pytest.mark.parametrize(("calls", "has_p99"), [(999, True), (960, False), (1000, True)])
def test_p99_is_absent_below_a_thousand_samples(sessions: tuple[Session, Session], calls: int, has_p99: bool) -> None:
    protocol = TimingProtocol(rounds=10, minimum_warmup=5, maximum_warmup=20)

    latency, raw = time_against_baseline(*sessions, feeds_of(2), 2, protocol, calls=calls)

    assert len(raw.feed) >= calls
    assert (latency.p99_ms is not None) == has_p99 == (latency.samples >= 1000)


def test_the_protocol_says_how_many_calls_unless_told_otherwise(sessions: tuple[Session, Session]) -> None:
    protocol = TimingProtocol(calls=24, rounds=4, minimum_warmup=5, maximum_warmup=20)

    assert time_against_baseline(*sessions, feeds_of(2), 2, protocol)[0].samples == 24


def test_the_baseline_can_be_timed_against_itself(sessions: tuple[Session, Session]) -> None:
    latency, _ = time_against_baseline(sessions[0], sessions[0], feeds_of(4, 8), 2, QUICK, calls=48)

    assert latency.speedup.low <= latency.speedup.value <= latency.speedup.high


def test_feeds_that_the_model_refuses_are_the_candidates_error(sessions: tuple[Session, Session]) -> None:
    with pytest.raises(MeasureError, match="z"):
        time_against_baseline(*sessions, [{"z": np.ones((2, 4, 32), dtype=np.float32)}], 2, QUICK, calls=12)


# --- the order of calls -----------------------------------------------------------------------------------------


def test_blocks_alternate_so_that_a_steady_drift_costs_both_sessions_the_same() -> None:
    calls: list[tuple[str, int]] = []
    protocol = TimingProtocol(rounds=2, minimum_warmup=1, maximum_warmup=1)

    time_against_baseline(Witness("A", calls), Witness("B", calls), feeds_of(5), 2, protocol, calls=12)

    # One warm-up call each, then blocks of three; a session that takes over makes one untimed call before.
    assert "".join(name for name, _ in calls) == "A" + "B" + "AAAABBBBBBBAAAA" + "BBBBAAAAAAABBBB"


def test_both_sessions_meet_the_same_feeds_in_the_same_rounds() -> None:
    calls: list[tuple[str, int]] = []
    feeds = feeds_of(*range(1, 12))

    _, raw = time_against_baseline(Witness("A", calls), Witness("B", calls), feeds, 2, QUICK, calls=36)

    assert {length for name, length in calls if name == "A"} == {length for name, length in calls if name == "B"}
    assert raw.feed[:6].tolist() == [*raw.feed[:3], *raw.feed[:3]]
    assert set(raw.feed.tolist()) == set(range(11))


def test_each_session_is_fed_the_same_batches_as_it_pads_them() -> None:
    calls: list[tuple[str, int]] = []
    lengths = (4, 8, 16, 12, 20, 6)

    _, raw = time_against_baseline(
        Witness("A", calls),
        Witness("B", calls),
        feeds_of(*lengths),
        2,
        QUICK,
        calls=36,
        baseline_feeds=feeds_of(*(length + 100 for length in lengths)),
    )

    assert {length for name, length in calls if name == "A"} == set(lengths)
    assert {length for name, length in calls if name == "B"} == {length + 100 for length in lengths}
    assert set(raw.feed) == set(range(len(lengths)))


def test_every_shape_is_warmed_up_even_beyond_the_first_window() -> None:
    calls: list[tuple[str, int]] = []
    protocol = TimingProtocol(rounds=2, minimum_warmup=40, maximum_warmup=60)

    latency, _ = time_against_baseline(
        Witness("A", calls), Witness("B", calls), feeds_of(*range(1, 31)), 2, protocol, calls=4
    )

    assert {length for _, length in calls[: latency.warmup_calls]} == set(range(1, 31))
    assert 40 <= latency.warmup_calls <= 60


@given(st.lists(st.integers(1, 64), min_size=1, max_size=70))
@settings(max_examples=60, deadline=None)
def test_feeds_are_visited_once_each(lengths: list[int]) -> None:
    assert sorted(_scattered(feeds_of(*lengths))) == list(range(len(lengths)))


@given(st.integers(0, 56))
def test_any_eight_neighbours_hold_short_and_long_feeds(start: int) -> None:
    lengths = np.random.default_rng(0).permutation(np.arange(1, 65))

    near = lengths[_scattered(feeds_of(*lengths))][start : start + 8]

    assert near.min() <= 16
    assert near.max() >= 49
    assert 24 <= near.mean() <= 41


def test_collection_is_paused_while_timing_and_comes_back_after_an_error() -> None:
    class Failing(Witness):
        def run(self, feeds: Feeds) -> dict[str, Array]:
            assert not gc.isenabled()
            raise MeasureError("no device")

    with pytest.raises(MeasureError, match="no device"):
        time_against_baseline(Failing("A", []), Witness("B", []), feeds_of(4), 2, QUICK, calls=12)

    assert gc.isenabled()


def test_running_out_of_time_is_transient_and_says_what_to_do(sessions: tuple[Session, Session]) -> None:
    protocol = TimingProtocol(timeout_s=1e-6)

    with pytest.raises(MeasureError, match=r"1000 calls took longer than 1e-06 s\. Time fewer") as caught:
        time_against_baseline(*sessions, feeds_of(4), 2, protocol)

    assert caught.value.transient


@pytest.mark.parametrize(
    "wrong", [{"calls": 0}, {"rounds": 1}, {"timeout_s": -1.0}, {"minimum_warmup": 9, "maximum_warmup": 3}]
)
def test_an_impossible_protocol_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TimingProtocol(**wrong)  # type: ignore[arg-type]  # timeout_s takes the one float among them


# --- the ratio --------------------------------------------------------------------------------------------------


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


def test_the_interval_of_the_speedup_holds_one_for_equal_models_as_often_as_it_says() -> None:
    held = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        disturbed = np.exp(generator.normal(0, 0.05, (25, 1)))
        times = [3.0 * disturbed * np.exp(generator.normal(0, 0.03, (25, 4))) for _ in range(2)]
        found = speedup(raw_times(times[0], times[1]), seed=0)
        held += found.low <= 1.0 <= found.high

    assert held / 200 >= 0.91


# --- raw times on disk ------------------------------------------------------------------------------------------


def test_raw_times_come_back_as_they_were(tmp_path: Path) -> None:
    raw = raw_times(np.full((3, 4), 1.25), np.full((3, 4), 2.5))

    save_raw_times(raw, tmp_path / "times.npz")
    found = load_raw_times(tmp_path / "times.npz")

    for name in ("candidate_ms", "baseline_ms", "feed", "round"):
        assert getattr(found, name).dtype == getattr(raw, name).dtype
        assert np.array_equal(getattr(found, name), getattr(raw, name))
    assert [p.name for p in tmp_path.iterdir()] == ["times.npz"]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "missing", "other arrays", "pickled"])
def test_damaged_raw_times_are_refused_and_can_be_taken_again(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "times.npz"
    save_raw_times(raw_times(np.full((3, 40), 1.25), np.random.default_rng(0).random((3, 40)) + 1), file)
    payload = file.read_bytes()
    match damage:
        case "truncated":
            file.write_bytes(payload[: len(payload) // 2])
        case "flipped":
            middle = payload.index(b"baseline_ms") + 100
            file.write_bytes(payload[:middle] + bytes([payload[middle] ^ 255]) + payload[middle + 1 :])
        case "empty":
            file.write_bytes(b"")
        case "missing":
            file.unlink()
        case "other arrays":
            np.savez(file, times=np.ones(3))
        case "pickled":
            np.savez(file, candidate_ms=np.array([{}], dtype=object))

    with pytest.raises(MeasureError, match=r"times.npz: not a file of raw times .* Time the candidate again") as caught:
        load_raw_times(file)

    assert caught.value.transient


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_a_time_that_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not a positive number"):
        raw_times(np.full((2, 2), value), np.ones((2, 2)))


def test_rounds_of_different_sizes_are_refused() -> None:
    ones = np.ones(3, dtype=np.float32)
    with pytest.raises(ValueError, match="every round"):
        RawTimes(candidate_ms=ones, baseline_ms=ones, feed=np.zeros(3, np.int32), round=np.array([0, 0, 1], np.int32))


def test_a_full_or_missing_disk_is_the_machines_error_and_leaves_nothing(tmp_path: Path) -> None:
    raw = raw_times(np.ones((2, 2)), np.ones((2, 2)))

    with pytest.raises(ToolchainError, match="raw times cannot be written"):
        save_raw_times(raw, tmp_path / "absent" / "times.npz")


# --- the device's lock ------------------------------------------------------------------------------------------

HOLD = """
import sys, pathlib
from workbench.evaluation.measure import device_lock
with device_lock(pathlib.Path(sys.argv[1]), wait_s=0, report=print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it is ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "device.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_sweep_waits_says_for_whom_and_gives_up_in_time(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    said: list[str] = []

    with (
        pytest.raises(ToolchainError, match=f"still in use by process {holder.pid} .* after 0.3 s"),
        device_lock(tmp_path / "device.lock", wait_s=0.3, report=said.append),
    ):
        pytest.fail("entered a lock that another process holds")

    assert len(said) == 1
    assert f"process {holder.pid}" in said[0]


def test_kill_minus_nine_frees_the_device(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    with device_lock(tmp_path / "device.lock", wait_s=0, report=pytest.fail):
        pass


def test_the_lock_is_free_again_after_an_error_inside(tmp_path: Path) -> None:
    with (
        pytest.raises(MeasureError, match="inside"),
        device_lock(tmp_path / "device.lock", wait_s=0, report=pytest.fail),
    ):
        raise MeasureError("inside")

    with device_lock(tmp_path / "device.lock", wait_s=0, report=pytest.fail):
        pass


def test_a_lock_that_cannot_be_made_is_the_machines_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with (
        pytest.raises(ToolchainError, match="lock file cannot be opened"),
        device_lock(tmp_path / "file" / "device.lock", wait_s=0, report=pytest.fail),
    ):
        pytest.fail("entered without a lock file")
