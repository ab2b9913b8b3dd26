"""Percentiles and throughput of one run with intervals that respect what neighbours in time share.

Requests that wait in one queue or ride in one batch have latencies that move together, so an interval from order
statistics, which takes them as independent, would be several times too narrow. Whole stretches of time are drawn
instead (a block bootstrap): stretches much longer than a request are nearly independent of each other.

scipy is imported where it is needed: the clients' process imports this package too, and starts in half the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workbench.values.measurement import Estimate
from workbench.values.significance import expanded_tail

Floats = npt.NDArray[np.float64]

_FEWEST_BLOCKS, _MOST_BLOCKS = 5, 40
_SHORTEST_BLOCK_S, _BLOCK_LATENCIES = 0.25, 10
_RESAMPLES = 1000
_RANKS = 4000
_FEWEST_INTERVALS = 5


def percentiles(
    at_s: Floats,
    latency_ms: Floats,
    window_s: float,
    probabilities: Sequence[float],
    *,
    seed: int,
    span_ms: float | None = None,
) -> tuple[Estimate, ...]:
    """Nearest-rank percentiles with 95 % intervals.

    The window is cut into 5 to 40 blocks of equal time, each at least ten median latencies long where there is room;
    whole blocks are drawn with replacement. The interval is the expanded percentile one (Hesterberg, The American
    Statistician 69, 2015, 371-386, section 5.3). Above 4000 requests neighbouring ranks are drawn together.

    Args:
        at_s: [requests] when each was due, 0 to `window_s`.
        latency_ms: [requests], in the same order; not empty.
        span_ms: how long what neighbours share lasts, for values that are no latencies; the median of the values
            otherwise.
    """
    order = np.argsort(latency_ms, kind="stable")
    values = latency_ms[order]
    count = len(values)
    block, blocks = _blocks(at_s[order], window_s, float(np.median(values)) if span_ms is None else span_ms)
    ranks = min(count, _RANKS)
    rank = np.arange(count) * ranks // count
    per_block = np.zeros((blocks, ranks))
    np.add.at(per_block, (block, rank), 1.0)
    largest = values[np.searchsorted(rank, np.arange(ranks), side="right") - 1]
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=_RESAMPLES).astype(np.float64)
    cumulated = np.cumsum(drawn @ per_block, axis=1)
    tail = expanded_tail(blocks)
    found = []
    for probability in probabilities:
        value = float(values[_rank(probability, count)])
        wanted = np.ceil(probability * cumulated[:, -1])
        at = np.minimum((cumulated < np.maximum(wanted, 1)[:, None]).sum(axis=1), ranks - 1)
        low, high = np.quantile(largest[at], [tail, 1 - tail])
        found.append(Estimate(value=value, low=min(float(low), value), high=max(float(high), value)))
    return tuple(found)


def share(at_s: Floats, kept: npt.NDArray[np.bool_], window_s: float, *, span_ms: float, seed: int) -> Estimate:
    """Share of requests that keep something, with a 95 % interval.

    By the same blocks as `percentiles`, and at least as wide as the exact one of independent requests (Clopper and
    Pearson, Biometrika 26, 1934, 404-413): blocks that all keep it would say that every request ever will.

    Args:
        at_s, kept: [requests]; not empty.
        span_ms: how long what neighbours share lasts.
    """
    from scipy import special

    block, blocks = _blocks(at_s, window_s, span_ms)
    all_of, kept_of = np.zeros(blocks), np.zeros(blocks)
    np.add.at(all_of, block, 1.0)
    np.add.at(kept_of, block, kept.astype(np.float64))
    drawn = np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), size=_RESAMPLES)
    asked = drawn @ all_of
    tail = expanded_tail(blocks)
    low, high = np.quantile((drawn @ kept_of)[asked > 0] / asked[asked > 0], [tail, 1 - tail])
    count, good = len(kept), int(kept.sum())
    least = float(special.betaincinv(good, count - good + 1, 0.025)) if good else 0.0
    most = float(special.betaincinv(good + 1, count - good, 0.975)) if good < count else 1.0
    return Estimate(value=good / count, low=min(float(low), least), high=max(float(high), most))


def throughput(done_s: Floats, window_s: float, weights: Floats | None = None) -> tuple[Estimate, tuple[int, ...]]:
    """Answers per second over the window with a 95 % interval, and the answers in each second.

    The interval is Student's over whole seconds, or over tenths of the window where it is shorter than ten seconds.
    It speaks of this stretch of time on this machine: a slow change over minutes is not in it.

    Args:
        done_s: when each answer was whole, 0 to `window_s`.
        weights: what each counts for, such as the tokens of a chunk; 1 without.
    """
    length_s = 1.0 if window_s >= 10 else window_s / 10
    intervals = max(_FEWEST_INTERVALS, int(window_s / length_s))
    from scipy import special

    counts, _ = np.histogram(done_s, bins=intervals, range=(0.0, intervals * length_s), weights=weights)
    value = (len(done_s) if weights is None else float(weights.sum())) / window_s
    spread = float(counts.std(ddof=1)) / math.sqrt(intervals) / length_s
    half = -float(special.stdtrit(intervals - 1, 0.025)) * spread
    seconds, _ = np.histogram(
        done_s, bins=max(1, math.ceil(window_s)), range=(0.0, max(1, math.ceil(window_s))), weights=weights
    )
    return (
        Estimate(value=value, low=max(0.0, value - half), high=value + half),
        tuple(int(count) for count in seconds),
    )


def _blocks(at_s: Floats, window_s: float, span_ms: float) -> tuple[npt.NDArray[np.int64], int]:
    """(the block of each request, how many there are)."""
    shortest_s = max(_SHORTEST_BLOCK_S, _BLOCK_LATENCIES * span_ms / 1000)
    blocks = min(_MOST_BLOCKS, max(_FEWEST_BLOCKS, int(window_s / shortest_s)))
    return np.clip((at_s / window_s * blocks).astype(np.int64), 0, blocks - 1), blocks


def _rank(probability: float, count: int) -> int:
    return max(0, min(count, math.ceil(probability * count)) - 1)
