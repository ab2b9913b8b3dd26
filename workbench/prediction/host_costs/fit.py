"""From loads of the probe's service to `HostCosts`: processor times, then what its simulation lacks beside them.

Two equations for the front end and two for the workers. Processor time counts seconds, whoever runs on the sibling
thread; a cost is work. So seconds are first multiplied by the speed at which they passed: with u processors busy in the
mean (u > 1), each ran at capacity(u) / u.

Where little is asked of a service, its front end and its client are asleep when a request comes, with cold caches on a
processor that sleeps too. With 50 ms between requests the front end spent 2.9 ms on one that takes 0.9 in a busy loop.
How much is added after an idle wait is found from loads whose requests come seldom.

A process that wakes while every processor runs somebody waits behind one of them, though another may fall idle
meanwhile. A service with a worker on every processor pays that for every batch: with two workers of MiniLM on two
processors, a tenth of the processors' time was idle while processes waited for them. How long they wait is found by
asking with which wait the simulation answers as many requests as were answered.

What is then left between a measured load and its simulation, beyond what their intervals allow, is in no cost: other
processes, caches, the scheduler's luck. It widens every prediction (`HostCosts.unexplained`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from workbench.prediction.simulation import Simulated, figures, for_a_measurement, simulate
from workbench.prediction.simulation.intervals import Z
from workbench.prediction.simulation.service_times import IntArray
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings, Unexplained

Floats = npt.NDArray[np.float64]
_LONGEST_MS = 16.0
"""Of a mean wait: longer than a slice of any usual scheduler."""
_HALVINGS = 8
_REQUESTS = 4_000
_REPLICATES = 12
"""Of a load that is compared with its simulation: what is asked is how far they are apart, among several loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """What one load of the service without a model cost.

    Attributes:
        clients: of the closed loop; in the run with one, batches hold one row and nobody waits for anybody. 0 where
            requests came at `rate_per_s`, independently of each other.
        requests, batches: answered, and run by workers, within `window_s`. Each request carries one row.
        front_s, workers_s, client_s: processor seconds of all front ends, of all workers, of the client.
        queues_s: of the process with the queues, part of `front_s`; nothing else is, unless front ends are processes of
            their own.
        model_s: seconds the workers spent in calls of the model, which are part of `workers_s`.
        p50_ms, p99_ms: latency as its clients saw it.
    """

    clients: int
    window_s: float
    requests: int
    batches: int
    front_s: float
    workers_s: float
    client_s: float
    model_s: float
    p50_ms: float
    p99_ms: float
    rate_per_s: float | None = None
    queues_s: float = 0.0

    @property
    def load(self) -> ServiceLoad:
        if self.rate_per_s is None:
            return ServiceLoad(concurrency=self.clients)
        return ServiceLoad(arrivals="poisson", rate_per_s=self.rate_per_s)


def fit_costs(
    runs: Sequence[LoadedRun],
    capacity: tuple[float, ...],
    origin: str,
    *,
    spread: float = 0.0,
    capacity_spread: tuple[float, ...] = (),
) -> HostCosts:
    """Non-negative least squares over the runs, whose relative errors count equally.

    What remains of one client's latency after all processor times is waiting: `transport_ms`.

    Args:
        runs: with few and with many rows in a batch; the first is that of a single client.
        spread, capacity_spread: see `HostCosts`.
    """
    if len(runs) < 2 or runs[0].clients != 1:
        raise ValueError("costs need the run of a single client and one with batches")
    speed = np.array([speed_of(run, capacity) for run in runs])
    speed[0] *= _on_the_way(runs[0])
    requests = np.array([run.requests for run in runs], dtype=np.float64)
    batches = np.array([run.batches for run in runs], dtype=np.float64)
    front_s = speed * np.array([run.front_s for run in runs])
    workers_s = speed * np.array([max(run.workers_s - run.model_s, 0.0) for run in runs])
    client_s = speed * np.array([run.client_s for run in runs])
    request_ms, batch_ms = 1000 * relative_fit(np.stack([requests, batches], axis=1), front_s)
    worker_batch_ms, worker_row_ms = 1000 * relative_fit(np.stack([batches, requests], axis=1), workers_s)
    client_ms = 1000 * float(client_s.sum() / requests.sum())
    single = runs[0]
    return HostCosts(
        request_ms=float(request_ms),
        batch_ms=float(batch_ms),
        worker_batch_ms=float(worker_batch_ms),
        worker_row_ms=float(worker_row_ms),
        client_ms=client_ms,
        transport_ms=max(single.p50_ms - busy_ms(single), 0.0),
        capacity=capacity,
        origin=origin,
        spread=spread,
        capacity_spread=capacity_spread,
    )


def with_front_ends(costs: HostCosts, runs: Sequence[LoadedRun]) -> HostCosts:
    """The costs with those of front ends that are processes of their own.

    Args:
        runs: with few and with many requests in a message to the process with the queues.
    """
    speed = np.array([speed_of(run, costs.capacity) for run in runs])
    counts = np.array([[run.requests, run.batches] for run in runs], dtype=np.float64)
    row_ms, batch_ms = 1000 * relative_fit(counts, speed * np.array([run.queues_s for run in runs]))
    fronts_s = speed * np.array([run.front_s - run.queues_s for run in runs])
    return replace(
        costs,
        front_end_ms=float(1000 * fronts_s.sum() / counts[:, 0].sum()),
        passed_row_ms=float(row_ms),
        passed_batch_ms=float(batch_ms),
    )


def busy_ms(run: LoadedRun) -> float:
    """Processor time of all processes for each request."""
    return 1000 * (run.front_s + run.workers_s + run.client_s) / run.requests


def _on_the_way(single: LoadedRun) -> float:
    """The share of a single client's processor time that it waits for.

    Its request passes from process to process, so what it waits for beside the model's call cannot be more than its
    latency without it. The rest is waking idle processors and tidying up after an answer, while it is on its way.
    """
    model_ms = 1000 * single.model_s / single.requests
    beside_ms = busy_ms(single) - model_ms
    return 1.0 if beside_ms <= 0 else min(1.0, max(single.p50_ms - model_ms, 0.0) / beside_ms)


def speed_of(run: LoadedRun, capacity: tuple[float, ...]) -> float:
    """Mean speed of a busy thread, 1 when never two are busy.

    With no moment idle, u processors busy in the mean are a mixture of the whole numbers beside u; what they do
    together is then the capacity interpolated at u.
    """
    busy = (run.front_s + run.workers_s + run.client_s) / run.window_s
    if busy <= 1:
        return 1.0
    together = np.interp(busy, np.arange(1, len(capacity) + 1), capacity)
    return float(together / min(busy, len(capacity)))


def relative_fit(counts: Floats, seconds: Floats) -> Floats:
    """Non-negative x with counts @ x near seconds, in relative terms; zeros where nothing was spent."""
    spent = seconds > 0
    if not spent.any():
        return np.zeros(counts.shape[1])
    from scipy.optimize import nnls  # a second of processor time, which most who import this module need not spend

    found, _ = nnls(counts[spent] / seconds[spent, None], np.ones(int(spent.sum())))
    return np.asarray(found, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Repetitions of one load of the probe's service.

    Attributes:
        settings: that it was served with.
    """

    settings: ServiceSettings
    runs: tuple[LoadedRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What was served: a call of one length, whatever its rows, over texts of these lengths in these bins."""

    call_ms: float
    lengths: IntArray
    bins: tuple[int, ...]

    def curve(self, largest: int) -> BatchCurve:
        points = tuple(
            CurvePoint.exact(batch, length, self.call_ms)
            for length in self.bins or (0,)
            for batch in dict.fromkeys((1, largest))
        )
        return BatchCurve(points=points, stepped=False, threads=1, clock="host")


def with_wait(costs: HostCosts, crowded: Rehearsal, probe: Probe) -> HostCosts:
    """The costs with `wait_ms`: the median over the runs, and half of what they span beside it.

    Args:
        crowded: a load of a service with a worker on every processor.
    """

    def answered_per_s(wait_ms: float, load: ServiceLoad) -> float:
        return _simulated(replace(costs, wait_ms=wait_ms), crowded.settings, load, probe).throughput_per_s

    found = []
    for run in crowded.runs:
        wanted, low, high = run.requests / run.window_s, 0.0, _LONGEST_MS
        if answered_per_s(0.0, run.load) <= wanted:
            high = 0.0
        for _ in range(_HALVINGS if high else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if answered_per_s(middle, run.load) > wanted else (low, middle)
        found.append((low + high) / 2)
    wait_ms = median(found)
    return replace(costs, wait_ms=wait_ms, wait_spread=(max(found) - min(found)) / 2 / wait_ms if wait_ms > 0 else 0.0)


def with_waking(costs: HostCosts, seldom: Sequence[Rehearsal], probe: Probe) -> HostCosts:
    """The costs with `after_idle`: by how much the middle latency of each load is above its simulation, at the time
    that its front end mostly sleeps; a longer sleep counts as no cheaper than a shorter one.

    Args:
        seldom: loads at a rate that leaves the service idle most of the time.
    """
    found: list[tuple[float, float]] = []
    for one in seldom:
        rate_per_s = one.runs[0].rate_per_s
        assert rate_per_s is not None  # of a closed loop nobody knows when it is idle
        told = np.percentile(_simulated(costs, one.settings, one.runs[0].load, probe).latency_ms, 50)
        more_ms = median(run.p50_ms for run in one.runs) - float(told)
        found.append((1000 / rate_per_s - probe.call_ms, max(more_ms, 0.0)))
    found = sorted(pair for pair in found if pair[0] > 0)
    most = np.maximum.accumulate([more_ms for _, more_ms in found]) if found else ()
    return replace(
        costs, after_idle=tuple((wait_ms, float(more)) for (wait_ms, _), more in zip(found, most, strict=True))
    )


def unexplained(costs: HostCosts, rehearsals: Sequence[Rehearsal], probe: Probe) -> Unexplained:
    """By how much the middle of each load's repetitions lies beside its simulation, beyond the interval for as many
    requests. What single repetitions differ by is the machine's, which a curve tells of itself."""
    beside: list[list[float]] = []
    for one in rehearsals:
        curve, load = probe.curve(one.settings.max_batch_size), one.runs[0].load
        found = figures(_simulated(costs, one.settings, load, probe))
        requests = sum(run.requests for run in one.runs)
        told = for_a_measurement(
            found, curve, costs, probe.lengths, probe.bins, requests=requests, seed=0, replicates=_REPLICATES
        )
        rate_per_s = median(run.requests / run.window_s for run in one.runs)
        beside.append(
            [
                # an open loop's rate says how many happened to come
                0.0 if load.rate_per_s else _beyond(rate_per_s, told.throughput_per_s),
                _beyond(median(run.p50_ms for run in one.runs), told.p50_ms),
                _beyond(median(run.p99_ms for run in one.runs), told.p99_ms),
            ]
        )
    away = np.array(beside)
    # the mean over those that lie on a side: of a symmetric spread each side tells its variance, and a bias its square
    sides = [np.maximum(sign * away, 0.0) for sign in (-1, 1)]
    below, above = (np.sqrt(np.square(side).sum(axis=0) / np.maximum((side > 0).sum(axis=0), 1)) for side in sides)
    throughput, p50, p99 = ((float(low), float(high)) for low, high in zip(below, above, strict=True))
    return Unexplained(throughput=throughput, p50=p50, p99=p99)


def _beyond(measured: float, told: Estimate) -> float:
    """Standard deviation that an interval lacks to hold a measurement, with the sign of the side that it lies on."""
    away, sign = math.log(measured / told.value), 1 if measured > told.value else -1
    within = math.log(told.high / told.value if sign > 0 else told.value / told.low) / Z
    return sign * math.sqrt(max(away**2 - within**2, 0.0))


def _simulated(costs: HostCosts, settings: ServiceSettings, load: ServiceLoad, probe: Probe) -> Simulated:
    curve = probe.curve(settings.max_batch_size)
    return simulate(curve, settings, load, costs, probe.lengths, probe.bins, requests=_REQUESTS, seed=0)
