"""Serve a bundle without a model, load it, read what its processes spent, and fit `HostCosts` to it.

Two equations for the front end and two for the workers, over loads with few and with many rows in a batch: processor
time is so much for each request and so much for each batch. What is left of a lone client's latency is waiting. Of the
front end's time for a batch only as much comes before the worker's next one as the worker waits for it where
others queue.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt
import psutil

from workbench.evaluation.noise import OTHERS_CPUS
from workbench.evaluation.store import Store
from workbench.inputs.dataset import Dataset
from workbench.load import LoadPlan, bodies_of_dataset, run_load
from workbench.load.server import Samples, scrape
from workbench.load.service_process import RunningService, running_service
from workbench.prediction.host_costs.probe import write_probe
from workbench.targets import REFERENCE, open_target
from workbench.values.artifact import Toolchain
from workbench.values.documents.canonical import decode, encode
from workbench.values.errors import BundleError, ToolchainError
from workbench.values.model import Model
from workbench.values.service import HostCosts, ServiceLoad, ServiceSettings
from workbench.values.system.scratch import scratch_folder
from workbench.values.system.source_closure import closure_digest

CLIENTS = (1, 3, 32)
"""One meets an idle service, batch by batch of one row; a few keep it busy with small batches, many fill batches."""
LOAD_S = 0.3
REPEATS = 2
"""Of every load, in turns. Whatever disturbs a machine only adds to processor times (a shared one may make them several
times as long for seconds), so of each load the cheapest repetition counts."""
WARMUP_S = 0.1
LIMIT_S = 10.0
"""Of the whole: repetitions that do not fit are left out, and said so."""
_BODIES, _FEWEST_BODIES, _MOST_NUMBERS = 1000, 8, 4_000_000
_READ_S = 0.4e-6
"""For each number of a request as JSON, roughly."""
_UNREPEATED = 0.2
"""Spread of costs of which no load could be repeated [inferred]."""
_SETTINGS = ServiceSettings(max_batch_size=16)
_LIBRARIES = ("httptools", "uvloop", "tokenizers", "numpy")

_log = logging.getLogger(__name__)


def processors() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def host_costs(
    model: Model,
    dataset: Dataset,
    store: Store,
    *,
    report: Callable[[str], None] = _log.info,
) -> HostCosts:
    """What serving this model and data costs this host, from the store or measured now (some 10 s).

    Args:
        store: of the workspace, so that candidates of a sweep compare however often it is resumed.

    Depends on the model's inputs and outputs, the validation split's texts, this machine, and the code and libraries
    that serve.

    Raises:
        ToolchainError: the service cannot be started here, or failed under load.
    """
    toolchain, key = _key(model, dataset)

    def measured() -> object:
        report(f"measuring what serving costs this host beside the model (some {LIMIT_S:.0f} s)")
        return encode(measure_host_costs(model, dataset, toolchain))

    return decode(HostCosts, store.json_of("host_costs", key, measured), "host_costs")


def assumed_costs(model: Model, dataset: Dataset) -> HostCosts:
    """Of a host in front of a modelled device: none is here to be measured, and what keeps this machine busy is no
    part of it."""
    return HostCosts(
        request_ms=0.15 + 1000 * _READ_S * _numbers(dataset, model),
        batch_ms=0.2,
        worker_batch_ms=0.1,
        worker_row_ms=0.01,
        capacity=tuple(map(float, range(1, 17))),
        origin="assumed, as the device is modelled: state service.host of the experiment",
    )


def measuring_s(model: Model, dataset: Dataset, store: Store) -> float:
    """Roughly what `host_costs` would take now; 0 where they are known."""
    _, key = _key(model, dataset)
    return LIMIT_S if store.get_json("host_costs", key) is None else 0.0


def _key(model: Model, dataset: Dataset) -> tuple[Toolchain, dict[str, object]]:
    reference = open_target(REFERENCE)
    toolchain = reference.toolchain()
    key: dict[str, object] = {
        "inputs": model.inputs,
        "outputs": model.outputs,
        "data": dataset.digest("validation"),
        "toolchain": toolchain,
        "machine": [platform.release(), platform.python_version(), processors()],
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "code": closure_digest(
            *("workbench.serve", "workbench.load", "workbench.prediction.host_costs", type(reference).__module__)
        ),
    }
    return toolchain, key


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """What one load of the service without a model cost.

    Attributes:
        requests, batches: answered, and run by workers. Each request carries one row.
        front_s, workers_s, client_s: processor seconds of the front end, of all workers without their calls of the
            model, of the client.
        model_s: seconds the workers spent in calls of the model.
        wall_s: of the load.
        p50_ms: latency as its clients saw it.
        others: processors that others kept busy meanwhile.
    """

    requests: float
    batches: float
    front_s: float
    workers_s: float
    client_s: float
    model_s: float
    wall_s: float
    p50_ms: float
    others: float = 0.0

    @property
    def gap_ms(self) -> float:
        """That the one worker has no batch, for each of its batches."""
        return 1000 * max(self.wall_s - self.workers_s - self.model_s, 0.0) / self.batches

    @property
    def busy_ms(self) -> float:
        """Processor time of all processes for each request."""
        return 1000 * (self.front_s + self.workers_s + self.model_s + self.client_s) / self.requests


def measure_host_costs(
    model: Model,
    dataset: Dataset,
    toolchain: Toolchain,
    *,
    clients: Sequence[int] = CLIENTS,
    load_s: float = LOAD_S,
    limit_s: float = LIMIT_S,
) -> HostCosts:
    """The costs; their origin says whether they are whole and the machine was quiet meanwhile.

    Args:
        toolchain: of this machine, named as the origin.
        clients: of the closed loops that load it, the first 1.

    Raises:
        ToolchainError: the service cannot be started here, or failed under load.
    """
    began = time.perf_counter()
    numbers = _numbers(dataset, model)
    bodies = bodies_of_dataset(
        dataset, most=min(_BODIES, max(_FEWEST_BODIES, _MOST_NUMBERS // max(1, numbers))), model=model
    )
    load_s += 2 * max(clients) * numbers * _READ_S  # megabytes of JSON take long to read
    with scratch_folder("host") as folder:
        bundle = write_probe(folder, model, dataset, _SETTINGS)
        try:
            with running_service(bundle, log=folder / "service.log", own=True) as service:
                loading = time.perf_counter()
                seen = [[_load(service, bodies, count, load_s)] for count in clients]
                a_load_s = (time.perf_counter() - loading) / len(clients)
                for runs, count in [*zip(seen, clients, strict=True)] * (REPEATS - 1):
                    if time.perf_counter() - began + a_load_s <= limit_s:
                        runs.append(_load(service, bodies, count, load_s))
        except BundleError as error:
            raise ToolchainError(f"what serving costs this host cannot be measured: {error}") from error
    best = [min(runs, key=lambda run: run.busy_ms) for runs in seen]
    others, count = max(run.others for run in best), processors()
    words = f"measured on {toolchain.device}, {count} processor{'s' if count > 1 else ''}"
    if others >= OTHERS_CPUS:
        words += f", while others (processes, or guests of the same host) kept {others:.1f} of them: too high by that"
    if any(len(runs) < REPEATS for runs in seen):
        words += f", cut to {limit_s:g} s"
    costs = fit_costs(best, capacity=tuple(map(float, range(1, count + 1))), origin=words)
    return replace(costs, spread=_spread(seen))


def fit_costs(runs: Sequence[LoadedRun], *, capacity: tuple[float, ...], origin: str) -> HostCosts:
    """Non-negative least squares over the runs, whose relative errors count equally.

    Args:
        runs: with few and with many rows in a batch; the first is that of a single client, the others keep the worker
            busy.
    """
    counts = np.array([[run.requests, run.batches] for run in runs], dtype=np.float64)
    request_ms, batch_ms = _fitted_ms(counts, [run.front_s for run in runs])
    worker_row_ms, worker_batch_ms = _fitted_ms(counts, [run.workers_s for run in runs])
    transport_ms = max(runs[0].p50_ms - runs[0].busy_ms, 0.0)
    gap_ms = min((run.gap_ms for run in runs[1:]), default=batch_ms)
    before_ms = min(max(gap_ms - transport_ms, 0.0), batch_ms)
    return HostCosts(
        request_ms=request_ms,
        batch_ms=before_ms,
        batch_after_ms=batch_ms - before_ms,
        worker_batch_ms=worker_batch_ms,
        worker_row_ms=worker_row_ms,
        client_ms=1000 * sum(run.client_s for run in runs) / float(counts[:, 0].sum()),
        transport_ms=transport_ms,
        capacity=capacity,
        origin=origin,
    )


def _fitted_ms(counts: npt.NDArray[np.float64], seconds: Sequence[float]) -> tuple[float, float]:
    """Milliseconds for each request and batch, near what was spent in relative terms; zeros where nothing was."""
    from scipy.optimize import nnls  # a second of processor time, which most who import this module need not spend

    spent = np.array(seconds)
    some = spent > 0
    if not some.any():
        return 0.0, 0.0
    found, _ = nnls(counts[some] / spent[some, None], np.ones(int(some.sum())))
    return 1000 * float(found[0]), 1000 * float(found[1])


def _spread(repeated: Sequence[Sequence[LoadedRun]]) -> float:
    """Relative standard deviation of the costs, over loads: how far the middle repetition lies above its cheapest one,
    in processor time or in latency, whichever is more."""

    def above(costs: Sequence[float]) -> float:
        return median(costs) / min(costs) - 1

    spreads = [
        max(above([run.busy_ms for run in runs]), above([run.p50_ms for run in runs]))
        for runs in repeated
        if len(runs) > 1
    ]
    return median(spreads) if spreads else _UNREPEATED


def _numbers(dataset: Dataset, model: Model) -> int:
    """In one request."""
    fixed = next((spec.shape[0] for spec in model.inputs if spec.shape), 1)
    rows = fixed if isinstance(fixed, int) else 1
    first = next(iter(dataset.batches("validation", rows, stop=rows)))
    return sum(array.size for array in first.feeds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    """Counters at one moment: seconds of processors, and what the service counted.

    Attributes:
        own_s: of this process and its ended children, the load generator among them.
    """

    at_s: float
    front_s: float
    workers_s: float
    everybody_s: float
    own_s: float
    metrics: Samples


def _load(service: RunningService, bodies: Sequence[str], clients: int, load_s: float) -> LoadedRun:
    load = ServiceLoad(concurrency=clients)
    plan = LoadPlan(url=service.url, load=load, duration_s=load_s, warmup_s=WARMUP_S)
    before = _spent(service)
    result = run_load(plan, bodies, api_key=service.api_key, server_pid=service.pid)
    after = _spent(service)
    if result.failed:
        raise ToolchainError(
            f"the service without a model failed {result.failed} of {result.requests} requests: "
            f"{dict(result.statuses)} {dict(result.errors)}"
        )
    if result.p50_ms is None:
        raise ToolchainError(
            f"the service without a model answered nothing under {load} in {load_s:.0f} s. A request has "
            f"{len(bodies[0]) / 1e6:.1f} MB. Take `service:` out of the experiment to do without a service."
        )
    requests = _gained(before, after, "workbench_batch_rows_sum")
    window_s = result.window_s * requests / max(result.answered, 1)
    model_s = _gained(before, after, "workbench_model_duration_seconds_sum")
    front_s, workers_s = after.front_s - before.front_s, after.workers_s - before.workers_s
    spent_s = front_s + workers_s + (after.own_s - before.own_s)
    others = (after.everybody_s - before.everybody_s - spent_s) / (after.at_s - before.at_s)
    return LoadedRun(
        requests=requests,
        batches=_gained(before, after, "workbench_batch_rows_count"),
        front_s=front_s,
        workers_s=max(workers_s - model_s, 0.0),
        client_s=result.client_share * window_s,
        model_s=model_s,
        wall_s=window_s,
        p50_ms=result.p50_ms.value,
        others=max(others, 0.0),
    )


def _spent(service: RunningService) -> _Spent:
    metrics = scrape(*LoadPlan(url=service.url, load=ServiceLoad(concurrency=1)).address, service.api_key)
    if metrics is None:
        raise ToolchainError("the service without a model gives no metrics.")
    first = psutil.Process(service.pid)
    return _Spent(
        at_s=time.perf_counter(),
        front_s=_cpu_s(first),
        workers_s=sum(_cpu_s(child) for child in first.children(recursive=True)),
        everybody_s=_taken_s(psutil.cpu_times()),
        own_s=sum(os.times()[:4]),
        metrics=metrics,
    )


def _taken_s(times: object) -> float:
    """Seconds of all processors that somebody had: processes here, or the hypervisor for its other guests (steal).

    Args:
        times: as `psutil.cpu_times` gives them; platforms leave some out.
    """
    return sum(float(getattr(times, part, 0.0)) for part in ("user", "nice", "system", "irq", "softirq", "steal"))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _gained(before: _Spent, after: _Spent, name: str) -> float:
    return sum(after.metrics.get(name, {}).values()) - sum(before.metrics.get(name, {}).values())
