"""What front ends cost that are processes of their own, and what is left to the process with queues and workers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from workbench.load import LoadPlan, run_load
from workbench.load.server import Samples, scrape
from workbench.load.service_process import RunningService, running_service
from workbench.prediction.host_costs.fit import LoadedRun, busy_ms, relative_fit, speed_of
from workbench.values.errors import ToolchainError
from workbench.values.service import ServiceLoad

FRONT_ENDS = 2
SEVERAL_S = 12.0
"""That it takes."""
_CLIENTS = (2, 32)
"""Few fill small messages and batches, many fill large ones."""
_REPEATS = 3
"""In turns; the cheapest counts, as whatever disturbs a machine only adds."""
_WARMUP_S = 0.3
_READY = re.compile(r'"event": "front_end_ready".*?"pid": (\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """`front_end_ms`, `passed_row_ms` and `passed_batch_ms` of `HostCosts`; 0 where nothing was measured."""

    front_end_ms: float = 0.0
    row_ms: float = 0.0
    batch_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    first_s: float
    fronts_s: float
    workers_s: float
    metrics: Samples


def measure_several(
    bundle: Path, log: Path, bodies: Sequence[str], capacity: tuple[float, ...], load_s: float
) -> Passed:
    """Load a service with two front ends.

    Raises:
        BundleError: the service does not start.
        ToolchainError: it answers nothing.
    """
    more = ("--policy", "warn", "--front-ends", str(FRONT_ENDS))
    with running_service(bundle, log=log, more=more, own=True) as service:
        runs = [[_loaded(service, bodies, count, load_s) for count in _CLIENTS] for _ in range(_REPEATS)]
    best = [min(found, key=lambda run: busy_ms(run[0])) for found in zip(*runs, strict=True)]
    speed = np.array([speed_of(run, capacity) for run, _ in best])
    counts = np.array([[run.requests, run.batches] for run, _ in best], dtype=np.float64)
    row_ms, batch_ms = 1000 * relative_fit(counts, speed * np.array([first_s for _, first_s in best]))
    fronts_s = speed * np.array([run.front_s - first_s for run, first_s in best])
    front_end_ms = float(1000 * fronts_s.sum() / counts[:, 0].sum())
    return Passed(front_end_ms=front_end_ms, row_ms=float(row_ms), batch_ms=float(batch_ms))


def _loaded(service: RunningService, bodies: Sequence[str], clients: int, load_s: float) -> tuple[LoadedRun, float]:
    """One load, and the processor seconds in it of the process with the queues."""
    plan = LoadPlan(url=service.url, load=ServiceLoad(concurrency=clients), duration_s=2 * load_s, warmup_s=_WARMUP_S)
    before = _spent(service, plan)
    result = run_load(plan, bodies, api_key=service.api_key, server_pid=service.pid)
    after = _spent(service, plan)
    if result.p50_ms is None or result.failed:
        raise ToolchainError(
            f"the service with {FRONT_ENDS} front ends and without a model failed {result.failed} of "
            f"{result.requests} requests: {dict(result.statuses)} {dict(result.errors)}"
        )
    requests = _gained(before, after, "workbench_batch_rows_sum")
    first_s = after.first_s - before.first_s
    run = LoadedRun(
        clients=clients,
        window_s=result.window_s * requests / max(result.answered, 1),
        requests=round(requests),
        batches=round(_gained(before, after, "workbench_batch_rows_count")),
        front_s=first_s + after.fronts_s - before.fronts_s,
        workers_s=after.workers_s - before.workers_s,
        client_s=result.client_share * result.window_s * requests / max(result.answered, 1),
        model_s=_gained(before, after, "workbench_model_duration_seconds_sum"),
        p50_ms=result.p50_ms.value,
        p99_ms=(result.p99_ms or result.p50_ms).value,
    )
    return run, first_s


def _spent(service: RunningService, plan: LoadPlan) -> _Spent:
    metrics = scrape(*plan.address, service.api_key)
    if metrics is None:
        raise ToolchainError("the service without a model gives no metrics.")
    first = psutil.Process(service.pid)
    fronts = {int(pid) for pid in _READY.findall(service.log.read_text(encoding="utf-8"))}
    seconds = {child.pid: sum(child.cpu_times()[:2]) for child in first.children(recursive=True)}
    return _Spent(
        first_s=sum(first.cpu_times()[:2]),
        fronts_s=sum(spent for pid, spent in seconds.items() if pid in fronts),
        workers_s=sum(spent for pid, spent in seconds.items() if pid not in fronts),
        metrics=metrics,
    )


def _gained(before: _Spent, after: _Spent, name: str) -> float:
    return sum(after.metrics.get(name, {}).values()) - sum(before.metrics.get(name, {}).values())
