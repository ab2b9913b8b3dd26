"""Confirm by load: a real service under real requests, before anybody is told to ship it.

    found = confirm_bundle(bundle, best, seconds, bodies, seed=0)
    # ServiceFigures of kind 'measured', or the reason why a load says nothing

The service is the command that production runs. Answers are checked before they are counted: a service that is quick
and wrong confirms nothing. At the end of a sweep the baseline and every front member are loaded so; what was predicted
is kept beside what was measured, and a member that does not serve as it should is not recommended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.bundle.golden import GoldenBatch, golden_batches
from workbench.bundle.opened import Bundle, read_bundle
from workbench.bundle.write import write_bundle
from workbench.evaluation.bench import Bench, device_lock
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.load import LoadPlan, bodies_of_bundle, bodies_of_dataset, run_load
from workbench.load.http1 import exchange
from workbench.load.result import P99_ANSWERS
from workbench.load.service_process import RunningService, running_service
from workbench.shipping.handover import bundle_contents
from workbench.values.candidate import Candidate
from workbench.values.errors import MAX_CRASHES, BundleError, CandidateError, CrashError, MeasureError
from workbench.values.measurement import ServiceFigures, ServiceResult
from workbench.values.results import Evaluation
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


# --- at the end of a sweep ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTrial:
    """One candidate to be served and loaded.

    Attributes:
        report: told one sentence for each step.
        seconds: of load, exactly; None for as long as the experiment asks for.
        until: moment of `time.perf_counter` at which it is ended; None for no such moment.
    """

    candidate: Candidate
    report: Callable[[str], None]
    seconds: float | None = None
    until: float | None = None


Server = Callable[[LoadTrial], ServiceResult]
"""Carries a trial out and says what the confirmation then holds of the service; raises a CrashError where the process
that did so died."""


def confirm_services(
    experiment: Experiment,
    bench: Bench,
    journal: Journal,
    front: Sequence[Evaluation],
    *,
    report: Callable[[str], None],
    server: Server,
    end: float | None = None,
) -> None:
    """Load each one as predicted on the holdout split, and write what was measured into its confirmation.

    Members that were loaded before are left alone, so an interrupted sweep goes on here too. Nothing is done where the
    experiment has no service or `confirm: 0`.

    Args:
        front: the most important first; with too little time, loads are shorter, and the last go without.
        report: told one sentence for each.
        end: moment of `time.perf_counter` at which all of it must be over.
    """
    question = experiment.service
    if question is None or question.confirm_s <= 0:
        return
    todo = [(c, *it) for c in left_to_load(experiment, journal, front) if (it := _to_load(journal, c.id)) is not None]
    while todo:
        fits, seconds = _fitting([best for *_, best in todo], question.confirm_s, end)
        if not fits:
            break
        candidate, confirmed, service, best = todo.pop(0)
        report(f"{candidate.short_id}: serving it, {best.settings}, under {best.load}")
        trial = LoadTrial(candidate=candidate, report=report, seconds=seconds, until=end)
        found = _served(server, trial, service)
        measurement = replace(confirmed.measurement, service=found)
        shorter = () if seconds is None else (f"{seconds:.1f} s of load instead of {question.confirm_s:g} s",)
        journal.write(replace(confirmed, measurement=measurement, cut=(*confirmed.cut, *shorter)))
        report(f"{candidate.short_id}: {_words(found)}")


def left_to_load(experiment: Experiment, journal: Journal, front: Sequence[Evaluation]) -> list[Candidate]:
    """Front members and the baseline whose confirmation predicts a service that no load has been tried on.

    First who would be recommended, whose figures are to be measured ones; then the baseline that it is held against.
    """
    if experiment.service is None or experiment.service.confirm_s <= 0:
        return []
    members = [e.candidate for e in front]
    candidates = {c.id: c for c in (*members[:1], experiment.baseline, *members)}
    return [c for i, c in candidates.items() if _to_load(journal, i) is not None]


def _to_load(journal: Journal, candidate_id: str) -> tuple[Evaluation, ServiceResult, ServiceFigures] | None:
    """A confirmation with the prediction that a load is to confirm; None without one, or where a load was tried."""
    confirmed = journal.evaluation(candidate_id, "holdout")
    service = None if confirmed is None else confirmed.measurement.service
    if confirmed is None or service is None or service.confirmed or service.note or service.best is None:
        return None
    return confirmed, service, service.best


def _fitting(todo: Sequence[ServiceFigures], asked_s: float, end: float | None) -> tuple[bool, float | None]:
    """Whether there is time for one more load, and how many seconds it lasts; None for as long as it should."""
    if end is None:
        return True, None
    left_s = end - time.perf_counter()
    if sum(LOAD_START_S + load_seconds(best, asked_s) for best in todo) <= left_s:
        return True, None
    each_s = min(asked_s, left_s / len(todo) - LOAD_START_S)
    if each_s >= SHORTEST_LOAD_S:
        return True, each_s
    return left_s >= LOAD_START_S + SHORTEST_LOAD_S, SHORTEST_LOAD_S


def served(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    *,
    report: Callable[[str], None],
    seconds: float | None = None,
) -> ServiceResult:
    """Serve and load one candidate, whose confirmation is in the journal and has a best service; write nothing.

    Args:
        seconds: of load, exactly; None for what the experiment asks for, or longer where a P99 needs it.
    """
    question, confirmed = experiment.service, bench.journal.evaluation(candidate.id, "holdout")
    service = confirmed.measurement.service if confirmed is not None else None
    if question is None or service is None or service.best is None:
        raise ValueError(f"{candidate.short_id} has no confirmed service to load")
    best = service.best
    lasts_s = load_seconds(best, question.confirm_s) if seconds is None else seconds
    try:
        with device_lock(bench.device_lock, wait_s=3600.0, report=report), scratch_folder("confirm") as folder:
            contents = bundle_contents(experiment, candidate, bench, bench.journal)
            bundle = write_bundle(folder / "bundle", contents, allow_emulated=True)
            bodies = bodies_of_dataset(experiment.dataset, "holdout", model=experiment.model)
            found = confirm_bundle(bundle, best, lasts_s, bodies, seed=experiment.seed)
    except (CandidateError, BundleError) as error:
        if isinstance(error, CandidateError) and error.transient:  # the machine's moment, not the candidate's fault
            return replace(service, note=f"the load could not be run: {error}")
        return replace(service, best=None, closest=best, note=f"it does not serve: {error}")
    return replace(service, note=found) if isinstance(found, str) else replace(service, confirmed=found)


def _served(server: Server, trial: LoadTrial, service: ServiceResult) -> ServiceResult:
    """A candidate whose process dies is tried once more, and then not recommended."""
    for attempt in range(1, MAX_CRASHES + 1):
        try:
            return server(trial)
        except CrashError as crash:
            trial.report(f"{trial.candidate.short_id}: {crash}")
            last = f"its process died {attempt} times. {crash}"
    assert service.best is not None  # else it is not served
    return replace(service, best=None, closest=service.best, note=f"it does not serve: {last}")


def _words(service: ServiceResult) -> str:
    if service.confirmed is None or service.best is None:
        return service.note
    predicted, measured = service.best, service.confirmed
    rate, p99 = predicted.throughput_per_s, predicted.p99_ms
    off = 100 * (rate.value / measured.throughput_per_s.value - 1)
    errors = f", {measured.errors} errors" if measured.errors else ""
    doubt = "" if measured.reliable else f" (unreliable: {measured.note})"
    return (
        f"measured {measured.throughput_per_s.value:.0f}/s, P99 {measured.p99_ms.value:.0f} ms{errors}; predicted "
        f"{rate.value:.0f}/s [{rate.low:.0f}, {rate.high:.0f}] ({off:+.0f} %), "
        f"P99 {p99.value:.0f} ms [{p99.low:.0f}, {p99.high:.0f}]{doubt}"
    )
