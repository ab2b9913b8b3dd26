"""What a stage is given and what it gives: an evaluation as it was asked for, and what is known of it so far.

Both are values; `Progress` alone grows, by one `StageResult` for each step. A search measures all its candidates with
one effort, so that they compare; each confirmation has its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.bench import Bench, StageClock
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import apart_from_baseline, open_reference
from workbench.evaluation.reuse import NOTHING_REUSABLE, Reusable
from workbench.inputs.dataset import Dataset
from workbench.inputs.experiment import Experiment
from workbench.search.refusals import candidate_errors
from workbench.targets.base import Session
from workbench.values.agreement import Agreements
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.errors import CheckError, CompileError
from workbench.values.measurement import Measurement, Split
from workbench.values.objectives import violations
from workbench.values.results import Evaluation, Prediction, StageTiming, Stop
from workbench.values.reuse import Reuse, ReuseKind

FEWEST_CALLS = 50
"""Two a round: below that a round has no middle."""
FEWEST_SAMPLES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much of what an experiment asks for is measured: shares, less than all where the run's time is short.

    Attributes:
        calls: of the timed calls and of the rounds over a curve's shapes; `load` of the seconds under load that are
            reckoned with; `samples` of the split.
        curve: False predicts the service by the batch curve that the search timed, instead of timing it again.
        loaded: so it is predicted because a load measures the service next, which is no less than what was asked.
    """

    calls: float = 1.0
    load: float = 1.0
    samples: float = 1.0
    curve: bool = True
    loaded: bool = False

    def timed_calls(self, experiment: Experiment) -> int:
        asked = experiment.measure.calls
        return min(asked, max(FEWEST_CALLS, round(asked * self.calls)))

    def scored_samples(self, experiment: Experiment, split: Split) -> int:
        there = experiment.dataset.size(split)
        return min(there, max(FEWEST_SAMPLES, round(there * self.samples)))

    def scored(self, experiment: Experiment, split: Split) -> Experiment:
        """The experiment with as many samples of the split as are scored: its first, which are a fair sample of it."""
        count = self.scored_samples(experiment, split)
        if count == experiment.dataset.size(split):
            return experiment
        first = experiment.dataset.first(**{split: count})
        return replace(experiment, dataset=first)

    def words(self, experiment: Experiment, split: Split) -> tuple[str, ...]:
        """What is less than the experiment asks for; nothing where all of it is done."""
        calls, asked = self.timed_calls(experiment), experiment.measure.calls
        samples, there = self.scored_samples(experiment, split), experiment.dataset.size(split)
        found = [f"{calls} of {asked} timed calls"] if calls < asked else []
        found += [f"{samples} of {there} samples"] if samples < there else []
        if experiment.service is not None and not self.curve and not self.loaded:
            found.append("the batch curve of the search")
        return tuple(found)


FULL = Effort()
EFFORTS = (
    FULL,
    Effort(calls=0.5, load=0.5),
    Effort(calls=0.25, load=0.25, curve=False),
    Effort(calls=0.1, load=0.25, samples=0.25, curve=False),
)
"""From all to the least that still says something; samples go last, since what a confirmation is for is accuracy."""


def effort_of_search(experiment: Experiment, known: Mapping[str, Evaluation]) -> Effort:
    """The effort of a sweep's search, by what its evaluations say was cut; full before the first is complete."""
    measured = next((e.cut for e in known.values() if e.status == "complete"), ())
    return next((effort for effort in EFFORTS if effort.words(experiment, "validation") == measured), FULL)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One evaluation as it is asked for; crosses to another process as JSON (`canonical.encode`).

    Attributes:
        gates: False takes every stage whatever is seen on the way (confirmation on the holdout split).
        effort: how much of what the experiment asks for is done; what was not is in the evaluation's `cut`.
        reusable: what may be taken from others; the baseline and a run without gates take nothing.
        whole: compile every shape of its set and measure all, whatever could be predicted from less.
        look: a few seconds of it and no more, which end in a stop (`first_look`).
    """

    candidate: Candidate
    split: Split = "validation"
    gates: bool = True
    effort: Effort = FULL
    reusable: Reusable = NOTHING_REUSABLE
    whole: bool = False
    look: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A candidate's files with the sessions that stages run.

    Attributes:
        baseline: the float baseline's; the candidate's own where that is it.
        reference: what accuracy is compared with, where that is not the baseline.
    """

    candidate: Candidate
    artifact: Artifact
    directory: Path
    session: Session
    baseline: Session
    reference: Session | None

    @property
    def exact(self) -> Session:
        """The float model in float32."""
        return self.reference or self.baseline


def refuse_float(candidate: Candidate, artifact: Artifact) -> None:
    """Raises CompileError: an INT8 candidate whose files compute in float."""
    if candidate.quantization.scheme != "none" and artifact.int8_ops == 0:
        raise CompileError(
            f"not one of {artifact.float_matmuls_left} matrix products runs in an integer kernel: this INT8 model "
            "would compute in float, with extra work. `workbench inspect` shows which layers INT8 can serve."
        )


@dataclass(frozen=True, kw_only=True)
class Request(Task):
    """A task, and what it is carried out with."""

    experiment: Experiment
    bench: Bench

    @property
    def at(self) -> tuple[Experiment, Candidate, Bench]:
        """What most of a stage's parts are asked with."""
        return self.experiment, self.candidate, self.bench

    @property
    def is_baseline(self) -> bool:
        return self.candidate.id == self.experiment.baseline.id

    @property
    def gated(self) -> bool:
        return self.gates and not self.is_baseline

    @cached_property
    def data(self) -> Dataset:
        """Candidate and baseline are each fed their own bins, as they would be served."""
        return self.experiment.dataset.with_bins(self.candidate.sequence_bins)

    @cached_property
    def baseline_data(self) -> Dataset:
        return self.experiment.dataset.with_bins(self.experiment.baseline.sequence_bins)

    def check(self) -> None:
        errors = candidate_errors(self.bench.target(self.candidate), self.experiment.model, self.candidate)
        if errors:
            more = f" ({len(errors) - 1} more: see `workbench inspect`.)" if len(errors) > 1 else ""
            where = f"{errors[0].operator} {errors[0].node!r}".lstrip()
            raise CheckError(f"{where}: {errors[0].problem} {errors[0].remedy}{more}")
        batch, fixed = self.candidate.serving.batch, self.experiment.model.fixed_batch
        if fixed is not None and batch > fixed:  # it would be several calls, and timed as one
            raise CheckError(f"the model takes batches of {fixed}, not of {batch}. Set serving.batch to {fixed}.")

    def opened(
        self, artifact: Artifact, directory: Path, sessions: contextlib.ExitStack, candidate: Candidate | None = None
    ) -> Opened:
        """Args: candidate: whose files these are, where that is the same one with fewer shapes."""

        def kept(session: Session) -> Session:
            sessions.callback(session.close)
            return session

        one, baseline = candidate or self.candidate, self.experiment.baseline
        session = kept(self.bench.target(one).open(artifact, directory, one))
        files = () if self.is_baseline else artifact_of(self.experiment, baseline, self.bench)
        return Opened(
            candidate=one,
            artifact=artifact,
            directory=directory,
            session=session,
            baseline=kept(self.bench.target(baseline).open(*files, baseline)) if files else session,
            reference=kept(open_reference(self.experiment.model)) if apart_from_baseline(self.experiment) else None,
        )

    def scores(self, opened: Opened) -> AccuracyPass:
        return AccuracyPass(
            self.effort.scored(self.experiment, self.split),
            opened.candidate,
            self.bench,
            self.split,
            artifact=opened.artifact,
            session=opened.session,
            baseline=opened.baseline,
            reference=opened.reference,
        )

    def source(self, kind: ReuseKind, key: str) -> Evaluation | None:
        """Whose measurement has this key; None where nobody's has, and for baseline and confirmations, which reuse
        nothing."""
        if not self.gated or f"{self.candidate.target} {kind}" in self.reusable.stopped:
            return None
        candidate_id = self.reusable.sources.get(key)
        return None if candidate_id is None else self.bench.journal.evaluation(candidate_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """What is known of a candidate after a step.

    Attributes:
        stage: the step's.
        stop: why it takes no further stage.
        cached: the step's result was there before.
        witness: digest of its outputs for the smoke samples.
        proof: that the metric reacts to noise, in words; `alike`: that all samples are decided alike, where they are.
    """

    stage: str = "check"
    stop: Stop | None = None
    cached: bool = False
    measurement: Measurement = field(default_factory=Measurement)
    reuse: tuple[Reuse, ...] = ()
    prediction: Prediction | None = None
    agreement: Agreements | None = None
    witness: str = ""
    proof: str = ""
    alike: str = ""
    overflow: str = ""

    def measured(self, **changes: Any) -> StageResult:
        """With these fields of its measurement."""
        return replace(self, measurement=replace(self.measurement, **changes))

    def of_files(self, artifact: Artifact) -> StageResult:
        """With what the compiled files tell."""
        return self.measured(
            size_bytes=artifact.size_bytes, int8_ops=artifact.int8_ops, float_matmuls_left=artifact.float_matmuls_left
        )

    def under(self, reuse: Reuse) -> StageResult:
        """With what is said of one measurement's key and source."""
        return replace(self, reuse=(*(each for each in self.reuse if each.kind != reuse.kind), reuse))

    def source(self, kind: ReuseKind) -> str | None:
        """Id of the candidate whose measurement it took."""
        return next((each.source for each in self.reuse if each.kind == kind), None)

    def stopped(self, reason: str, violated: Mapping[str, float] | None = None) -> StageResult:
        return replace(self, stop=Stop(stage=self.stage, reason=reason, violations=violated or {}))

    def within(self, request: Request, certain: Mapping[str, float]) -> StageResult:
        """Stopped where lower (or upper) bounds that are certain already break a constraint."""
        if not request.gated:
            return self
        broken = {n: v for n, v in violations(request.experiment.constraints, certain).items() if v > 0}
        if not broken:
            return self
        limits = {c.metric: c.limit for c in request.experiment.constraints}
        reason = "; ".join(f"{n} is {certain[n]:.4g}, the limit is {limits[n]:g}" for n in sorted(broken))
        return self.stopped(reason, broken)


class Progress(StageClock):
    """One candidate in the pipeline: what each step gave, in order, and what the stages took."""

    def __init__(self, request: Request) -> None:
        self.request, self.name = request, "check"
        self.results: list[StageResult] = [StageResult()]
        self.timings: list[StageTiming] = []

    @property
    def result(self) -> StageResult:
        """What the next step is given."""
        return replace(self.results[-1], stage=self.name, cached=False)

    def then(self, result: StageResult) -> bool:
        """Take a step's result; whether the candidate stops there."""
        self.results.append(result)
        self.cached = self.cached or result.cached
        return result.stop is not None

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[StageClock]:
        self.name, self.cached, self.compiled, self.shared = name, False, 0, 0
        self.request.bench.report(self.request.candidate, name)
        began = time.perf_counter()
        try:
            yield self
        finally:
            seconds = time.perf_counter() - began
            self.timings.append(
                StageTiming(stage=name, seconds=seconds, cached=self.cached, compiled=self.compiled, shared=self.shared)
            )
