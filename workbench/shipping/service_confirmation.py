"""The end of a sweep with a service: the baseline and every front member are served and loaded for real.

What was predicted is kept beside what was measured; a member that does not serve as it should is not recommended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from workbench.bundle.write import write_bundle
from workbench.evaluation.bench import Bench, device_lock
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.load import bodies_of_dataset
from workbench.shipping.handover import bundle_contents
from workbench.shipping.load_confirmation import LOAD_START_S, SHORTEST_LOAD_S, confirm_bundle, load_seconds
from workbench.values.candidate import Candidate
from workbench.values.errors import MAX_CRASHES, BundleError, CandidateError, CrashError
from workbench.values.measurement import ServiceFigures, ServiceResult
from workbench.values.results import Evaluation
from workbench.values.system.scratch import scratch_folder


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
    server: Server | None = None,
    end: float | None = None,
) -> None:
    """Load each one as predicted on the holdout split, and write what was measured into its confirmation.

    Members that were loaded before are left alone, so an interrupted sweep goes on here too. Nothing is done where the
    experiment has no service or `confirm: 0`.

    Args:
        front: the most important first; with too little time, loads are shorter, and the last go without.
        report: told one sentence for each.
        server: None to prepare and check the bundles in this process.
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
        if server is None:
            found = served(experiment, candidate, bench, report=report, seconds=seconds)
        else:
            trial = LoadTrial(candidate=candidate, report=report, seconds=seconds, until=end)
            found = _served_elsewhere(server, trial, service)
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


def _served_elsewhere(server: Server, trial: LoadTrial, service: ServiceResult) -> ServiceResult:
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
