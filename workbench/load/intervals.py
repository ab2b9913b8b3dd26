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

Floats = npt.NDArray[np.float64]

_FEWEST_BLOCKS, _MOST_BLOCKS = 5, 40
_SHORTEST_BLOCK_S, _BLOCK_LATENCIES = 0.25, 10
_RESAMPLES = 1000
_RANKS = 4000
_FEWEST_INTERVALS = 5


def percentiles(
    at_s: Floats, latency_ms: Floats, window_s: float, probabilities: Sequence[float], *, seed: int
) -> tuple[Estimate, ...]:
    """Nearest-rank percentiles with 95 % intervals.

    The window is cut into 5 to 40 blocks of equal time, each at least ten median latencies long where there is room;
    whole blocks are drawn with replacement. The interval is the expanded percentile one (Hesterberg, The American
    Statistician 69, 2015, 371-386, section 5.3). Above 4000 requests neighbouring ranks are drawn together.

    Args:
        at_s: [requests] when each was due, 0 to `window_s`.
        latency_ms: [requests], in the same order; not empty.
    """
    order = np.argsort(latency_ms, kind="stable")
    values = latency_ms[order]
    count = len(values)
    shortest_s = max(_SHORTEST_BLOCK_S, _BLOCK_LATENCIES * float(np.median(values)) / 1000)
    blocks = min(_MOST_BLOCKS, max(_FEWEST_BLOCKS, int(window_s / shortest_s)))
    block = np.minimum((at_s[order] / window_s * blocks).astype(np.int64), blocks - 1)
    ranks = min(count, _RANKS)
    rank = np.arange(count) * ranks // count
    per_block = np.zeros((blocks, ranks))
    np.add.at(per_block, (block, rank), 1.0)
    largest = values[np.searchsorted(rank, np.arange(ranks), side="right") - 1]
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(blocks, np.full(blocks, 1 / blocks), size=_RESAMPLES).astype(np.float64)
    cumulated = np.cumsum(drawn @ per_block, axis=1)
    tail = _expanded_tail(blocks)
    found = []
    for probability in probabilities:
        value = float(values[_rank(probability, count)])
        wanted = np.ceil(probability * cumulated[:, -1])
        at = np.minimum((cumulated < np.maximum(wanted, 1)[:, None]).sum(axis=1), ranks - 1)
        low, high = np.quantile(largest[at], [tail, 1 - tail])
        found.append(Estimate(value=value, low=min(float(low), value), high=max(float(high), value)))
    return tuple(found)


def throughput(done_s: Floats, window_s: float) -> tuple[Estimate, tuple[int, ...]]:
    """Answers per second over the window with a 95 % interval, and the answers in each second.

    The interval is Student's over whole seconds, or over tenths of the window where it is shorter than ten seconds.
    It speaks of this stretch of time on this machine: a slow change over minutes is not in it.

    Args:
        done_s: when each answer was whole, 0 to `window_s`.
    """
    length_s = 1.0 if window_s >= 10 else window_s / 10
    intervals = max(_FEWEST_INTERVALS, int(window_s / length_s))
    from scipy import special

    counts, _ = np.histogram(done_s, bins=intervals, range=(0.0, intervals * length_s))
    value = len(done_s) / window_s
    spread = float(counts.std(ddof=1)) / math.sqrt(intervals) / length_s
    half = -float(special.stdtrit(intervals - 1, 0.025)) * spread
    seconds, _ = np.histogram(done_s, bins=max(1, math.ceil(window_s)), range=(0.0, max(1, math.ceil(window_s))))
    return (
        Estimate(value=value, low=max(0.0, value - half), high=value + half),
        tuple(int(count) for count in seconds),
    )


def _rank(probability: float, count: int) -> int:
    return max(0, min(count, math.ceil(probability * count)) - 1)


def _expanded_tail(blocks: int) -> float:
    from scipy import special

    spread = math.sqrt(blocks / (blocks - 1)) * -float(special.stdtrit(blocks - 1, 0.025))
    return float(special.ndtr(-spread))
