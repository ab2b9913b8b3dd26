"""From processor seconds of a loaded service to `HostCosts`: two equations for the front end, two for the workers.

Processor time counts seconds, whoever runs on the sibling thread; a cost is work. So seconds are first multiplied by
the speed at which they passed: with u processors busy in the mean (u > 1), each ran at capacity(u) / u.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.values.service import HostCosts, ServiceLoad

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """What one load of the service without a model cost.

    Attributes:
        clients: of the closed loop; in the run with one, batches hold one row and nobody waits for anybody. 0 where
            requests came at `rate_per_s`, independently of each other.
        requests, batches: answered, and run by workers, within `window_s`. Each request carries one row.
        front_s, workers_s, client_s: processor seconds of the front end's process, of all workers, of the client.
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
