"""Figures of a simulated service, with intervals: `figures`."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from workbench.evaluation.raw_times import P99_SAMPLES
from workbench.prediction.simulation.service_times import Floats
from workbench.prediction.simulation.simulation import Simulated
from workbench.values.measurement import Estimate, ServiceFigures

_MOST_BLOCKS, _FEWEST_BLOCKS = 30, 5
_BACKLOG_SHARE = 0.02
"""Of all requests: more that wait when the last one is sent say that the queue grows."""
_FULL = 0.995


def figures(simulated: Simulated) -> ServiceFigures:
    """Percentiles are over all counted requests; intervals come from batch means.

    Latencies of neighbours depend on each other, so the run is cut into 5 to 30 blocks of equal numbers of answers, of
    1000 or more where there are that many, and the interval is Student's over the blocks' own values. It says how
    precisely the simulation was run, not how true the model is.
    """
    latency, requests = simulated.latency_ms, len(simulated.latency_ms)
    blocks = min(_MOST_BLOCKS, max(_FEWEST_BLOCKS, requests // P99_SAMPLES))
    edges = np.linspace(0, requests, blocks + 1).astype(np.int64) if requests >= blocks else np.array([0, requests])

    def percentiles(first: int, last: int) -> Floats:
        return np.asarray(np.percentile(latency[first:last], (50, 95, 99)), dtype=np.float64)

    def throughput(first: int, last: int) -> float:
        began = simulated.answered_ms[first - 1] if first else 0.0
        return _rate(last - first, float(simulated.answered_ms[last - 1] - began))

    blocks_of = list(pairwise(edges))
    rate = _estimate(throughput(0, requests), np.array([throughput(*block) for block in blocks_of]))
    in_blocks = np.array([percentiles(*block) for block in blocks_of])
    p50, p95, p99 = (_estimate(float(v), in_blocks[:, i]) for i, v in enumerate(percentiles(0, requests)))
    reliable, note = _doubts(simulated)
    return ServiceFigures(
        kind="predicted",
        settings=simulated.settings,
        load=simulated.load,
        requests=requests,
        throughput_per_s=rate,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        mean_batch=float(simulated.batch_rows.mean()) if len(simulated.batch_rows) else 1.0,
        padding_share=simulated.padding_share,
        worker_busy=simulated.worker_busy,
        devices=simulated.devices,
        host=simulated.host,
        clock=simulated.clock,
        reliable=reliable,
        note=note,
    )


def _doubts(simulated: Simulated) -> tuple[bool, str]:
    """Whether the figures may be relied on, and what must be known about them."""
    said = []
    reliable = True
    if len(simulated.latency_ms) < P99_SAMPLES:
        reliable = False
        said.append(f"P99 of {len(simulated.latency_ms)} requests is a guess: fewer than {P99_SAMPLES}")
    if is_unstable(simulated):
        assert simulated.load.rate_per_s is not None  # Poisson arrivals have one
        reliable = False
        said.append(
            f"{simulated.load.rate_per_s:g} requests/s are more than it can answer: the queue grows, and latencies "
            "with the length of the run"
        )
    if simulated.front_end_busy > _FULL:
        said.append("the front end has no time left")
    return reliable, "; ".join(said)


def is_unstable(simulated: Simulated) -> bool:
    """Whether Poisson arrivals outran the service: its queue held a share of all requests at the end, and still grew.

    Never of a trace: it ends, and what it did to the service stands in the latencies.
    """
    if simulated.load.arrivals != "poisson" or simulated.backlog is None or len(simulated.latency_ms) < 2:
        return False
    if simulated.backlog < _BACKLOG_SHARE * simulated.sent_in_all:
        return False
    # A queue that grows in proportion to time doubles from the middle of the run to its end.
    first, last = np.array_split(simulated.latency_ms, 2)
    return bool(np.median(last) > 1.5 * np.median(first))


def _estimate(value: float, parts: Floats) -> Estimate:
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    if len(parts) < 2 or not np.isfinite(parts).all():
        return Estimate(value=value, low=value, high=value)
    half = float(special.stdtrit(len(parts) - 1, 0.975) * parts.std(ddof=1) / math.sqrt(len(parts)))
    return Estimate(value=value, low=max(0.0, value - half), high=value + half)


def _rate(count: int, ms: float) -> float:
    return 1000 * count / ms if ms > 0 else float("inf")
