"""Confirm by load: a real service under real requests, before anybody is told to ship it.

    found = confirm_bundle(bundle, best, seconds, bodies, seed=0)
    # ServiceFigures of kind 'measured', or the reason why a load says nothing

The service is the command that production runs. Answers are checked before they are counted: a service that is quick
and wrong confirms nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.bundle.golden import GoldenBatch, golden_batches
from workbench.bundle.opened import Bundle, read_bundle
from workbench.load import LoadPlan, bodies_of_bundle, run_load
from workbench.load.http1 import exchange
from workbench.load.result import P99_ANSWERS
from workbench.load.service_process import RunningService, running_service
from workbench.values.errors import MeasureError
from workbench.values.measurement import ServiceFigures
from workbench.values.service import ServiceLoad, ServiceSettings
from workbench.values.system.scratch import scratch_folder

_WARMUP_S = 2.0
_TIMEOUT_S = 60.0
LONGEST_LOAD = 6
"""Times what was asked: so long a load may last to give a P99."""
LOAD_START_S = 7.0
"""Writing and opening a bundle, starting its service, checking its answers, and the load's warm-up; roughly."""
SHORTEST_LOAD_S = 2.0
"""A load that is shorter says nothing."""


def confirm_bundle(
    bundle: Path, best: ServiceFigures, seconds: float, bodies: Sequence[str], *, seed: int
) -> ServiceFigures | str:
    """Serve a bundle that this process wrote as `best` says, load it as `best` was predicted; or say why not.

    On an emulated toolchain the service is started and its answers are checked, but it is not timed: the emulator's own
    time on the host says nothing about the device. Neither is a load for several devices put on this machine.

    Args:
        best: the prediction that is to be confirmed: its settings and its load.
        seconds: of load that count.

    Raises:
        MeasureError: the service answers wrongly, or not at all.
        BundleError: no bundle, or the service does not start.
    """
    opened = read_bundle(bundle)
    with (
        scratch_folder("load") as folder,
        running_service(bundle, log=folder / "serve.log", settings=best.settings, own=True) as running,
    ):
        check_answers(running, opened)
        if opened.manifest.artifact.toolchain.emulated:
            return "the device is emulated: its answers were checked, its times mean nothing"
        if best.devices > 1:
            return f"predicted for {best.devices} devices; this load generator and its host are not sized for them"
        return _loaded(running, best.settings, best.load, seconds, bodies, seed)


def load_bundle(bundle: Path, load: ServiceLoad, seconds: float, *, bodies: Sequence[str] = ()) -> ServiceFigures:
    """Serve a bundle with its own settings, check its answers, load it, stop it.

    Args:
        bodies: JSON requests (`workbench.load.bodies_of_…`); the golden samples when empty.

    Raises:
        MeasureError: the service answers wrongly, or not at all.
        BundleError: no bundle, or the service does not start.
    """
    opened = read_bundle(bundle)
    with scratch_folder("load") as folder, running_service(bundle, log=folder / "serve.log") as running:
        check_answers(running, opened)
        return _loaded(running, opened.manifest.service, load, seconds, bodies or bodies_of_bundle(opened), 0)


def check_answers(running: RunningService, bundle: Bundle) -> int:
    """Ask the service for the bundle's golden samples, one by one, and return how many there were.

    A sample is asked alone here and stood in a batch when its golden output was made, and dynamic INT8 scales follow
    the batch; so the decision (largest value along the last axis) must be the same wherever the golden one is decided
    by more than the bundle's tolerance. Outputs of one value must be within it.

    Raises:
        MeasureError: another decision, another shape, or no answer; names the sample.
    """
    checked = 0
    for batch in golden_batches(bundle):
        for row in range(len(next(iter(batch.feeds.values())))):
            _check(running, batch, row, f"golden sample {checked}", bundle)
            checked += 1
    return checked


def _loaded(
    running: RunningService,
    settings: ServiceSettings,
    load: ServiceLoad,
    seconds: float,
    bodies: Sequence[str],
    seed: int,
) -> ServiceFigures:
    """A load's result in the terms of a prediction.

    Raises:
        MeasureError: no request was answered, or the server gave no figures of its batches.
    """
    plan = LoadPlan(url=running.url, load=load, duration_s=seconds, warmup_s=_WARMUP_S, timeout_s=_TIMEOUT_S, seed=seed)
    result = run_load(plan, bodies, api_key=running.api_key, server_pid=running.pid)
    p50, p95, p99 = result.p50_ms, result.p95_ms, result.p99_ms
    if p50 is None or p95 is None or p99 is None:
        raise MeasureError(f"{result.url}: no request was answered ({result.failed} failed).", transient=True)
    server = result.server
    if server is None or server.mean_batch is None:
        raise MeasureError(f"{result.url}: /metrics did not say how it batched.", transient=True)
    enough = result.answered >= P99_ANSWERS
    return ServiceFigures(
        kind="measured",
        settings=settings,
        load=result.load,
        requests=result.requests,
        throughput_per_s=result.throughput_per_s,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        mean_batch=server.mean_batch,
        padding_share=server.padding_share or 0.0,  # none is told of samples that are no sequences
        worker_busy=min(1.0, server.worker_busy) if server.worker_busy is not None else None,
        errors=result.failed,
        reliable=result.reliable and enough,
        note="; ".join(result.notes),
    )


def load_seconds(best: ServiceFigures, seconds: float) -> float:
    """How long a load lasts: what was asked, or long enough for a P99 if the prediction is a third too high, within six
    times what was asked."""
    return min(max(seconds, 1.5 * P99_ANSWERS / best.throughput_per_s.value), LONGEST_LOAD * seconds)


def _check(running: RunningService, batch: GoldenBatch, row: int, sample: str, bundle: Bundle) -> None:
    headers = {"Content-Type": "application/json"}
    if running.api_key is not None:
        headers["X-API-Key"] = running.api_key
    body = json.dumps({"inputs": {n: np.asarray(a)[row : row + 1].tolist() for n, a in batch.feeds.items()}}).encode()
    try:
        status, _, text = exchange(running.url, "POST", "/predict", body, headers, _TIMEOUT_S)
    except OSError as error:
        raise MeasureError(f"{sample}: the service did not answer: {error}.", transient=True) from error
    if status != 200:
        raise MeasureError(f"{sample}: status {status}: {text[:300].decode('utf-8', 'replace')}")
    answer: dict[str, Any] = json.loads(text)["outputs"]
    for name, golden in batch.outputs.items():
        if name in bundle.manifest.model.shared_outputs:
            continue
        wanted = np.asarray(golden[row : row + 1], dtype=np.float64)
        found = np.asarray(answer.get(name), dtype=np.float64)
        if found.shape != wanted.shape:
            raise MeasureError(f"{sample}: {name} has the shape {found.shape}, not {wanted.shape}.")
        margin = bundle.manifest.tolerance.margin(wanted)
        if wanted.ndim < 2 or wanted.shape[-1] < 2:
            wrong = np.abs(found - wanted) > margin
        else:
            ordered = np.sort(wanted, axis=-1)
            decided = ordered[..., -1] - ordered[..., -2] > 2 * margin.max(axis=-1)
            wrong = decided & (found.argmax(axis=-1) != wanted.argmax(axis=-1))
        if wrong.any():
            raise MeasureError(
                f"{sample}: the service's {name} says something else than the bundle's golden output. "
                "It must not be shipped; compare with `workbench verify`."
            )
