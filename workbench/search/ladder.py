"""evaluate(experiment, candidate): the gate ladder, and the one place where a candidate's failure becomes a value.

Each stage costs more than the one before; a candidate that certainly violates a constraint, or is certainly
dominated, stops where that is known, with the reason and the amount. The float baseline and confirmations on the
holdout split climb the whole ladder.

    check → calibrate → lower → compile → smoke → accuracy_subset → latency_short → accuracy_full → latency_full
        → service (where the experiment says how requests come)
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.bench import Bench, StageClock
from workbench.evaluation.build import artifact_of
from workbench.evaluation.carried import first_steps, timed_feeds, whole_samples
from workbench.evaluation.company_check import check_company
from workbench.evaluation.device_figures import device_figures
from workbench.evaluation.device_lock import device_lock
from workbench.evaluation.measure import TimingProtocol, time_against_baseline
from workbench.evaluation.memory import peak_memory
from workbench.evaluation.metric_check import check_metric
from workbench.evaluation.modelled_clock import time_modelled
from workbench.evaluation.padding_check import check_padding
from workbench.evaluation.raw_times import save_raw_times
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import (
    Outcomes,
    agreement,
    cut_alike,
    not_by_distance,
    per_sample,
    primary_of,
    save_outcomes,
    size,
    summarize,
    take,
)
from workbench.prediction.stage import best_service, measured_curve, measured_startup_s, searched_service
from workbench.search.effort import FULL, Effort
from workbench.search.limits import rejection
from workbench.targets.base import DeviceSession, Session
from workbench.values import significance
from workbench.values.bins import timed_length
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError, CheckError, CompileError, MeasureError
from workbench.values.objectives import violations
from workbench.values.results import (
    Accuracy,
    Artifact,
    Estimate,
    Evaluation,
    Failure,
    Latency,
    Measurement,
    Split,
    StageTiming,
    Status,
    Stop,
    accuracy_metrics,
    drop_metric,
)
from workbench.values.system.source_closure import closure_digest

_log = logging.getLogger(__name__)

SMOKE_SAMPLES = 8
SMOKE_STEPS = 32
"""Of each of them, where a state is carried."""
SMOKE_CONSTRAINT = "smoke_cosine"


def evaluate(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    *,
    incumbents: Sequence[Evaluation] = (),
    split: Split = "validation",
    gates: bool = True,
    effort: Effort = FULL,
) -> Evaluation:
    """Take one candidate up the ladder and return what became of it; a `CandidateError` becomes a `Failure`.

    Stages that another candidate already paid for come from the store. Times never do.

    Args:
        incumbents: complete, feasible evaluations; a candidate certainly dominated by one of them stops early.
        gates: False climbs to the top whatever is seen on the way (confirmation on the holdout split).
        effort: how much of what the experiment asks for is done; what was not is in the evaluation's `cut`.

    Raises:
        ToolchainError: the machine, not the candidate, is at fault.
        ConfigError: of the baseline only: the model's answers depend on padding, and texts have several lengths; or
            the metric does not react to noise.
    """
    climb = _Climb(experiment, candidate, bench, split, tuple(incumbents), gates, effort)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    stop: Stop | None = None
    failure: Failure | None = None
    with contextlib.ExitStack() as sessions:
        try:
            stop = climb.run(sessions)
        except CandidateError as error:
            failure = _failure(experiment, candidate, bench, split, climb.name, error)
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
    )


def timed(experiment: Experiment, candidate: Candidate, bench: Bench) -> Latency:
    """A candidate's times on the validation split and nothing else, by the few calls of the short measurement.

    Raises:
        CandidateError: it cannot be compiled or run, or an INT8 one computes in float.
    """
    climb = _Climb(experiment, candidate, bench, "validation", (), False, FULL)
    with contextlib.ExitStack() as sessions:
        return climb.times(sessions)


class _Climb(StageClock):
    """One candidate on its way up: what was measured so far, and where it stands."""

    def __init__(
        self,
        experiment: Experiment,
        candidate: Candidate,
        bench: Bench,
        split: Split,
        incumbents: tuple[Evaluation, ...],
        gates: bool,
        effort: Effort,
    ) -> None:
        self.experiment, self.candidate, self.bench = experiment, candidate, bench
        self.split: Split = split
        self.incumbents = incumbents
        self.is_baseline = candidate.id == experiment.baseline.id
        self.gates = gates and not self.is_baseline
        self.effort = effort
        # each is fed its own bins, as it would be served
        self.data = experiment.dataset.with_bins(candidate.sequence_bins)
        self.baseline_data = experiment.dataset.with_bins(experiment.baseline.sequence_bins)
        self.name = "check"
        self.timings: list[StageTiming] = []
        self.measurement = Measurement()
        self.proof = ""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[StageClock]:
        self.name, self.cached = name, False
        self.bench.report(self.candidate, name)
        began = time.perf_counter()
        try:
            yield self
        finally:
            seconds = time.perf_counter() - began
            self.timings.append(StageTiming(stage=name, seconds=seconds, cached=self.cached))

    def run(self, sessions: contextlib.ExitStack) -> Stop | None:
        with self.stage("check"):
            self._check()
        artifact, directory = artifact_of(self.experiment, self.candidate, self.bench, self, split=self.split)
        self.measurement = replace(
            self.measurement,
            size_bytes=artifact.size_bytes,
            int8_ops=artifact.int8_ops,
            float_matmuls_left=artifact.float_matmuls_left,
        )
        if self.candidate.quantization.scheme != "none" and artifact.int8_ops == 0:
            raise CompileError(
                f"not one of {artifact.float_matmuls_left} matrix products runs in an integer kernel: this INT8 model "
                "would compute in float, with extra work. `workbench inspect` shows which layers INT8 can serve."
            )
        if stop := self._over_limit({"size_mb": artifact.size_bytes / 1e6}):
            return stop
        with self.stage("smoke"):
            session = self._open(artifact, directory, self.candidate, sessions)
            baseline = session if self.is_baseline else self._open_baseline(sessions)
            if stop := self._smoke(session, baseline):
                return stop
            if self.is_baseline and self.split == "validation":
                check_padding(self.experiment, self.bench, session, self.split, SMOKE_SAMPLES)
                check_company(self.experiment, self.bench, session, self.split)
                self.proof = check_metric(self.experiment, session, self.split)
        at = (self.effort.scored(self.experiment, self.split), self.candidate, self.bench, self.split)
        scores = AccuracyPass(*at, artifact=artifact, session=session, baseline=baseline)
        sessions.callback(scores.close)
        with self.stage("accuracy_subset"):
            if stop := self._growing_subsets(scores):
                return stop
        with self.stage("latency_short"):
            if stop := self._short_latency(session, baseline, scores):
                return stop
        with self.stage("accuracy_full"):
            if stop := self._full_accuracy(scores):
                return stop
        with self.stage("latency_full"):
            if stop := self._full_latency(session, baseline, artifact, directory):
                return stop
        if self.experiment.service is None:
            return None
        with self.stage("service"):
            return self._service(session, baseline, artifact, directory)

    def times(self, sessions: contextlib.ExitStack) -> Latency:
        """The way up past everything that is not timing."""
        with self.stage("check"):
            self._check()
        artifact, directory = artifact_of(self.experiment, self.candidate, self.bench, self, split=self.split)
        if self.candidate.quantization.scheme != "none" and artifact.int8_ops == 0:
            raise CompileError("not one matrix product runs in an integer kernel.")
        with self.stage("latency_short"):
            session = self._open(artifact, directory, self.candidate, sessions)
            baseline = session if self.is_baseline else self._open_baseline(sessions)
            return self._time(session, baseline, self.experiment.measure.short_calls, anchor=False)

    def _check(self) -> None:
        issues = self.bench.target(self.candidate).check(self.experiment.model, self.candidate)
        errors = [issue for issue in issues if issue.severity == "error"]
        if errors:
            more = f" ({len(errors) - 1} more: see `workbench inspect`.)" if len(errors) > 1 else ""
            where = f"{errors[0].operator} {errors[0].node!r}".lstrip()
            raise CheckError(f"{where}: {errors[0].problem} {errors[0].remedy}{more}")

    def _open(
        self, artifact: Artifact, directory: Path, candidate: Candidate, sessions: contextlib.ExitStack
    ) -> Session:
        session = self.bench.target(candidate).open(artifact, directory, candidate)
        sessions.callback(session.close)
        return session

    def _open_baseline(self, sessions: contextlib.ExitStack) -> Session:
        baseline = self.experiment.baseline
        artifact, directory = artifact_of(self.experiment, baseline, self.bench)
        return self._open(artifact, directory, baseline, sessions)

    def _over_limit(self, certain: Mapping[str, float]) -> Stop | None:
        """A stop when lower (or upper) bounds that are certain already break a constraint."""
        if not self.gates:
            return None
        broken = {n: v for n, v in violations(self.experiment.constraints, certain).items() if v > 0}
        if not broken:
            return None
        limits = {c.metric: c.limit for c in self.experiment.constraints}
        reason = "; ".join(f"{n} is {certain[n]:.4g}, the limit is {limits[n]:g}" for n in sorted(broken))
        return Stop(stage=self.name, reason=reason, violations=broken)

    def _smoke(self, session: Session, baseline: Session) -> Stop | None:
        """A few samples: finite, not constant, not far from the float output."""
        batch, at = self.candidate.serving.batch, (self.experiment.dataset.interface, self.experiment.model)
        runs, floats = whole_samples(session, *at), whole_samples(baseline, *at)
        ours, theirs = (
            first_steps(data.batches(self.split, batch, stop=SMOKE_SAMPLES), SMOKE_STEPS)
            for data in (self.data, self.baseline_data)
        )
        seen = agreement(
            (
                cut_alike(runs.run(mine.feeds), mine, floats.run(other.feeds), other)
                for mine, other in zip(ours, theirs, strict=True)
            ),
            not_by_distance(self.experiment.dataset),
        )
        if not seen.finite.all():
            row = int(seen.indices[~seen.finite][0])
            raise MeasureError(
                f"the output holds NaN or Inf for row {row} of {self.split}. Keep sensitive layers in float, or look "
                "at the calibration range of the first layers."
            )
        if seen.constant:
            raise MeasureError("every smoke sample gives the same output: the compiled model ignores its input.")
        mean, wanted = float(np.mean(seen.cosine)), self.experiment.smoke_cosine
        if self.gates and mean < wanted:
            return Stop(
                stage=self.name,
                reason=f"mean cosine with the float output is {mean:.4f} over {SMOKE_SAMPLES} samples, not {wanted:g}",
                violations={SMOKE_CONSTRAINT: wanted - mean},
            )
        return None

    # --- accuracy -------------------------------------------------------------------------------------------

    def _growing_subsets(self, scores: AccuracyPass) -> Stop | None:
        """Score 1/8, 1/4, 1/2 … of the split; stop once the drop is certainly over its limit."""
        metric = drop_metric(scores.scorer.unit)
        limit = next((c.limit for c in self.experiment.constraints if c.metric == metric), None)
        if not self.gates or limit is None:
            return None
        for look in significance.look_schedule(self.experiment.dataset.size(self.split)):
            candidate = scores.first(look)
            baseline = take(scores.baseline_outcomes(), size(candidate))
            self._keep_accuracy(candidate, baseline)
            excess = significance.certain_violation(per_sample(baseline), per_sample(candidate), limit_pp=limit)
            if excess is not None:
                what = "accuracy drop" if scores.scorer.primary == "accuracy" else f"drop of {scores.scorer.primary}"
                return Stop(
                    stage=self.name,
                    reason=f"after {size(candidate)} samples the {what} is certainly at least "
                    f"{limit + excess:.2f} {scores.scorer.unit or 'pp'}; the limit is {limit:g}",
                    violations={metric: excess},
                )
        return None

    def _full_accuracy(self, scores: AccuracyPass) -> Stop | None:
        outcomes = scores.full()
        self.cached = scores.from_store
        save_outcomes(self.bench.journal.outcomes(self.candidate.id, self.split), outcomes)
        baseline = None if self.is_baseline else scores.baseline_outcomes()
        accuracy = self._keep_accuracy(outcomes, baseline)
        stop = self._over_limit(accuracy_metrics(accuracy))
        metric = drop_metric(accuracy.unit)
        if stop is None or baseline is None or accuracy.comparison is None or metric not in stop.violations:
            return stop
        limit = next(c.limit for c in self.experiment.constraints if c.metric == metric)
        said = rejection(metric, accuracy.comparison, limit, per_sample(baseline), per_sample(outcomes))
        others = {name: by for name, by in stop.violations.items() if name != metric}
        further = [f"{name} is over its limit by {by:.4g}" for name, by in sorted(others.items())]
        return replace(stop, reason="; ".join([said, *further]))

    def _keep_accuracy(self, outcomes: Outcomes, baseline: Outcomes | None) -> Accuracy:
        primary, unit, higher = primary_of(outcomes, self.experiment.dataset.task)
        accuracy = Accuracy(
            primary=primary,
            unit=unit,
            higher=higher,
            proof=self.proof,
            values=summarize(outcomes),
            samples=size(outcomes),
            split=self.split,
            comparison=None if baseline is None else significance.compare(per_sample(baseline), per_sample(outcomes)),
        )
        self.measurement = replace(self.measurement, accuracy=accuracy)
        return accuracy

    # --- latency --------------------------------------------------------------------------------------------

    def _time(self, session: Session, baseline: Session, calls: int, *, anchor: bool) -> Latency:
        settings = self.experiment.measure
        batch = self.candidate.serving.batch
        feeds, baseline_feeds = (
            timed_feeds(
                data,
                self.experiment.model,
                self.split,
                count=settings.feeds,
                batch=batch,
                seed=self.experiment.seed,
                length=timed_length(settings.length, bins),
            )
            for data, bins in (
                (self.data, self.candidate.sequence_bins),
                (self.baseline_data, self.experiment.baseline.sequence_bins),
            )
        )
        protocol = TimingProtocol(seed=self.experiment.seed)
        with device_lock(self.bench.device_lock, wait_s=3600.0, report=_log.info):
            if self.bench.toolchain(self.candidate).emulated:
                latency, raw = time_modelled(
                    session,
                    baseline,
                    feeds,
                    batch,
                    protocol,
                    calls=calls,
                    names=(self.candidate.id, self.experiment.baseline.id),
                    known=self.bench.modelled_ms,
                    baseline_feeds=baseline_feeds,
                )
            else:
                latency, raw = time_against_baseline(
                    session, baseline, feeds, batch, protocol, calls=calls, baseline_feeds=baseline_feeds
                )
        if anchor:
            save_raw_times(raw, self.bench.journal.latency(self.candidate.id, self.split))
        first = self.bench.journal.anchor(self.split, batch, latency.baseline_p50_ms, keep=anchor)
        return replace(latency, drift=latency.baseline_p50_ms / first)

    def _short_latency(self, session: Session, baseline: Session, scores: AccuracyPass) -> Stop | None:
        if not self.gates:
            return None
        latency = self._time(session, baseline, self.experiment.measure.short_calls, anchor=False)
        self.measurement = replace(self.measurement, latency=latency)
        # P95 and P99 are at least the P50, so its lower bound is a certain bound for all three.
        fastest_ms = latency.p50_ms.low / latency.drift
        certain = dict.fromkeys(("latency_p50_ms", "latency_p95_ms", "latency_p99_ms"), fastest_ms)
        certain["speedup"] = latency.speedup.high
        if stop := self._over_limit(certain):
            return stop
        for incumbent in self.incumbents:
            if self._certainly_dominated(incumbent, latency, scores):
                return Stop(
                    stage=self.name,
                    reason=f"{incumbent.candidate.short_id} is certainly better in every objective",
                )
        return None

    def _certainly_dominated(self, incumbent: Evaluation, latency: Latency, scores: AccuracyPass) -> bool:
        """Whether the incumbent is better in every objective for certain (errors of about one in a thousand).

        Only objectives with a paired measurement count: accuracy by the sequential test against the incumbent's own
        drop, times by the speed-up at the same batch size. With any other objective nobody is stopped here.
        """
        theirs = incumbent.measurement
        if theirs.latency is None or theirs.accuracy is None or scores.done is None:
            return False
        if incumbent.candidate.serving.batch != self.candidate.serving.batch:
            return False
        slower = _at_confidence(latency.speedup, 3.29)[1] < _at_confidence(theirs.latency.speedup, 3.29)[0]
        for objective in self.experiment.objectives:
            if objective.metric in ("latency_p50_ms", "throughput_per_s", "speedup"):
                if not slower:
                    return False
            elif objective.metric == "accuracy":
                seen = per_sample(scores.done)
                baseline = per_sample(take(scores.baseline_outcomes(), len(seen)))
                drop = theirs.accuracy.comparison
                limit_pp = 0.0 if drop is None else drop.drop_pp.high
                if significance.certain_violation(baseline, seen, limit_pp=limit_pp) is None:
                    return False
            else:
                return False
        return True

    def _full_latency(self, session: Session, baseline: Session, artifact: Artifact, directory: Path) -> Stop | None:
        latency = self._time(session, baseline, self.effort.timed_calls(self.experiment), anchor=True)
        batch, seed = self.candidate.serving.batch, self.experiment.seed
        feeds = timed_feeds(self.data, self.experiment.model, self.split, count=8, batch=batch, seed=seed)
        if isinstance(session, DeviceSession):
            modelled = self.bench.toolchain(self.candidate).emulated  # no load makes it draw power
            device = device_figures(session, feeds[:2], load_s=0.0) if modelled else device_figures(session, feeds)
            self.measurement = replace(
                self.measurement, latency=latency, device=device, peak_memory_bytes=device.memory_bytes
            )
            return None
        key = {
            "artifact": [f.sha256 for f in artifact.files],
            "serving": self.candidate.serving,
            "toolchain": self.bench.toolchain(self.candidate),
            "data": self.data.digest(self.split),
            "code": closure_digest(
                "workbench.evaluation.memory", type(self.bench.target(self.candidate)).__module__, alone=(__name__,)
            ),
        }
        found = self.bench.store.get_json("memory", key)
        if found is None:
            found = peak_memory(directory, artifact, self.candidate, feeds)
            self.bench.store.put_json("memory", key, found)
        self.measurement = replace(self.measurement, latency=latency, peak_memory_bytes=int(found))
        return None

    # --- service --------------------------------------------------------------------------------------------

    def _service(self, session: Session, baseline: Session, artifact: Artifact, directory: Path) -> Stop | None:
        at = (self.experiment, self.candidate, self.bench)
        with device_lock(self.bench.device_lock, wait_s=3600.0, report=_log.info):
            started_s = measured_startup_s(*at, artifact, directory, self.split)
            known = None if self.effort.curve else searched_service(self.candidate, self.bench)
            if known is None:
                curve = measured_curve(*at, session, baseline, self.split)
                known = best_service(*at, curve, self.split)
        self.measurement = replace(self.measurement, startup_s=started_s, service=known)
        return None


def _at_confidence(estimate: Estimate, z: float) -> tuple[float, float]:
    """The interval of a positive ratio, widened (on the log scale) from 95 % to `z` standard errors."""
    stretch = z / 1.96
    value = math.log(estimate.value)
    low, high = math.log(estimate.low), math.log(estimate.high)
    return math.exp(value - stretch * (value - low)), math.exp(value + stretch * (high - value))


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
        failure=_failure(experiment, candidate, bench, split, error.stage, error),
    )


def _failure(
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
        reproduce=f"workbench evaluate {experiment.path} --candidate {candidate.short_id}",
        log_path=str(log),
        transient=error.transient,
    )
