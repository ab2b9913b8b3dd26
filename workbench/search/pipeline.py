"""evaluate(experiment, candidate): the pipeline, and the one place where a candidate's failure becomes a value.

Each stage costs more than the one before; a candidate that certainly violates a constraint, or is certainly
dominated, stops where that is known, with the reason and the amount. The float baseline and confirmations on the
holdout split take every stage.

    check → calibrate → lower → compile → smoke → accuracy_subset → latency_short → accuracy_full → latency_full
        → service (where the experiment says how requests come)

`predict` comes before what costs most: where every shape is a compile of its own before all of a set is compiled, else
before `latency_full`; see the stages `predict` and `dominated`.
"""

from __future__ import annotations

import contextlib
import datetime
import platform
from dataclasses import replace
from typing import Any

from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.batch_invariance import check_batch_invariance
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.metric_check import check_metric, look_at_decisions
from workbench.evaluation.overflow import overflow_of
from workbench.evaluation.padding_check import check_padding
from workbench.inputs.experiment import Experiment
from workbench.search.first_look import look
from workbench.search.stages.accuracy import fidelity, full_accuracy, growing_subsets, take_answers
from workbench.search.stages.dominated import dominated, looks_first
from workbench.search.stages.language import language, modelled
from workbench.search.stages.latency import full_latency, service, short_latency, timed_calls
from workbench.search.stages.predict import may_wait, predict, told_structure
from workbench.search.stages.request import Progress, Request, Task
from workbench.search.stages.smoke import SMOKE_SAMPLES, smoke
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError, CompileError
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
    steps, failure = Progress(request), None
    with contextlib.ExitStack() as sessions:
        try:
            if task.look:
                look(request, steps, sessions)
            else:
                _run(request, steps, sessions)
        except CandidateError as error:
            failure = failure_of(experiment, candidate, bench, split, steps.name, error)
    found = steps.steps[-1]
    status: Status = "failed" if failure else "stopped" if found.stop else "complete"
    return Evaluation(
        candidate=candidate,
        status=status,
        stage_reached=steps.name,
        split=split,
        measurement=found.measurement,
        stages=tuple(steps.timings),
        toolchain=bench.toolchain(candidate),
        started_at=started,
        failure=failure,
        stop=found.stop,
        cut=task.effort.words(experiment, split) if status == "complete" else (),
        reuse=found.reuse,
        prediction=found.prediction,
        place=Place(host=platform.node(), card=bench.card),
        fidelity=found.fidelity,
        overflow=found.overflow,
    )


def timed(experiment: Experiment, candidate: Candidate, bench: Bench) -> Latency:
    """A candidate's times on the validation split and nothing else, by the few calls of the short measurement.

    Raises:
        CandidateError: it cannot be compiled or run, or an INT8 one computes in float.
    """
    request = Request(experiment=experiment, candidate=candidate, bench=bench, gates=False)
    with contextlib.ExitStack() as sessions:
        steps = Progress(request)
        with steps.stage("check"):
            request.check()
        artifact, directory = artifact_of(experiment, candidate, bench, steps, split=request.split)
        if experiment.model.is_language_model:
            return modelled(request, artifact, directory)[0]
        if candidate.quantization.scheme != "none" and artifact.int8_ops == 0:
            raise CompileError("not one matrix product runs in an integer kernel.")
        with steps.stage("latency_short"):
            session = request.open(artifact, directory, candidate, sessions)
            baseline = session if request.is_baseline else request.open_baseline(sessions)
            return timed_calls(request, session, baseline, experiment.measure.short_calls, anchor=False)


def _run(request: Request, steps: Progress, sessions: contextlib.ExitStack) -> None:
    """Stage after stage, until one stops the candidate."""
    if request.experiment.model.is_language_model:
        language(request, steps)
        return
    with steps.stage("check"):
        request.check()
    if request.gated and not request.whole and may_wait(request.experiment, request.candidate):
        predict(request, steps)
        if steps.steps[-1].stop is not None:
            return
    # what follows is measured with the whole set
    found = replace(
        steps.found, measurement=Measurement(), prediction=steps.found.prediction or told_structure(request)
    )
    steps.then(found)
    artifact, directory = artifact_of(*request.at, steps, split=request.split)
    found = steps.found.of_files(artifact)
    steps.then(found)
    if request.candidate.quantization.scheme != "none" and artifact.int8_ops == 0:
        raise CompileError(
            f"not one of {artifact.float_matmuls_left} matrix products runs in an integer kernel: this INT8 model "
            "would compute in float, with extra work. `workbench inspect` shows which layers INT8 can serve."
        )
    if steps.then(found.within(request, {"size_mb": artifact.size_bytes / 1e6})):
        return
    with steps.stage("smoke"):
        session = request.open(artifact, directory, request.candidate, sessions)
        baseline = session if request.is_baseline else request.open_baseline(sessions)
        reference = request.open_reference(sessions)
        if steps.then(smoke(request, steps.found, session, reference or baseline)):
            return
        if request.is_baseline and request.split == "validation":
            check_padding(request.experiment, request.bench, session, request.split, SMOKE_SAMPLES)
            check_batch_invariance(request.experiment, request.bench, session, request.split)
            proof = check_metric(request.experiment, session, request.split)
            alike = look_at_decisions(request.experiment, session, request.split)
            steps.then(replace(steps.found, proof=proof, alike=alike))
    at = (request.effort.scored(request.experiment, request.split), request.candidate, request.bench, request.split)
    scores = AccuracyPass(*at, artifact=artifact, session=session, baseline=baseline, reference=reference)
    sessions.callback(scores.close)
    files = (session, baseline, artifact, directory)
    with steps.stage("accuracy_subset"):
        steps.then(take_answers(request, steps.found, scores, artifact, directory))
        if steps.then(growing_subsets(request, steps.found, scores)):
            return
    with steps.stage("latency_short"):
        if steps.then(short_latency(request, steps.found, *files, scores)):
            return
    with steps.stage("accuracy_full"):
        if request.split == "holdout":
            overflow = overflow_of(*request.at)
            steps.then(replace(steps.found, overflow=overflow))
        if steps.then(full_accuracy(request, steps.found, scores)):
            return
        if steps.then(fidelity(request, steps.found, session, baseline)):
            return
    if not request.whole and looks_first(request, steps.found):
        with steps.stage("predict"):
            if steps.then(dominated(request, steps.found)):
                return
    with steps.stage("latency_full"):
        steps.then(full_latency(request, steps.found, *files))
    if request.experiment.service is not None:
        with steps.stage("service"):
            steps.then(service(request, steps.found, *files))


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
