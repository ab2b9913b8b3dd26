"""Confirm by load: the real service of a candidate under real requests, before anybody is told to ship it.

    found = confirm_by_load(experiment, candidate, best, bench, journal, seconds=10)
    found.figures            # ServiceFigures of kind 'measured', or None with found.reason

The bundle is the one `workbench export` would write, served by the command production runs. Answers are checked
before they are counted: a service that is quick and wrong confirms nothing.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.bundle import Bundle, GoldenBatch, golden_batches, read_bundle, write_bundle
from workbench.evaluation.bench import Bench
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.load import LoadPlan, LoadResult, bodies_of_bundle, bodies_of_dataset, run_load
from workbench.load.http1 import exchange
from workbench.load.result import P99_ANSWERS
from workbench.load.service_process import RunningService, running_service
from workbench.shipping.handover import bundle_contents
from workbench.values.candidate import Candidate
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Attributes:
    figures: None where a load says nothing about the candidate; `reason` says why.
    answers: golden samples that the service answered as the bundle says it must.
    """

    figures: ServiceFigures | None
    answers: int
    reason: str = ""


def confirm_by_load(
    experiment: Experiment,
    candidate: Candidate,
    best: ServiceFigures,
    bench: Bench,
    journal: Journal,
    *,
    seconds: float,
    exactly: bool = False,
) -> Confirmation:
    """Write the candidate's bundle into a temporary folder, serve it as `best` says, load it as `best` was predicted.

    On an emulated toolchain the service is started and its answers are checked, but it is not timed: the emulator's own
    time on the host says nothing about the device. Neither is a load for several devices put on this machine.

    Args:
        best: the prediction that is to be confirmed: its settings and its load.
        seconds: of load that count; up to six times as many where the predicted throughput gives too few answers for a
            P99.
        exactly: so many and no more.

    Raises:
        CandidateError: it cannot be compiled or run any more, or (`MeasureError`) the service answers wrongly.
        ConfigError: the sweep has not measured the candidate in full.
        BundleError: the service does not start.
    """
    contents = bundle_contents(experiment, candidate, bench, journal)
    with scratch_folder("confirm") as folder:
        bundle = write_bundle(folder / "bundle", contents, allow_emulated=True)
        bodies = bodies_of_dataset(experiment.dataset, "holdout", model=experiment.model)
        lasts_s = seconds if exactly else load_seconds(best, seconds)
        return confirm_bundle(bundle, best, lasts_s, bodies, seed=experiment.seed)


def confirm_bundle(
    bundle: Path, best: ServiceFigures, seconds: float, bodies: Sequence[str], *, seed: int
) -> Confirmation:
    """The same over a bundle that is there already, for exactly so many seconds.

    Raises:
        MeasureError: the service answers wrongly, or not at all.
        BundleError: no bundle, or the service does not start.
    """
    opened = read_bundle(bundle)
    emulated = opened.manifest.artifact.toolchain.emulated
    with (
        scratch_folder("load") as folder,
        running_service(bundle, log=folder / "serve.log", settings=best.settings, own=True) as running,
    ):
        answers = check_answers(running, opened)
        reason = ""
        if emulated:
            reason = "the device is emulated: its answers were checked, its times mean nothing"
        elif best.devices > 1:
            reason = f"predicted for {best.devices} devices; this load generator and its host are not sized for them"
        if reason:
            return Confirmation(figures=None, answers=answers, reason=reason)
        result = _loaded(running, best.load, seconds, bodies, seed)
    return Confirmation(figures=service_figures(result, best.settings), answers=answers)


def load_bundle(
    bundle: Path,
    load: ServiceLoad,
    seconds: float,
    *,
    bodies: Sequence[str] = (),
) -> ServiceFigures:
    """Serve a bundle with its own settings, check its answers, load it, stop it.

    Args:
        bodies: JSON requests (`workbench.load.bodies_of_…`); the golden samples when empty.

    Raises:
        MeasureError: the service answers wrongly, or not at all.
        BundleError: no bundle, or the service does not start.
    """
    opened = read_bundle(bundle)
    with scratch_folder("load") as folder:
        log = folder / "serve.log"
        with running_service(bundle, log=log) as running:
            check_answers(running, opened)
            result = _loaded(running, load, seconds, bodies or bodies_of_bundle(opened), 0)
    return service_figures(result, opened.manifest.service)


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
            answer = _ask(running, {n: np.asarray(a)[row : row + 1].tolist() for n, a in batch.feeds.items()}, checked)
            _compare(answer, batch, row, checked, bundle)
            checked += 1
    return checked


def service_figures(result: LoadResult, settings: ServiceSettings) -> ServiceFigures:
    """A load's result in the terms of a prediction.

    Raises:
        MeasureError: no request was answered, or the server gave no figures of its batches.
    """
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


def _loaded(running: RunningService, load: ServiceLoad, seconds: float, bodies: Sequence[str], seed: int) -> LoadResult:
    plan = LoadPlan(url=running.url, load=load, duration_s=seconds, warmup_s=_WARMUP_S, timeout_s=_TIMEOUT_S, seed=seed)
    return run_load(plan, bodies, api_key=running.api_key, server_pid=running.pid)


def _ask(running: RunningService, inputs: dict[str, Any], number: int) -> dict[str, Any]:
    """The outputs of one sample given as arrays."""
    headers = {"Content-Type": "application/json"}
    if running.api_key is not None:
        headers["X-API-Key"] = running.api_key
    body = json.dumps({"inputs": inputs}).encode()
    try:
        status, _, text = exchange(running.url, "POST", "/predict", body, headers, _TIMEOUT_S)
    except (OSError, http.client.HTTPException) as error:
        raise MeasureError(f"golden sample {number}: the service did not answer: {error}.", transient=True) from error
    if status != 200:
        raise MeasureError(f"golden sample {number}: status {status}: {text[:300].decode('utf-8', 'replace')}")
    outputs: dict[str, Any] = json.loads(text)["outputs"]
    return outputs


def _compare(answer: dict[str, Any], batch: GoldenBatch, row: int, number: int, bundle: Bundle) -> None:
    tolerance = bundle.manifest.tolerance
    for name, golden in batch.outputs.items():
        if name in bundle.manifest.model.shared_outputs:
            continue
        wanted = np.asarray(golden[row : row + 1], dtype=np.float64)
        found = np.asarray(answer.get(name), dtype=np.float64)
        if found.shape != wanted.shape:
            raise MeasureError(f"golden sample {number}: {name} has the shape {found.shape}, not {wanted.shape}.")
        margin = tolerance.margin(wanted)
        if wanted.ndim < 2 or wanted.shape[-1] < 2:
            wrong = np.abs(found - wanted) > margin
        else:
            ordered = np.sort(wanted, axis=-1)
            decided = ordered[..., -1] - ordered[..., -2] > 2 * margin.max(axis=-1)
            wrong = decided & (found.argmax(axis=-1) != wanted.argmax(axis=-1))
        if wrong.any():
            raise MeasureError(
                f"golden sample {number}: the service's {name} says something else than the bundle's golden output. "
                "It must not be shipped; compare with `workbench verify`."
            )
