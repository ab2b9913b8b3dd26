"""Figures of a simulated service with their intervals: of the simulation itself (`figures`), and those that are to hold
what a load of the real service measures (`for_a_measurement`).

What a prediction rests on is known within limits: each point of the curve, how fast the machine runs from one moment to
the next, what several busy threads do together, what the host costs; and the simulation leaves something out. A
measurement adds its own luck: which requests came when, and a P99 of some hundred answers. So the service is simulated
again and again, each time for as many requests as the measurement counts, with another draw of all of these, and the
interval is that of what comes out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from workbench.evaluation.measure import P99_SAMPLES
from workbench.prediction.simulation.simulation import Floats, IntArray, Simulated, simulate
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate, OwnIntervals, ServiceFigures
from workbench.values.service import HostCosts

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


# --- for a measurement ---------------------------------------------------------------------------------------------


REPLICATES = 24
"""Enough to know a standard deviation within 15 %, for the cost of the run that gave the figures."""
MOST_REQUESTS = 8_000
"""Of a replicate: a P99 of more has little luck left, and longer measurements are taken to have as much."""
_OF_WORKERS = ("worker_batch_ms", "worker_row_ms")
HOST_TIMES = ("request_ms", "batch_ms", "batch_after_ms", *_OF_WORKERS, "client_ms", "transport_ms")
MODEL_SPREADS = (0.08, 0.14, 0.20, 0.25)
"""Relative errors of throughput, P50, P95 and P99 by what the simulation leaves out (wake-ups after idle moments, what
threads of one processor take from each other): root mean squares over 16 settings of a service on 2 processors
[measured: benchmarks/predicted_against_measured; P95, which it does not record, inferred between its neighbours]."""
Z = 1.96


def for_a_measurement(
    figures: ServiceFigures,
    curve: BatchCurve,
    host: HostCosts,
    lengths: IntArray,
    bins: tuple[int, ...],
    *,
    requests: int | None,
    seed: int,
    replicates: int = REPLICATES,
) -> ServiceFigures:
    """The figures as they are, with intervals for a load on this machine that counts so many requests.

    The machine is that of the curve: its speed when it was taken, with `curve.speed_spread` around it. An interval is
    Student's on the logarithm, above and below apart, since a queue near its limit grows faster than it shrinks. What
    stood as interval before goes to `own`. Deterministic; costs about as much as 200,000 requests of one simulation.

    Args:
        figures: of `figures(simulate(...))` with this curve and host.
        requests: None for a load without end, whose figures have no luck.
    """
    own = OwnIntervals(
        throughput_per_s=figures.throughput_per_s,
        p50_ms=figures.p50_ms,
        p95_ms=figures.p95_ms,
        p99_ms=figures.p99_ms,
    )
    if requests is None and not _is_uncertain(curve, host):
        return replace(figures, own=own)
    counted = min(MOST_REQUESTS if requests is None else max(requests, 1), MOST_REQUESTS)
    found = np.array(
        [
            _measured(
                simulate(
                    drawn_curve(curve, drawn),
                    figures.settings,
                    figures.load,
                    drawn_host(host, drawn),
                    lengths,
                    bins,
                    devices=figures.devices,
                    requests=counted,
                    seed=seed if requests is None else _another(seed, k),
                )
            )
            for k, drawn in enumerate(draws(len(curve.points), seed, replicates))
        ]
    )
    of = (own.throughput_per_s, own.p50_ms, own.p95_ms, own.p99_ms)
    rate, p50, p95, p99 = (_widened(one, found[:, i], MODEL_SPREADS[i]) for i, one in enumerate(of))
    return replace(figures, own=own, throughput_per_s=rate, p50_ms=p50, p95_ms=p95, p99_ms=p99)


def draws(points: int, seed: int, replicates: int = REPLICATES) -> Floats:
    """[replicates, 4 + points] standard normal numbers: of the machine's speed, of what processors do together, of the
    host's costs, of the whole curve, and of each of its points. Columns are balanced, so few rows represent all."""
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    generator = np.random.default_rng(np.random.SeedSequence((seed, points)))
    # every column takes each of as many equal shares of the normal distribution once, in an order of its own
    normal = special.ndtri((np.arange(replicates) + 0.5) / replicates)
    return np.stack([generator.permutation(normal) for _ in range(4 + points)], axis=1)


def drawn_curve(curve: BatchCurve, drawn: Floats) -> BatchCurve:
    """As it may be in truth. Half of a point's variance is all points' alike: they were timed in the same rounds."""
    speed = curve.speed_spread * drawn[0]

    def drawn_point(point: CurvePoint, own: float) -> CurvePoint:
        factor = math.exp(speed + relative_spread(point.p50_ms) * (drawn[3] + own) / math.sqrt(2))
        return replace(
            point, mean_ms=point.mean_ms * factor, quantiles_ms=tuple(q * factor for q in point.quantiles_ms)
        )

    return replace(curve, points=tuple(drawn_point(p, own) for p, own in zip(curve.points, drawn[4:], strict=True)))


def drawn_host(host: HostCosts, drawn: Floats) -> HostCosts:
    factor = math.exp(host.spread * drawn[2])
    spreads = host.capacity_spread or (0.0,) * len(host.capacity)
    known = np.array(host.capacity)
    # work of n threads is no more than n times one's, unless it was measured so
    most = np.maximum(known, np.arange(1, len(known) + 1))
    together = np.minimum(known * np.exp(np.array(spreads) * drawn[1]), most)
    together[0] = 1.0
    times = {name: getattr(host, name) * factor for name in HOST_TIMES}
    return replace(host, capacity=tuple(together.tolist()), **times)


def relative_spread(estimate: Estimate) -> float:
    """The standard deviation of the logarithm that a 95 % interval stands for."""
    if not 0 < estimate.low <= estimate.high:
        return 0.0
    return math.log(estimate.high / estimate.low) / (2 * Z)


def _is_uncertain(curve: BatchCurve, host: HostCosts) -> bool:
    points = any(p.p50_ms.low != p.p50_ms.high for p in curve.points)
    return bool(points or curve.speed_spread or host.spread or any(host.capacity_spread))


def _another(seed: int, k: int) -> int:
    """The luck of another measurement; none of them has that of the prediction."""
    return int(np.random.SeedSequence((seed, k + 1)).generate_state(1)[0])


def _measured(simulated: Simulated) -> tuple[float, ...]:
    """Throughput, P50, P95 and P99."""
    percentiles = np.percentile(simulated.latency_ms, (50, 95, 99))
    return simulated.throughput_per_s, *(float(p) for p in percentiles)


def _widened(estimate: Estimate, found: Floats, model: float) -> Estimate:
    """Never narrower than it was."""
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    if not (estimate.value > 0 and np.isfinite(found).all() and (found > 0).all()):
        return estimate
    away = np.log(found / estimate.value)
    # of a symmetric spread each half alone tells its variance; a value all replicates lie beside shows as a bias
    above, below = (
        math.hypot(math.sqrt(2 * float(np.square(np.maximum(s, 0.0)).mean())), model) for s in (away, -away)
    )
    count = len(found)
    wide = float(special.stdtrit(count - 1, 0.975)) * math.sqrt(1 + 1 / count)
    low, high = estimate.value * math.exp(-wide * below), estimate.value * math.exp(wide * above)
    return replace(estimate, low=min(low, estimate.low), high=max(high, estimate.high))
