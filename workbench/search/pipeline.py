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
from collections.abc import Sequence
from dataclasses import replace

from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.batch_invariance import check_batch_invariance
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.metric_check import check_metric, look_at_decisions
from workbench.evaluation.overflow import overflow_of
from workbench.evaluation.padding_check import check_padding
from workbench.evaluation.reuse import NOTHING_REUSABLE, Reusable
from workbench.inputs.experiment import Experiment
from workbench.search.effort import FULL, Effort
from workbench.search.failure import failure_of
from workbench.search.first_look import look as look_at
from workbench.search.stages.accuracy import full_accuracy, growing_subsets, take_answers
from workbench.search.stages.dominated import dominated, looks_first
from workbench.search.stages.fidelity import fidelity
from workbench.search.stages.language import language, modelled
from workbench.search.stages.latency import full_latency, short_latency, timed_calls
from workbench.search.stages.predict import may_wait, predict, told_structure
from workbench.search.stages.request import Progress, Request
from workbench.search.stages.service import service
from workbench.search.stages.smoke import SMOKE_SAMPLES, smoke
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError, CompileError
from workbench.values.measurement import Latency, Measurement, Split
from workbench.values.results import Evaluation, Place, Status


def evaluate(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    *,
    incumbents: Sequence[Evaluation] = (),
    split: Split = "validation",
    gates: bool = True,
    effort: Effort = FULL,
    reusable: Reusable = NOTHING_REUSABLE,
    whole: bool = False,
    look: bool = False,
) -> Evaluation:
    """Take one candidate through the pipeline and return what became of it; a `CandidateError` becomes a `Failure`.

    Stages that another candidate already paid for come from the store. Times never do; within a sweep a candidate takes
    those of another whose files do the same work (`reusable`), and says so in `Evaluation.reuse`.

    Args:
        incumbents: complete, feasible evaluations; a candidate certainly dominated by one of them stops early.
        gates: False takes every stage whatever is seen on the way (confirmation on the holdout split).
        effort: how much of what the experiment asks for is done; what was not is in the evaluation's `cut`.
        reusable: what may be taken from others; the baseline and a run without gates take nothing.
        whole: compile every shape of its set and measure all, whatever could be predicted from less.
        look: a few seconds of it and no more, which end in a stop (`first_look`).

    Raises:
        ToolchainError: the machine, not the candidate, is at fault.
        ConfigError: of the baseline only: the model's answers depend on padding, and texts have several lengths; or
            the metric does not react to noise.
    """
    request = Request(
        experiment=experiment,
        candidate=candidate,
        bench=bench,
        split=split,
        incumbents=tuple(incumbents),
        gates=gates,
        effort=effort,
        reusable=reusable,
    )
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    steps, failure = Progress(request), None
    with contextlib.ExitStack() as sessions:
        try:
            if look:
                look_at(request, steps, sessions)
            else:
                _run(request, steps, sessions, whole=whole)
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
        cut=effort.words(experiment, split) if status == "complete" else (),
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


def _run(request: Request, steps: Progress, sessions: contextlib.ExitStack, *, whole: bool) -> None:
    """Stage after stage, until one stops the candidate."""
    if request.experiment.model.is_language_model:
        language(request, steps)
        return
    with steps.stage("check"):
        request.check()
    if request.gated and not whole and may_wait(request.experiment, request.candidate):
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
    if not whole and looks_first(request, steps.found):
        with steps.stage("predict"):
            if steps.then(dominated(request, steps.found)):
                return
    with steps.stage("latency_full"):
        steps.then(full_latency(request, steps.found, *files))
    if request.experiment.service is not None:
        with steps.stage("service"):
            steps.then(service(request, steps.found, *files))
