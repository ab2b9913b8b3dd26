"""evaluate(experiment, candidate): the pipeline, and the one place where a candidate's failure becomes a value.

Each stage costs more than the one before; a candidate that certainly violates a constraint (of a language model: or is
certainly dominated) stops where that is known, with the reason and the amount. The float baseline and confirmations on
the holdout split take every stage.

    check → calibrate → lower → compile → smoke → accuracy_subset → latency_short → accuracy_full → latency_full
        → service (where the experiment says how requests come)

`predict` comes before all of a set is compiled, where every shape is a compile of its own; see the stage `predict`.
"""

from __future__ import annotations

import contextlib
import datetime
import platform
from dataclasses import replace
from typing import Any

from workbench.evaluation.batch_invariance import check_batch_invariance, check_padding
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.metric_check import check_metric, look_at_decisions
from workbench.evaluation.overflow import overflow_of
from workbench.inputs.experiment import Experiment
from workbench.search.first_look import look
from workbench.search.stages.accuracy import (
    full_accuracy,
    growing_subsets,
    measure_agreement,
    smoke,
    take_answers,
)
from workbench.search.stages.language import language, modelled
from workbench.search.stages.latency import full_latency, service, short_latency, timed_calls
from workbench.search.stages.predict import known_prediction, may_wait, predict
from workbench.search.stages.request import Progress, Request, Task, refuse_float
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError
from workbench.values.measurement import Latency, Measurement, Split
from workbench.values.results import Evaluation, Failure, Place, Status


def evaluate(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    **asked: Any,
) -> Evaluation:
    """As `carry_out`, by the fields of a `Task`."""
    return carry_out(Task(candidate=candidate, **asked), experiment, bench)


def carry_out(task: Task, experiment: Experiment, bench: Bench) -> Evaluation:
    """Take one candidate through the pipeline and return what became of it; a `CandidateError` becomes a `Failure`.

    Stages that another candidate already paid for come from the store. Times never do; within a sweep a candidate takes
    those of another whose files do the same work (`reusable`), and says so in `Evaluation.reuse`.

    Raises:
        ToolchainError: the machine, not the candidate, is at fault.
        ConfigError: of the baseline only: the model's answers depend on padding, and texts have several lengths; or
            the metric does not react to noise.
    """
    request, candidate, split = Request(experiment=experiment, bench=bench, **vars(task)), task.candidate, task.split
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    progress, failure = Progress(request), None
    with contextlib.ExitStack() as sessions:
        try:
            if task.look:
                look(request, progress, sessions)
            else:
                _run(request, progress, sessions)
        except CandidateError as error:
            failure = failure_of(experiment, candidate, bench, split, progress.name, error)
    result = progress.results[-1]
    status: Status = "failed" if failure else "stopped" if result.stop else "complete"
    return Evaluation(
        candidate=candidate,
        status=status,
        stage_reached=progress.name,
        split=split,
        measurement=result.measurement,
        stages=tuple(progress.timings),
        toolchain=bench.toolchain(candidate),
        started_at=started,
        failure=failure,
        stop=result.stop,
        cut=task.effort.words(experiment, split) if status == "complete" else (),
        reuse=result.reuse,
        prediction=result.prediction,
        place=Place(host=platform.node(), card=bench.card),
        agreement=result.agreement,
        overflow=result.overflow,
    )


def timed(experiment: Experiment, candidate: Candidate, bench: Bench) -> Latency:
    """A candidate's times on the validation split and nothing else, by the few calls of the short measurement.

    Raises:
        CandidateError: it cannot be compiled or run, or an INT8 one computes in float.
    """
    request = Request(experiment=experiment, candidate=candidate, bench=bench, gates=False)
    with contextlib.ExitStack() as sessions:
        progress = Progress(request)
        with progress.stage("check"):
            request.check()
        artifact, directory = artifact_of(experiment, candidate, bench, progress, split=request.split)
        if experiment.model.is_language_model:
            return modelled(request, artifact, directory)[0]
        refuse_float(candidate, artifact)
        with progress.stage("latency_short"):
            opened = request.opened(artifact, directory, sessions)
            return timed_calls(request, opened, experiment.measure.short_calls, anchor=False)


def _run(request: Request, progress: Progress, sessions: contextlib.ExitStack) -> None:
    """Stage after stage, until one stops the candidate."""
    if request.experiment.model.is_language_model:
        language(request, progress)
        return
    with progress.stage("check"):
        request.check()
    if request.gated and not request.whole and may_wait(request.experiment, request.candidate):
        predict(request, progress)
        if progress.results[-1].stop is not None:
            return
    # what follows is measured with the whole set
    result = replace(
        progress.result, measurement=Measurement(), prediction=progress.result.prediction or known_prediction(request)
    )
    progress.then(result)
    artifact, directory = artifact_of(*request.at, progress, split=request.split)
    result = progress.result.of_files(artifact)
    progress.then(result)
    refuse_float(request.candidate, artifact)
    if progress.then(result.within(request, {"size_mb": artifact.size_bytes / 1e6})):
        return
    with progress.stage("smoke"):
        opened = request.opened(artifact, directory, sessions)
        if progress.then(smoke(request, progress.result, opened)):
            return
        if request.is_baseline and request.split == "validation":
            check_padding(request.experiment, request.bench, opened.session, request.split)
            check_batch_invariance(request.experiment, request.bench, opened.session, request.split)
            proof = check_metric(request.experiment, opened.session, request.split, request.scores(opened).searching)
            alike = look_at_decisions(request.experiment, opened.session, request.split)
            progress.then(replace(progress.result, proof=proof, alike=alike))
    scores = request.scores(opened)
    with progress.stage("accuracy_subset"):
        progress.then(take_answers(request, progress.result, scores, opened))
        if progress.then(growing_subsets(request, progress.result, scores)):
            return
    with progress.stage("latency_short"):
        if progress.then(short_latency(request, progress.result, opened)):
            return
    with progress.stage("accuracy_full"):
        if request.split == "holdout":
            overflow = overflow_of(*request.at)
            progress.then(replace(progress.result, overflow=overflow))
        if progress.then(full_accuracy(request, progress.result, scores)):
            return
        if progress.then(measure_agreement(request, progress.result, opened)):
            return
    with progress.stage("latency_full"):
        progress.then(full_latency(request, progress.result, opened))
    if request.experiment.service is not None:
        with progress.stage("service"):
            progress.then(service(request, progress.result, opened))


def failed_evaluation(
    experiment: Experiment, candidate: Candidate, bench: Bench, split: Split, error: CandidateError
) -> Evaluation:
    """What stands for an evaluation that could not tell its end: nothing measured, and why."""
    return Evaluation(
        candidate=candidate,
        status="failed",
        stage_reached=error.stage,
        split=split,
        measurement=Measurement(),
        stages=(),
        toolchain=bench.toolchain(candidate),
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        failure=failure_of(experiment, candidate, bench, split, error.stage, error),
    )


def failure_of(
    experiment: Experiment, candidate: Candidate, bench: Bench, split: Split, stage: str, error: CandidateError
) -> Failure:
    log, left = bench.journal.log(candidate.id, split), bench.journal.log(candidate.id)
    text = error.log_path.read_text(encoding="utf-8", errors="replace") if error.log_path is not None else ""
    log.write_text(f"{stage}: {type(error).__name__}: {error}\n{text}", encoding="utf-8")
    if error.log_path == left:
        left.unlink()  # the log of a failed build, which is in this one now
    return Failure(
        stage=stage,
        kind=type(error).__name__,
        message=str(error),
        reproduce=f"workbench evaluate {experiment.path} --candidate {candidate.short_id}"
        + (" --holdout" if split == "holdout" else ""),
        log_path=str(log),
        transient=error.transient,
    )
