"""A service under a load, simulated: `simulate`.

What the service does with a request is `workbench.values.service`'s account of it and, event by event, `event_loop`'s.
Here stands what goes in (times from the batch curve, lengths and arrivals drawn from a seed) and what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from workbench.prediction.simulation.state import (
    BINS,
    NONE,
    Device,
    Items,
    Queue,
    Setup,
    State,
    Worker,
    World,
    records,
)
from workbench.values.errors import ConfigError
from workbench.values.measurement import BatchCurve, Clock
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings

_FEWEST_WARM_UP = 200
_WARM_UP_SHARE = 0.1
_CYCLES_OF_WARM_UP = 5
"""Answers of each client that pass before any is counted: the service begins empty, and clients fall into step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What a simulated service did after its warm-up.

    Attributes:
        latency_ms: [requests] as the client sees them, from the intended moment of sending; in the order of answers.
        answered_ms: [requests] when they were answered, ascending from the end of the warm-up.
        sent_in_all: requests that were sent, warm-up included.
        backlog: requests that waited for an answer when the last one was sent; None in a closed loop.
        batch_rows: [batches] rows of each batch that a worker began.
        padding_share: positions that were padding, among all that were computed.
        worker_busy: share of the time that a worker has its batch (own work and call).
        front_end_busy: share of the time that the front end's one thread works or waits for a processor.
    """

    latency_ms: Floats
    answered_ms: Floats
    sent_in_all: int
    backlog: int | None
    batch_rows: IntArray
    padding_share: float
    worker_busy: float
    front_end_busy: float
    settings: ServiceSettings
    load: ServiceLoad
    host: HostCosts
    devices: int
    clock: Clock

    @property
    def throughput_per_s(self) -> float:
        """Answers per second between the warm-up's last answer and the last of all."""
        return 1000 * len(self.latency_ms) / float(self.answered_ms[-1]) if self.answered_ms[-1] > 0 else float("inf")

    @property
    def p99_ms(self) -> float:
        return float(np.percentile(self.latency_ms, 99))


def simulate(
    curve: BatchCurve,
    settings: ServiceSettings,
    load: ServiceLoad,
    host: HostCosts,
    lengths: IntArray,
    bins: tuple[int, ...],
    *,
    devices: int = 1,
    requests: int,
    seed: int,
) -> Simulated:
    """Serve `requests` simulated requests after a warm-up.

    The n-th request of two simulations of one seed has the same length, the n-th batch the same luck, and the n-th gap
    of Poisson arrivals the same share of the mean: settings compare under equal conditions. The result is a function
    of the arguments alone, to the last bit.

    Args:
        lengths: token lengths to draw from, with replacement; longer ones than the last bin are cut to it.
        bins: padded lengths of the service, ascending; () where samples are not sequences.
        devices: with `settings.workers` workers each, behind one front end.
        requests: counted ones. A trace is replayed as it is, without warm-up, up to that many.

    Raises:
        ConfigError: a bin is longer than every measured length, or there is nothing to draw from.
    """
    if requests < 1 or devices < 1:
        raise ConfigError(f"{requests} requests on {devices} devices cannot be simulated.", key="service")
    times = service_times(curve, bins, max_batch=settings.max_batch_size)
    closed = load.arrivals == "closed"
    clients = load.concurrency or 0
    warm_up = max(_FEWEST_WARM_UP, round(_WARM_UP_SHARE * requests), _CYCLES_OF_WARM_UP * clients)
    if load.arrivals == "trace":
        warm_up, requests = 0, min(requests, len(load.trace_s))
    stop = warm_up + requests
    total = stop + clients

    of_lengths, of_arrivals, of_times = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(3))
    tokens, bin_of = drawn_lengths(lengths, times.padded, total, of_lengths, sequences=curve.lengths != (0,))
    starts_ms = float(times.times_ms[bin_of[:clients], -1].mean()) if clients else 0.0
    arrivals = _arrivals(load, total, of_arrivals, starts_ms=starts_ms)
    record = _serve(
        times,
        settings,
        host,
        threads=curve.threads,
        devices=devices,
        clients=clients,
        stop=stop,
        warm_up=warm_up,
        arrivals=arrivals,
        bin_of=bin_of,
        uniforms=of_times.random(total),
        idle=np.array([0.0, *(one.wait_ms for one in curve.after_idle)]),
        slower=np.array([0.0, *(one.slower_ms for one in curve.after_idle)]),
    )
    end = record.state
    answered_ms = record.finished_ms[warm_up:] - end.started_ms
    length_ms = float(answered_ms[-1])
    counted = (record.batch_of >= end.first_batch) & (record.batch_of < end.started)
    batch_of = record.batch_of[counted] - end.first_batch
    rows = np.bincount(batch_of, minlength=end.started - end.first_batch)
    bin_of_batch = np.zeros_like(rows)
    bin_of_batch[batch_of] = bin_of[counted]
    computed = times.computed_rows[rows - 1] * times.padded[bin_of_batch]
    return Simulated(
        latency_ms=record.latency_ms[warm_up:],
        answered_ms=answered_ms,
        sent_in_all=total,
        backlog=None if closed else int(stop - np.searchsorted(record.finished_ms, arrivals[-1], side="right")),
        batch_rows=rows,
        padding_share=1 - float(tokens[counted].sum() / computed.sum()) if len(rows) else 0.0,
        worker_busy=_share(end.workers_ms, length_ms * settings.workers * devices),
        front_end_busy=_share(end.front_end_ms, length_ms),
        settings=settings,
        load=load,
        host=host,
        devices=devices,
        clock=curve.clock,
    )


def drawn_lengths(
    lengths: IntArray, padded: IntArray, count: int, random: np.random.Generator, *, sequences: bool
) -> tuple[IntArray, IntArray]:
    """[count] tokens of each request, and the number of its bin: the first that is long enough.

    Args:
        padded: [bins] ascending; longer requests are cut to the last.
        sequences: False where a request has no length: one token, one bin.
    """
    if not sequences:
        return np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    if not len(lengths):
        raise ConfigError("there are no lengths to draw requests from.", key="service.lengths")
    cut = np.minimum(np.asarray(lengths, dtype=np.int64), padded[-1])
    drawn = random.choice(len(cut), size=count)
    return cut[drawn], np.searchsorted(padded, cut)[drawn]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What the event loop left: its state, answers in the order in which they were read, and each request's batch."""

    state: State
    latency_ms: Floats
    finished_ms: Floats
    batch_of: IntArray


def _serve(
    times: ServiceTimes,
    settings: ServiceSettings,
    host: HostCosts,
    *,
    threads: int,
    devices: int,
    clients: int,
    stop: int,
    warm_up: int,
    arrivals: Floats,
    bin_of: IntArray,
    uniforms: Floats,
    idle: Floats,
    slower: Floats,
) -> _Record:
    """Lay out the event loop's memory and let it run."""
    from workbench.prediction.simulation import event_loop  # brings numba, a second that only a simulation should cost

    total, workers = len(bin_of), settings.workers * devices
    bins, _, quantiles = times.times_ms.shape
    capacity = _capacity(host, most_busy=2 + workers * max(1, threads))
    busy = np.arange(len(capacity))
    setup = Setup(
        closed=clients > 0,
        total=total,
        stop=stop,
        warm_up=warm_up,
        quantiles=quantiles,
        bins=bins,
        max_batch=settings.max_batch_size,
        timeout=float(settings.batch_timeout_ms),
        workers=workers,
        devices=devices,
        threads=threads,
        call_share=float(capacity[threads] / threads if threads else 1.0),
        request_half=float(host.request_ms / 2),
        batch_half=float(host.batch_ms / 2),
        batch_after=float(host.batch_after_ms),
        worker_batch=float(host.worker_batch_ms),
        worker_row=float(host.worker_row_ms),
        client_half=float(host.client_ms / 2),
        transport_half=float(host.transport_ms / 2),
        network_half=float(host.network_ms / 2),
    )
    # columns of numbers, as machine code reads and writes them
    state = records(1, State(arrival_at=float(arrivals[0]), free=workers))
    numbers = total + workers + 1
    none, nothing = np.full(total, NONE), np.zeros(total)
    columns = (
        np.full(numbers, NONE),
        np.zeros(numbers),
        bin_of.copy(),
        none,
        nothing,
        nothing.copy(),
        nothing.astype(np.bool_),
    )
    items: Any = Items(*cast(Any, columns))
    order = np.zeros(stop, dtype=np.int64)
    tables = (
        capacity / np.maximum(busy, 1),
        np.maximum(busy, 1) / capacity,
        times.times_ms.ravel(),
        uniforms,
        idle,
        slower,
        arrivals,
    )
    places = (records(BINS + bins + workers, Queue()), records(workers, Worker()), records(devices, Device()))
    answered = event_loop.run(World(*cast(Any, (setup, state[0], *tables, items, *places, order))))
    if answered != stop:
        raise AssertionError(f"the simulated service stopped after {answered} of {stop} answers")
    finished_ms = items.finished[order]
    return _Record(
        state=State(*state[0].item()),
        latency_ms=finished_ms - items.intended[order],
        finished_ms=finished_ms,
        batch_of=items.batch,
    )


def _arrivals(load: ServiceLoad, total: int, random: np.random.Generator, *, starts_ms: float) -> Floats:
    """Moments in milliseconds; of a closed loop only the first request of each client.

    Clients that all begin at one moment can stay in step for ever, as one large batch; a single late one (and real
    ones are: connections take their time) breaks the step for good, and no company is as large again. So they begin
    at random moments within `starts_ms`, the time of a full batch.
    """
    if load.arrivals == "closed":
        return np.sort(random.random(load.concurrency or 0)) * starts_ms
    if load.arrivals == "poisson":
        if load.rate_per_s is None:
            raise ConfigError("Poisson arrivals need it.", key="load.rate_per_s")
        return np.cumsum(random.standard_exponential(total)) * (1000 / load.rate_per_s)
    return np.array(load.trace_s[:total]) * 1000


def _capacity(host: HostCosts, *, most_busy: int) -> Floats:
    """[0 … most_busy] work done together by that many busy threads, relative to one alone; 1 for none."""
    known = np.array((1.0, *host.capacity))
    return known[np.minimum(np.arange(most_busy + 1), len(known) - 1)]


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


# --- from a batch curve to the times that are drawn from -------------------------------------------------------------

Floats = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """What a call of each shape takes.

    Attributes:
        times_ms: [bins, rows - 1, quantiles] at evenly spaced probabilities from 0 to 1.
        computed_rows: [rows] that a call of rows + 1 rows computes: more where it is padded to a compiled batch.
        padded: [bins] padded positions of a row; 1 where samples are not sequences.
    """

    times_ms: Floats
    computed_rows: IntArray
    padded: IntArray


def service_times(curve: BatchCurve, bins: tuple[int, ...], *, max_batch: int) -> ServiceTimes:
    """Times of calls of up to `max_batch` rows in each of the service's length bins.

    Rows between measured batches lie between their times, or cost what the next measured batch costs where the curve
    is stepped; rows beyond the largest are split, as a session on a device does it: as many largest batches as are
    full, then what is left, each at the same quantile. Fewer rows than the smallest batch cost what that one costs. A
    bin that was not measured costs what the next longer one costs (stepped), or lies between its neighbours; one
    shorter than all costs what the shortest costs.

    Args:
        bins: ascending padded lengths; () where samples are not sequences.

    Raises:
        ConfigError: a bin is longer than every measured length, or the curve has no points.
    """
    if not curve.points:
        raise ConfigError("the batch curve has no points. Measure it first.", key="curve")
    lengths, batches = curve.lengths, curve.batches
    if not bins or lengths == (0,):
        bins = (lengths[-1],)
    if list(bins) != sorted(set(bins)):
        raise ConfigError(f"length bins {list(bins)} must be ascending.", key="bins")
    if bins[-1] > lengths[-1]:
        raise ConfigError(
            f"length bin {bins[-1]} is longer than every measured length {list(lengths)}.",
            key="bins",
            hint="Measure the curve at the service's own bins.",
        )
    measured = _measured(curve)
    by_bin = np.stack([_at(measured, np.array(lengths), length, curve.stepped) for length in bins])
    rows_up_to_largest = min(max_batch, batches[-1])
    by_rows = np.moveaxis(by_bin, 1, 0)
    small = [_at(by_rows, np.array(batches), rows, curve.stepped) for rows in range(1, rows_up_to_largest + 1)]
    computed = [min(b for b in batches if b >= rows) if curve.stepped else rows for rows in range(1, len(small) + 1)]
    for rows in range(len(small) + 1, max_batch + 1):
        full, rest = divmod(rows, batches[-1])
        small.append(full * small[batches[-1] - 1] + (small[rest - 1] if rest else 0.0))
        computed.append(full * batches[-1] + (computed[rest - 1] if rest else 0))
    return ServiceTimes(
        times_ms=np.ascontiguousarray(np.stack(small, axis=1)),
        computed_rows=np.array(computed, dtype=np.int64),
        padded=np.array([_padded(length, lengths, curve.stepped) for length in bins], dtype=np.int64),
    )


def _measured(curve: BatchCurve) -> Floats:
    """[lengths, batches, quantiles], with as many quantiles as the finest point has."""
    count = max(len(point.quantiles_ms) for point in curve.points)
    probabilities = np.linspace(0, 1, count)
    by_shape = {
        (p.length, p.batch): np.interp(probabilities, np.linspace(0, 1, len(p.quantiles_ms)), p.quantiles_ms)
        for p in curve.points
    }
    missing = [
        (length, batch) for length in curve.lengths for batch in curve.batches if (length, batch) not in by_shape
    ]
    if missing:
        raise ConfigError(
            f"the batch curve lacks length {missing[0][0]} at batch {missing[0][1]}. Measure every batch at every "
            "length.",
            key="curve",
        )
    return np.stack([np.stack([by_shape[length, batch] for batch in curve.batches]) for length in curve.lengths])


def _at(values: Floats, at: IntArray, wanted: int, stepped: bool) -> Floats:
    """values[k] belongs to at[k], ascending; the value at `wanted`, which is at most the last."""
    above = int(np.searchsorted(at, wanted))
    if stepped or above == 0 or at[above] == wanted:
        return np.asarray(values[above], dtype=np.float64)
    share = (wanted - at[above - 1]) / (at[above] - at[above - 1])
    return np.asarray(values[above - 1] + share * (values[above] - values[above - 1]), dtype=np.float64)


def _padded(length: int, lengths: tuple[int, ...], stepped: bool) -> int:
    return max(1, min(measured for measured in lengths if measured >= length) if stepped else length)
