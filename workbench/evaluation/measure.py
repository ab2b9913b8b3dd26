"""Latency against the float baseline, timed side by side in one process, with an honest word about the noise.

A machine changes its speed while it works, often by more than the candidates differ. So baseline and candidate are
timed in short alternating blocks over the same feeds, the ratio is taken within each round, and its interval comes
from resampling rounds. Peak memory needs a process of its own: `workbench.evaluation.memory`.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workbench.evaluation.noise import read_counters, steadiness, verdict
from workbench.targets.base import DeviceSession, Feeds, Session
from workbench.values.errors import MeasureError, ToolchainError
from workbench.values.results import Estimate, Latency
from workbench.values.significance import bootstrap_rounds, midmean
from workbench.values.system.files import lock_file, temporary_beside

Times = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int32]

P99_SAMPLES = 1000
"""Fewest timed calls that give a P99: ten of them lie above it. Fewer give no P99 rather than a guess."""
_SOMEBODY = "another process"
_WINDOW_CALLS = 5
"""Calls of one warm-up window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingProtocol:
    """How one candidate is timed. In all, `warm-up + calls` calls of each session, and one untimed call per block.

    Each of the `rounds` rounds times one slice of the feeds four times, A B B A with A the candidate, and B A A B in
    every other round: a machine that slows steadily through a round costs both the same. A block is the slice called
    back to back by one session, after one untimed call that brings its weights back into the caches.

    Attributes:
        calls: timed calls of each session in a full measurement, rounded up to whole rounds.
        short_calls: the same for the gate before it.
        minimum_warmup, maximum_warmup: untimed calls of each session before the first round; they end between the two
            when the last three windows of calls took the same time within 10 %, or at the maximum.
        rounds: how many rounds the calls are divided into; fewer calls make shorter blocks, not fewer rounds, as the
            interval of the ratio rests on their number.
        seed: of the bootstrap. The order of the feeds needs none.
        timeout_s: for warm-up and timing together; looked at between calls, so a call that never returns is not cut.
    """

    calls: int = 1000
    short_calls: int = 100
    minimum_warmup: int = 10
    maximum_warmup: int = 200
    rounds: int = 25
    seed: int = 0
    timeout_s: float = 1800.0

    def __post_init__(self) -> None:
        for name in ("calls", "short_calls", "minimum_warmup", "timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.rounds < 2:
            raise ValueError(f"rounds must be at least 2, not {self.rounds}: an interval needs more than one")
        if self.maximum_warmup < self.minimum_warmup:
            raise ValueError(f"maximum_warmup {self.maximum_warmup} is below minimum_warmup {self.minimum_warmup}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTimes:
    """Every timed call. Element i of the four arrays is one call of each session, over the same feed and round.

    Attributes:
        candidate_ms, baseline_ms: float32 [samples].
        feed: int32 [samples], index into the feeds that were given.
        round: int32 [samples], ascending; every round has as many samples.
    """

    candidate_ms: Times
    baseline_ms: Times
    feed: Indices
    round: Indices

    def __post_init__(self) -> None:
        shapes = {array.shape for array in (self.candidate_ms, self.baseline_ms, self.feed, self.round)}
        if len(shapes) != 1 or self.round.ndim != 1 or len(self.round) == 0:
            raise ValueError(f"raw times must be four equal arrays [samples], got shapes {sorted(shapes)}")
        rounds = np.unique(self.round)
        if not np.array_equal(self.round, np.repeat(rounds, len(self.round) // len(rounds))):
            raise ValueError("every round must hold as many samples, in order")
        times = np.concatenate([self.candidate_ms, self.baseline_ms])
        if not (np.isfinite(times).all() and (times > 0).all()):
            raise ValueError("a time is not a positive number")

    def by_round(self, values: npt.NDArray[np.number]) -> npt.NDArray[np.float64]:
        """One value per sample as float64 [rounds, samples per round]."""
        return values.astype(np.float64).reshape(len(np.unique(self.round)), -1)


def time_against_baseline(
    candidate: Session,
    baseline: Session,
    feeds: Sequence[Feeds],
    batch: int,
    protocol: TimingProtocol,
    *,
    calls: int | None = None,
    baseline_feeds: Sequence[Feeds] | None = None,
) -> tuple[Latency, RawTimes]:
    """Time single calls of the candidate, interleaved with the baseline over the same samples.

    Percentiles are over all timed calls, whatever their lengths. The interval of the P50 comes from resampling rounds,
    which varies the mix of lengths a little too: it is wide where half of the calls lie on each side of a gap between
    two bins. Throughput is that of calls back to back: samples over the sum of the call times.

    The feeds are visited by their size in a fixed scattered order, so that every block holds short and long ones, and
    every candidate of a sweep meets the same feeds. Garbage collection is off inside a block. Take `device_lock`
    around the call; hand in the same session twice to time the baseline itself.

    Args:
        feeds: distinct batches of `batch` samples each.
        calls: timed calls of each session; `protocol.calls` when None.
        baseline_feeds: the same batches as the baseline pads them; None where it pads them alike.

    Raises:
        MeasureError: a call failed, or (transient) the protocol's time is up.
    """
    if not feeds:
        raise ValueError("no feeds to time")
    wanted = protocol.calls if calls is None else calls
    block = math.ceil(wanted / (2 * protocol.rounds))
    theirs_fed = feeds if baseline_feeds is None else baseline_feeds
    order = _scattered(_side_by_side(feeds, theirs_fed))
    deadline = _Deadline(protocol.timeout_s, wanted)
    warmup_calls, settled = _warm_up(candidate, feeds, order, protocol, deadline)
    if baseline is not candidate:
        settled = _warm_up(baseline, theirs_fed, order, protocol, deadline)[1] and settled
    ours, theirs, visited = [], [], []
    before = read_counters()
    for number in range(protocol.rounds):
        part = [order[(number * block + i) % len(order)] for i in range(block)]
        mine = (candidate, [feeds[i] for i in part])
        other = (baseline, [theirs_fed[i] for i in part])
        if number % 2 == 0:
            candidate_ns, baseline_ns = _time_round(mine, other, deadline)
        else:
            baseline_ns, candidate_ns = _time_round(other, mine, deadline)
        ours.append(candidate_ns)
        theirs.append(baseline_ns)
        visited.append(part + part)
    after = read_counters()
    raw = RawTimes(
        candidate_ms=(np.concatenate(ours) / 1e6).astype(np.float32),
        baseline_ms=(np.concatenate(theirs) / 1e6).astype(np.float32),
        feed=np.concatenate(visited).astype(np.int32),
        round=np.repeat(np.arange(protocol.rounds, dtype=np.int32), 2 * block),
    )
    work = raw.by_round(_work_of(theirs_fed)[raw.feed]).astype(np.int64)
    quiet, words = verdict(steadiness(raw.by_round(raw.baseline_ms), work), before, after, settled=settled)
    return _latency(raw, batch, warmup_calls, quiet, words, protocol.seed), raw


def time_modelled(
    candidate: Session,
    baseline: Session,
    feeds: Sequence[Feeds],
    batch: int,
    protocol: TimingProtocol,
    *,
    calls: int | None = None,
    names: tuple[str, str] = ("candidate", "baseline"),
    known: dict[tuple[str, str], float] | None = None,
    baseline_feeds: Sequence[Feeds] | None = None,
) -> tuple[Latency, RawTimes]:
    """The same figures by an emulated device's own clock: copies and execution, nothing of the host.

    Such a clock gives equal feeds equal times, so one call for each shape of the feeds stands for all of them; the
    times are laid out in the rounds that a measurement would have. Nothing here was measured, and `Latency.clock`
    says so.

    Args:
        names: what the two sessions hold; under these names their times are known.
        known: times by name and shape that earlier calls found; what is new is added.
        baseline_feeds: the same batches as the baseline pads them; None where it pads them alike.

    Raises:
        MeasureError: a call failed, or a session has no device clock.
    """
    if not feeds:
        raise ValueError("no feeds to time")
    wanted = protocol.calls if calls is None else calls
    block = math.ceil(wanted / (2 * protocol.rounds))
    theirs_fed = feeds if baseline_feeds is None else baseline_feeds
    order = _scattered(_side_by_side(feeds, theirs_fed))
    shapes, their_shapes = _work_of(feeds), _work_of(theirs_fed)
    times = {} if known is None else known
    ours = _modelled_ms(candidate, names[0], feeds, shapes, times)
    theirs = _modelled_ms(baseline, names[1], theirs_fed, their_shapes, times)
    visited = [order[i % len(order)] for i in range(protocol.rounds * block)]
    twice = np.array(visited, dtype=np.int32).reshape(protocol.rounds, block).repeat(2, axis=0).reshape(-1)
    raw = RawTimes(
        candidate_ms=ours[shapes[twice]],
        baseline_ms=theirs[their_shapes[twice]],
        feed=twice,
        round=np.repeat(np.arange(protocol.rounds, dtype=np.int32), 2 * block),
    )
    words = "modelled, not measured: the emulated device's clock has no noise"
    return replace(_latency(raw, batch, 0, True, words, protocol.seed), clock="modelled"), raw


def _modelled_ms(
    session: Session,
    name: str,
    feeds: Sequence[Feeds],
    shapes: npt.NDArray[np.int64],
    known: dict[tuple[str, str], float],
) -> Times:
    """[shapes] milliseconds of one call of each shape, in the order of their numbers."""
    if not isinstance(session, DeviceSession):
        raise MeasureError(f"{type(session).__name__} has no clock of its own, so its time cannot be modelled.")
    times = np.empty(int(shapes.max()) + 1, dtype=np.float32)
    for shape in range(len(times)):
        feed = feeds[int(np.argmax(shapes == shape))]
        key = (name, repr(sorted((port, array.shape) for port, array in feed.items())))
        if key not in known:
            session.run(feed)
            known[key] = session.times().total_ms
        times[shape] = known[key]
    return times


def speedup(raw: RawTimes, *, seed: int) -> Estimate:
    """Baseline time over candidate time: the geometric midmean over rounds of the midmean over paired calls.

    The interval resamples rounds (`significance.bootstrap_rounds`), so it speaks of this machine and these feeds.
    """
    ratios = raw.by_round(np.log(raw.baseline_ms.astype(np.float64) / raw.candidate_ms))
    log_ratio = bootstrap_rounds(midmean(ratios)[:, None], midmean, seed=seed)
    return Estimate(
        value=math.exp(log_ratio.value),
        low=math.exp(log_ratio.low),
        high=math.exp(log_ratio.high),
        confidence=log_ratio.confidence,
    )


def save_raw_times(raw: RawTimes, path: Path) -> None:
    """Write the four arrays to an .npz file, whole or not at all; its folder must exist."""
    try:
        with temporary_beside(path) as draft, draft.open("wb") as stream:
            np.savez_compressed(
                stream, candidate_ms=raw.candidate_ms, baseline_ms=raw.baseline_ms, feed=raw.feed, round=raw.round
            )
    except OSError as error:
        raise ToolchainError(f"{path}: raw times cannot be written: {error}. Free or change the disk.") from error


def load_raw_times(path: Path) -> RawTimes:
    """Read what `save_raw_times` wrote.

    Raises:
        MeasureError: the file is missing, damaged or of another kind; transient, since timing again replaces it.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return RawTimes(
                candidate_ms=arrays["candidate_ms"],
                baseline_ms=arrays["baseline_ms"],
                feed=arrays["feed"],
                round=arrays["round"],
            )
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise MeasureError(
            f"{path}: not a file of raw times ({error}). Time the candidate again.", transient=True
        ) from error


@contextlib.contextmanager
def device_lock(path: Path, *, wait_s: float, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the device alone: two sweeps that time at once measure each other.

    The kernel drops the lock with its process, kill -9 included, so a file left behind locks nobody out. The file
    names its last holder, for the message.

    Args:
        report: told once, with the holder, when there is someone to wait for.

    Raises:
        ToolchainError: still held after `wait_s`, or the lock file cannot be opened.
    """
    owner = f"process {os.getpid()} ({' '.join(sys.argv)[:200]})"
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(
                lock_file(
                    path,
                    wait_s=wait_s,
                    owner=owner,
                    waiting=lambda holder: report(f"waiting for the device, in use by {holder or _SOMEBODY}"),
                )
            )
        except OSError as error:
            raise ToolchainError(f"{path}: the device's lock file cannot be opened: {error}.") from error
        if not lock.held:
            raise ToolchainError(
                f"{path}: the device is still in use by {lock.holder or _SOMEBODY} after {wait_s:g} s. "
                "Wait for it or stop it."
            )
        yield


class _Deadline:
    """The end of the protocol's time."""

    def __init__(self, timeout_s: float, calls: int) -> None:
        self.timeout_s, self.calls = timeout_s, calls
        self.end_ns = time.perf_counter_ns() + round(timeout_s * 1e9)

    def check(self, now_ns: int) -> None:
        if now_ns > self.end_ns:
            raise MeasureError(
                f"timing {self.calls} calls took longer than {self.timeout_s:g} s. Time fewer, or allow more time.",
                transient=True,
            )


_Fed = tuple[Session, Sequence[Feeds]]


def _time_round(lead: _Fed, other: _Fed, deadline: _Deadline) -> tuple[Times, Times]:
    """Lead, other, other, lead over one slice: nanoseconds of the two sessions, [2 * slice] each, paired by position.

    Each call is paired with that of the neighbouring block: first with second, fourth with third.
    """
    blocks = []
    for (session, feeds), cold in ((lead, True), (other, True), (other, False), (lead, True)):
        if cold:
            session.run(feeds[-1])
        blocks.append(_time_block(session, feeds, deadline))
    return np.concatenate([blocks[0], blocks[3]]), np.concatenate([blocks[1], blocks[2]])


def _time_block(session: Session, feeds: Sequence[Feeds], deadline: _Deadline) -> npt.NDArray[np.float64]:
    """Nanoseconds of each call, back to back."""
    times = np.empty(len(feeds))
    with collection_paused():
        for i, feed in enumerate(feeds):
            start_ns = time.perf_counter_ns()
            session.run(feed)
            end_ns = time.perf_counter_ns()
            times[i] = max(end_ns - start_ns, 1)
            deadline.check(end_ns)
    return times


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Garbage collection off inside the block; it would hit some calls and not others."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _warm_up(
    session: Session, feeds: Sequence[Feeds], order: Sequence[int], protocol: TimingProtocol, deadline: _Deadline
) -> tuple[int, bool]:
    """Untimed calls until three windows over the same feeds agree within 10 %: (calls made, whether they agreed).

    Runtimes plan memory per shape, so one feed of each shape goes first.
    """
    shapes = _work_of(feeds)
    first_of_shape = [next(i for i in order if shapes[i] == kind) for kind in range(int(shapes.max()) + 1)]
    firsts = first_of_shape[: protocol.maximum_warmup]
    _time_block(session, [feeds[i] for i in firsts], deadline)
    calls = len(firsts)
    window = [feeds[i] for i in order[:_WINDOW_CALLS]]
    totals: list[float] = []
    while calls + len(window) <= protocol.maximum_warmup:
        # The median, not the sum: one interrupted call says nothing about being warm.
        totals.append(float(np.median(_time_block(session, window, deadline))))
        calls += len(window)
        last = totals[-3:]
        if calls >= protocol.minimum_warmup and len(last) == 3 and max(last) <= 1.1 * min(last):
            return calls, True
    return calls, False


def _work_of(feeds: Sequence[Feeds]) -> npt.NDArray[np.int64]:
    """[feeds] numbers, equal for feeds of equal shapes, ascending with their size."""
    shapes = [tuple(sorted((name, array.shape) for name, array in feed.items())) for feed in feeds]
    sizes = {shape: sum(math.prod(dimensions) for _, dimensions in shape) for shape in shapes}
    ranks = {shape: rank for rank, shape in enumerate(sorted(sizes, key=lambda shape: (sizes[shape], shape)))}
    return np.array([ranks[shape] for shape in shapes], dtype=np.int64)


def _side_by_side(feeds: Sequence[Feeds], others: Sequence[Feeds]) -> Sequence[Feeds]:
    """Feeds that are as large as what both sessions are fed: one order serves both."""
    if others is feeds:
        return feeds
    return [
        {**mine, **{f"{name} of the other": array for name, array in theirs.items()}}
        for mine, theirs in zip(feeds, others, strict=True)
    ]


def _scattered(feeds: Sequence[Feeds]) -> list[int]:
    """All feeds once, so that any stretch of neighbours holds short and long ones in fair shares.

    The golden ratio's multiples modulo 1 fill the unit interval evenly at every length; they pick from the feeds
    sorted by size.
    """
    by_size = np.argsort(_work_of(feeds), kind="stable")
    golden = (np.arange(len(feeds)) * (math.sqrt(5) - 1) / 2) % 1
    places = np.argsort(np.argsort(golden, kind="stable"), kind="stable")
    return [int(i) for i in by_size[places]]


def _latency(raw: RawTimes, batch: int, warmup_calls: int, quiet: bool, words: str, seed: int) -> Latency:
    times = raw.candidate_ms.astype(np.float64)
    mean_ms = float(times.mean())
    return Latency(
        batch=batch,
        samples=len(times),
        warmup_calls=warmup_calls,
        p50_ms=bootstrap_rounds(raw.by_round(times), lambda drawn: np.median(drawn, axis=-1), seed=seed),
        p95_ms=float(np.percentile(times, 95)),
        p99_ms=float(np.percentile(times, 99)) if len(times) >= P99_SAMPLES else None,
        mean_ms=mean_ms,
        throughput_per_s=1000 * batch / mean_ms,
        speedup=speedup(raw, seed=seed),
        baseline_p50_ms=float(np.median(raw.baseline_ms)),
        quiet=quiet,
        verdict=words,
    )
