"""evaluate(experiment, candidate): the gate ladder, and the one place where a candidate's failure becomes a value.

Each stage costs more than the one before; a candidate that certainly violates a constraint, or is certainly
dominated, stops where that is known, with the reason and the amount. The float baseline and confirmations on the
holdout split climb the whole ladder.

    check → calibrate → lower → compile → smoke → accuracy_subset → latency_short → accuracy_full → latency_full
        → service (where the experiment says how requests come)

`predict` comes before what costs most: where every shape is a compile of its own before all of a set is compiled, else
before `latency_full`; see the rungs `predict` and `outserved`.
"""

from __future__ import annotations

import contextlib
import datetime
import platform
from collections.abc import Sequence
from dataclasses import replace

from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.bench import Bench
from workbench.evaluation.build import artifact_of
from workbench.evaluation.company_check import check_company
from workbench.evaluation.facts import NO_LOANS, Loans
from workbench.evaluation.metric_check import check_metric, look_at_decisions
from workbench.evaluation.overflow import overflow_of
from workbench.evaluation.padding_check import check_padding
from workbench.inputs.experiment import Experiment
from workbench.search.effort import FULL, Effort
from workbench.search.failure import failure_of
from workbench.search.first_look import look as look_at
from workbench.search.rungs.accuracy import full_accuracy, growing_subsets, take_answers
from workbench.search.rungs.climb import Climb
from workbench.search.rungs.fidelity import fidelity
from workbench.search.rungs.language import language, modelled
from workbench.search.rungs.latency import full_latency, short_latency, timed_calls
from workbench.search.rungs.outserved import looks_first, outserved
from workbench.search.rungs.predict import may_wait, predict, told_structure
from workbench.search.rungs.service import service
from workbench.search.rungs.smoke import SMOKE_SAMPLES, smoke
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError, CompileError
from workbench.values.measurement import Latency, Measurement, Split
from workbench.values.results import Evaluation, Failure, Place, Status, Stop


def evaluate(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    *,
    incumbents: Sequence[Evaluation] = (),
    split: Split = "validation",
    gates: bool = True,
    effort: Effort = FULL,
    loans: Loans = NO_LOANS,
    whole: bool = False,
    look: bool = False,
) -> Evaluation:
    """Take one candidate up the ladder and return what became of it; a `CandidateError` becomes a `Failure`.

    Stages that another candidate already paid for come from the store. Times never do; within a sweep a candidate takes
    those of another whose files do the same work (`loans`), and says so in `Evaluation.facts`.

    Args:
        incumbents: complete, feasible evaluations; a candidate certainly dominated by one of them stops early.
        gates: False climbs to the top whatever is seen on the way (confirmation on the holdout split).
        effort: how much of what the experiment asks for is done; what was not is in the evaluation's `cut`.
        loans: what may be taken from others; the baseline and a climb without gates take nothing.
        whole: compile every shape of its set and measure all, whatever could be predicted from less.
        look: a few seconds of it and no more, which end in a stop (`first_look`).

    Raises:
        ToolchainError: the machine, not the candidate, is at fault.
        ConfigError: of the baseline only: the model's answers depend on padding, and texts have several lengths; or
            the metric does not react to noise.
    """
    climb = Climb(experiment, candidate, bench, split, tuple(incumbents), gates, effort, loans)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    stop: Stop | None = None
    failure: Failure | None = None
    with contextlib.ExitStack() as sessions:
        try:
            stop = look_at(climb, sessions) if look else _run(climb, sessions, whole=whole)
        except CandidateError as error:
            failure = failure_of(experiment, candidate, bench, split, climb.name, error)
    status: Status = "failed" if failure else "stopped" if stop else "complete"
    return Evaluation(
        candidate=candidate,
        status=status,
        stage_reached=climb.name,
        split=split,
        measurement=climb.measurement,
        stages=tuple(climb.timings),
        toolchain=bench.toolchain(candidate),
        started_at=started,
        failure=failure,
        stop=stop,
        cut=effort.words(experiment, split) if status == "complete" else (),
        facts=climb.facts,
        forecast=climb.forecast,
        place=Place(host=platform.node(), card=bench.card),
        fidelity=climb.fidelity,
        overflow=climb.overflow,
    )


def timed(experiment: Experiment, candidate: Candidate, bench: Bench) -> Latency:
    """A candidate's times on the validation split and nothing else, by the few calls of the short measurement.

    Raises:
        CandidateError: it cannot be compiled or run, or an INT8 one computes in float.
    """
    climb = Climb(experiment, candidate, bench, "validation", (), False, FULL)
    with contextlib.ExitStack() as sessions:
        return _times(climb, sessions)


def _run(climb: Climb, sessions: contextlib.ExitStack, *, whole: bool) -> Stop | None:
    if climb.experiment.model.is_language_model:
        return language(climb)
    with climb.stage("check"):
        climb.check()
    if climb.gates and not whole and may_wait(climb.experiment, climb.candidate):
        if stop := predict(climb):
            return stop
        climb.measurement = Measurement()  # what follows is measured with the whole set
    climb.forecast = climb.forecast or told_structure(climb)
    artifact, directory = artifact_of(climb.experiment, climb.candidate, climb.bench, climb, split=climb.split)
    climb.measurement = replace(
        climb.measurement,
        size_bytes=artifact.size_bytes,
        int8_ops=artifact.int8_ops,
        float_matmuls_left=artifact.float_matmuls_left,
    )
    if climb.candidate.quantization.scheme != "none" and artifact.int8_ops == 0:
        raise CompileError(
            f"not one of {artifact.float_matmuls_left} matrix products runs in an integer kernel: this INT8 model "
            "would compute in float, with extra work. `workbench inspect` shows which layers INT8 can serve."
        )
    if stop := climb.over_limit({"size_mb": artifact.size_bytes / 1e6}):
        return stop
    with climb.stage("smoke"):
        session = climb.open(artifact, directory, climb.candidate, sessions)
        baseline = session if climb.is_baseline else climb.open_baseline(sessions)
        reference = climb.open_reference(sessions)
        if stop := smoke(climb, session, reference or baseline):
            return stop
        if climb.is_baseline and climb.split == "validation":
            check_padding(climb.experiment, climb.bench, session, climb.split, SMOKE_SAMPLES)
            check_company(climb.experiment, climb.bench, session, climb.split)
            climb.proof = check_metric(climb.experiment, session, climb.split)
            climb.alike = look_at_decisions(climb.experiment, session, climb.split)
    at = (climb.effort.scored(climb.experiment, climb.split), climb.candidate, climb.bench, climb.split)
    scores = AccuracyPass(*at, artifact=artifact, session=session, baseline=baseline, reference=reference)
    sessions.callback(scores.close)
    with climb.stage("accuracy_subset"):
        take_answers(climb, scores, artifact, directory)
        if stop := growing_subsets(climb, scores):
            return stop
    with climb.stage("latency_short"):
        if stop := short_latency(climb, session, baseline, scores, artifact, directory):
            return stop
    with climb.stage("accuracy_full"):
        if climb.split == "holdout":
            climb.overflow = overflow_of(climb.experiment, climb.candidate, climb.bench)
        if stop := full_accuracy(climb, scores) or fidelity(climb, session, baseline):
            return stop
    if not whole and looks_first(climb):
        with climb.stage("predict"):
            if stop := outserved(climb):
                return stop
    with climb.stage("latency_full"):
        if stop := full_latency(climb, session, baseline, artifact, directory):
            return stop
    if climb.experiment.service is None:
        return None
    with climb.stage("service"):
        return service(climb, session, baseline, artifact, directory)


def _times(climb: Climb, sessions: contextlib.ExitStack) -> Latency:
    """The way up past everything that is not timing."""
    with climb.stage("check"):
        climb.check()
    artifact, directory = artifact_of(climb.experiment, climb.candidate, climb.bench, climb, split=climb.split)
    if climb.experiment.model.is_language_model:
        return modelled(climb, artifact, directory)[0]
    if climb.candidate.quantization.scheme != "none" and artifact.int8_ops == 0:
        raise CompileError("not one matrix product runs in an integer kernel.")
    with climb.stage("latency_short"):
        session = climb.open(artifact, directory, climb.candidate, sessions)
        baseline = session if climb.is_baseline else climb.open_baseline(sessions)
        return timed_calls(climb, session, baseline, climb.experiment.measure.short_calls, anchor=False)
