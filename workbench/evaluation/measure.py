"""Latency against the float baseline, timed side by side in one process, with its noise.

A machine changes its speed while it works, often by more than the candidates differ. So baseline and candidate are
timed in short alternating blocks over the same feeds, the ratio is taken within each round, and its interval comes
from resampling rounds. Peak memory needs a process of its own: `workbench.evaluation.replay`.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from workbench.evaluation.noise import read_counters, steadiness, verdict
from workbench.targets.base import DeviceSession, DeviceTimes, Feeds, Session, times_of
from workbench.values.errors import MeasureError
from workbench.values.measurement import DeviceFigures, Estimate, Latency
from workbench.values.significance import bootstrap_rounds, midmean
from workbench.values.system.files import temporary_beside, writing

_WINDOW_CALLS = 5
"""Calls of one warm-up window."""
Checked = Callable[[int], None]
"""Told of the time, in nanoseconds, after each call; raises once the protocol's is up."""
LOAD_S = 4.0
"""a vendor's tool takes about a second for an answer [inferred], so a few of them need some seconds of load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingProtocol:
    """How one candidate is timed. In all, `warm-up + calls` calls of each session, and one untimed call per block.

    Each of the `rounds` rounds times one slice of the feeds four times, A B B A with A the candidate, and B A A B in
    every other round: a machine that slows steadily through a round costs both the same. A block is the slice called
    back to back by one session, after one untimed call that brings its weights back into the caches.

    Attributes:
        calls: timed calls of each session in a full measurement, rounded up to whole rounds.
        minimum_warmup, maximum_warmup: untimed calls of each session before the first round; they end between the two
            when the last three windows of calls took the same time within 10 %, or at the maximum.
        rounds: how many rounds the calls are divided into; fewer calls make shorter blocks, not fewer rounds, as the
            interval of the ratio rests on their number.
        seed: of the bootstrap. The order of the feeds needs none.
        timeout_s: for warm-up and timing together; looked at between calls, so a call that never returns is not cut.
    """

    calls: int = 1000
    minimum_warmup: int = 10
    maximum_warmup: int = 200
    rounds: int = 25
    seed: int = 0
    timeout_s: float = 1800.0


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
    wanted = protocol.calls if calls is None else calls
    block, theirs_fed, order = planned(feeds, baseline_feeds, protocol, wanted)
    timeout_s, begun_ns = protocol.timeout_s, time.perf_counter_ns()

    def checked(now_ns: int) -> None:
        if now_ns - begun_ns > 1e9 * timeout_s:
            rule = f"timing {wanted} calls took longer than {timeout_s:g} s. Time fewer, or allow more time."
            raise MeasureError(rule, transient=True)

    settled = _warm_up(candidate, feeds, order, protocol, checked)
    if baseline is not candidate:
        settled = _warm_up(baseline, theirs_fed, order, protocol, checked) and settled
    ours, theirs, visited = [], [], []
    before = read_counters()
    for number in range(protocol.rounds):
        part = [order[(number * block + i) % len(order)] for i in range(block)]
        mine = (candidate, [feeds[i] for i in part])
        other = (baseline, [theirs_fed[i] for i in part])
        if number % 2 == 0:
            candidate_ns, baseline_ns = _time_round(mine, other, checked)
        else:
            baseline_ns, candidate_ns = _time_round(other, mine, checked)
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
    work = raw.by_round(shape_ranks(theirs_fed)[raw.feed]).astype(np.int64)
    steady = steadiness(raw.by_round(raw.baseline_ms), work)
    quiet, words, holds = verdict(steady, before, after, of="the baseline", settled=settled)
    return latency_of(raw, batch, quiet, words, protocol.seed, holds=holds), raw


def planned(
    feeds: Sequence[Feeds], baseline_feeds: Sequence[Feeds] | None, protocol: TimingProtocol, calls: int
) -> tuple[int, Sequence[Feeds], list[int]]:
    """(feeds of half a round, what the baseline is fed, the order of the feeds)."""
    if not feeds:
        raise ValueError("no feeds to time")
    theirs = feeds if baseline_feeds is None else baseline_feeds
    both = feeds  # as large as what both sessions are fed: one order serves both
    if theirs is not feeds:
        pairs = zip(feeds, theirs, strict=True)
        both = [{**mine, **{f"{name} of the other": array for name, array in other.items()}} for mine, other in pairs]
    return math.ceil(calls / (2 * protocol.rounds)), theirs, scattered(both)


def shape_ranks(feeds: Sequence[Feeds]) -> npt.NDArray[np.int64]:
    """[feeds] numbers, equal for feeds of equal shapes, ascending with their size."""
    shapes = [tuple(sorted((name, array.shape) for name, array in feed.items())) for feed in feeds]
    sizes = {shape: sum(math.prod(dimensions) for _, dimensions in shape) for shape in shapes}
    ranks = {shape: rank for rank, shape in enumerate(sorted(sizes, key=lambda shape: (sizes[shape], shape)))}
    return np.array([ranks[shape] for shape in shapes], dtype=np.int64)


def golden(count: int) -> npt.NDArray[np.float64]:
    """The golden ratio's multiples modulo 1, which fill the unit interval evenly at every length."""
    return (np.arange(count) * (math.sqrt(5) - 1) / 2) % 1


def scattered(feeds: Sequence[Feeds]) -> list[int]:
    """All feeds once, so that any stretch of neighbours holds short and long ones in fair shares: picked by the golden
    ratio from the feeds sorted by size."""
    by_size = np.argsort(shape_ranks(feeds), kind="stable")
    places = np.argsort(np.argsort(golden(len(feeds)), kind="stable"), kind="stable")
    return [int(i) for i in by_size[places]]


_Fed = tuple[Session, Sequence[Feeds]]


def _time_round(lead: _Fed, other: _Fed, checked: Checked) -> tuple[Times, Times]:
    """Lead, other, other, lead over one slice: nanoseconds of the two sessions, [2 * slice] each, paired by position.

    Each call is paired with that of the neighbouring block: first with second, fourth with third.
    """
    blocks = []
    for (session, feeds), cold in ((lead, True), (other, True), (other, False), (lead, True)):
        if cold:
            session.run(feeds[-1])
        blocks.append(_time_block(session, feeds, checked))
    return np.concatenate([blocks[0], blocks[3]]), np.concatenate([blocks[1], blocks[2]])


def _time_block(session: Session, feeds: Sequence[Feeds], checked: Checked) -> npt.NDArray[np.float64]:
    """Nanoseconds of each call, back to back."""
    times = np.empty(len(feeds))
    with collection_paused():
        for i, feed in enumerate(feeds):
            start_ns = time.perf_counter_ns()
            session.run(feed)
            end_ns = time.perf_counter_ns()
            times[i] = max(end_ns - start_ns, 1)
            checked(end_ns)
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
    session: Session, feeds: Sequence[Feeds], order: Sequence[int], protocol: TimingProtocol, checked: Checked
) -> bool:
    """Untimed calls until three windows over the same feeds agree within 10 %; whether they did.

    Runtimes plan memory per shape, so one feed of each shape goes first.
    """
    shapes = shape_ranks(feeds)
    first_of_shape = [next(i for i in order if shapes[i] == kind) for kind in range(int(shapes.max()) + 1)]
    firsts = first_of_shape[: protocol.maximum_warmup]
    _time_block(session, [feeds[i] for i in firsts], checked)
    calls = len(firsts)
    window = [feeds[i] for i in order[:_WINDOW_CALLS]]
    totals: list[float] = []
    while calls + len(window) <= protocol.maximum_warmup:
        # The median, not the sum: one interrupted call says nothing about being warm.
        totals.append(float(np.median(_time_block(session, window, checked))))
        calls += len(window)
        last = totals[-3:]
        if calls >= protocol.minimum_warmup and len(last) == 3 and max(last) <= 1.1 * min(last):
            return True
    return False


def device_figures(session: DeviceSession, feeds: Sequence[Feeds], *, load_s: float = LOAD_S) -> DeviceFigures:
    """Medians over calls of each feed in turn, outside of the timing that ranks candidates.

    Reading events and asking the driver costs host time, so it never happens between calls whose latency counts.

    Args:
        load_s: the device is kept busy so long, and at least for one call of each feed; 0 does not ask for its load,
            of which a modelled device has none.

    Raises:
        MeasureError: a call failed.
    """
    times: list[DeviceTimes] = []
    end_s = time.monotonic() + load_s
    with session.watched() if load_s else contextlib.nullcontext(()) as readings:
        while not times or time.monotonic() < end_s:
            for feed in feeds:
                session.run(feed)
                times.append(times_of(session))

    def told(quantity: str) -> float | None:
        known = [value for reading in readings if (value := getattr(reading, quantity)) is not None]
        return median(known) if known else None

    return DeviceFigures(
        host_to_device_ms=median(t.host_to_device_ms for t in times),
        execute_ms=median(t.execute_ms for t in times),
        device_to_host_ms=median(t.device_to_host_ms for t in times),
        memory_bytes=session.device_memory_bytes(),
        power_w=told("power_w"),
        utilization_percent=told("utilization_percent"),
        temperature_c=told("temperature_c"),
    )


# --- every timed call, and the figures drawn from it -----------------------------------------------------------------

Times = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int32]

P99_SAMPLES = 1000
"""Fewest timed calls that give a P99: ten of them lie above it. Fewer give no P99 rather than a guess."""


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

    def by_round(self, values: npt.NDArray[np.number]) -> npt.NDArray[np.float64]:
        """One value per sample as float64 [rounds, samples per round]."""
        return values.astype(np.float64).reshape(len(np.unique(self.round)), -1)


def speedup(raw: RawTimes, *, seed: int) -> Estimate:
    """Baseline time over candidate time: the geometric midmean over rounds of the midmean over paired calls.

    The interval resamples rounds (`significance.bootstrap_rounds`), so it speaks of this machine and these feeds.
    """
    ratios = raw.by_round(np.log(raw.baseline_ms.astype(np.float64) / raw.candidate_ms))
    return _ratio(midmean(ratios), seed)


def ratio_by_rounds(own: RawTimes, reused: RawTimes, *, seed: int) -> Estimate | None:
    """Own time over the reused one, both relative to the baseline beside them, of two runs over the same feeds.

    Round against round, so that which feeds a round held cancels out of the interval; in that of a `speedup` it is most
    of the width where lengths differ. None where the two did not visit the same feeds in the same rounds.
    """
    if not (np.array_equal(own.feed, reused.feed) and np.array_equal(own.round, reused.round)):
        return None
    ours, theirs = (
        each.by_round(np.log(each.candidate_ms.astype(np.float64) / each.baseline_ms)) for each in (own, reused)
    )
    return _ratio(midmean(ours) - midmean(theirs), seed)


def _ratio(logarithms: npt.NDArray[np.float64], seed: int) -> Estimate:
    """Of the rounds' logarithms."""
    found = bootstrap_rounds(logarithms[:, None], midmean, seed=seed)
    value, low, high = (math.exp(each) for each in (found.value, found.low, found.high))
    return Estimate(value=value, low=low, high=high, confidence=found.confidence)


def latency_of(raw: RawTimes, batch: int, quiet: bool, words: str, seed: int, *, holds: bool = True) -> Latency:
    times = raw.candidate_ms.astype(np.float64)
    mean_ms = float(times.mean())
    return Latency(
        batch=batch,
        samples=len(times),
        p50_ms=bootstrap_rounds(raw.by_round(times), lambda drawn: np.median(drawn, axis=-1), seed=seed),
        p95_ms=float(np.percentile(times, 95)),
        p99_ms=float(np.percentile(times, 99)) if len(times) >= P99_SAMPLES else None,
        mean_ms=mean_ms,
        throughput_per_s=1000 * batch / mean_ms,
        speedup=speedup(raw, seed=seed),
        baseline_p50_ms=float(np.median(raw.baseline_ms)),
        quiet=quiet,
        verdict=words,
        holds=holds,
    )


def load_raw_times(path: Path) -> RawTimes | None:
    """What `save_raw_times` wrote; None where it is gone or cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as found:
            return RawTimes(**{name: found[name] for name in ("candidate_ms", "baseline_ms", "feed", "round")})
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, EOFError):
        return None


def save_raw_times(raw: RawTimes, path: Path) -> None:
    """Write the four arrays to an .npz file, whole or not at all; its folder must exist."""
    with writing(path), temporary_beside(path) as draft, draft.open("wb") as stream:
        np.savez_compressed(
            stream, candidate_ms=raw.candidate_ms, baseline_ms=raw.baseline_ms, feed=raw.feed, round=raw.round
        )
