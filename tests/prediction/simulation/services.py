"""Small services whose answers can be worked out by hand."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from workbench.prediction.simulation import Simulated, simulate
from workbench.prediction.simulation.simulation import IntArray
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings

NOTHING = HostCosts(request_ms=0.0, capacity=tuple(float(n) for n in range(1, 33)), origin="assumed in a test")
"""A host that costs nothing and has a processor for every thread."""
NO_LENGTHS = np.zeros(1, dtype=np.int64)


def point(batch: int, length: int, quantiles_ms: Sequence[float]) -> CurvePoint:
    middle = quantiles_ms[len(quantiles_ms) // 2]
    return CurvePoint(
        batch=batch,
        length=length,
        calls=100,
        p50_ms=Estimate(value=middle, low=middle, high=middle),
        mean_ms=float(np.trapezoid(quantiles_ms, dx=1 / (len(quantiles_ms) - 1))),
        quantiles_ms=tuple(quantiles_ms),
    )


def exact(
    times_ms: Callable[[int, int], float],
    batches: Sequence[int] = (1,),
    lengths: Sequence[int] = (0,),
    *,
    stepped: bool = False,
    threads: int = 1,
) -> BatchCurve:
    """(batch, length) → time of a call, always the same."""
    return BatchCurve(
        points=tuple(point(batch, length, (times_ms(batch, length),) * 2) for length in lengths for batch in batches),
        stepped=stepped,
        threads=threads,
        clock="host",
    )


def exponential(mean_ms: float, *, quantiles: int = 20_001) -> BatchCurve:
    """Calls of exponential time, as well as quantiles can say it: the uppermost is cut."""
    probabilities = np.linspace(0, 1, quantiles)
    probabilities[-1] = 1 - 0.2 / quantiles
    times = [-mean_ms * math.log1p(-p) for p in probabilities]
    return BatchCurve(points=(point(1, 0, times),), stepped=False, threads=1, clock="host")


def served(
    curve: BatchCurve,
    load: ServiceLoad,
    *,
    max_batch_size: int = 1,
    batch_timeout_ms: float = 0.0,
    workers: int = 1,
    host: HostCosts = NOTHING,
    lengths: IntArray = NO_LENGTHS,
    bins: tuple[int, ...] = (),
    devices: int = 1,
    requests: int = 20_000,
    seed: int = 0,
) -> Simulated:
    settings = ServiceSettings(max_batch_size=max_batch_size, batch_timeout_ms=batch_timeout_ms, workers=workers)
    return simulate(curve, settings, load, host, lengths, bins, devices=devices, requests=requests, seed=seed)


def clients(count: int) -> ServiceLoad:
    return ServiceLoad(concurrency=count)


def poisson(rate_per_s: float) -> ServiceLoad:
    return ServiceLoad(arrivals="poisson", rate_per_s=rate_per_s)


def trace_ms(*moments: float) -> ServiceLoad:
    return ServiceLoad(arrivals="trace", trace_s=tuple(moment / 1000 for moment in moments))
