"""One candidate on its way up the ladder: what was measured so far, and where it stands."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from workbench.evaluation.bench import Bench, StageClock
from workbench.evaluation.build import artifact_of
from workbench.evaluation.facts import NO_LOANS, Loans
from workbench.evaluation.reference import apart_from_baseline, open_reference
from workbench.inputs.experiment import Experiment
from workbench.search.effort import Effort
from workbench.search.refusals import candidate_errors
from workbench.targets.base import Session
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate
from workbench.values.errors import CheckError
from workbench.values.facts import Fact
from workbench.values.fidelity import Fidelity
from workbench.values.forecast import Forecast
from workbench.values.measurement import Measurement, Split
from workbench.values.objectives import violations
from workbench.values.results import Evaluation, StageTiming, Stop


class Climb(StageClock):
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
        loans: Loans = NO_LOANS,
    ) -> None:
        self.experiment, self.candidate, self.bench = experiment, candidate, bench
        self.split: Split = split
        self.incumbents = incumbents
        self.is_baseline = candidate.id == experiment.baseline.id
        self.gates = gates and not self.is_baseline
        self.effort = effort
        self.loans = loans
        self.facts: tuple[Fact, ...] = ()
        self.witness = ""  # digest of its outputs for the smoke samples
        # each is fed its own bins, as it would be served
        self.data = experiment.dataset.with_bins(candidate.sequence_bins)
        self.baseline_data = experiment.dataset.with_bins(experiment.baseline.sequence_bins)
        self.name = "check"
        self.timings: list[StageTiming] = []
        self.measurement = Measurement()
        self.forecast: Forecast | None = None
        self.fidelity: Fidelity | None = None
        self.proof = self.alike = self.overflow = ""

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[StageClock]:
        self.name, self.cached, self.compiled, self.shared = name, False, 0, 0
        self.bench.report(self.candidate, name)
        began = time.perf_counter()
        try:
            yield self
        finally:
            seconds = time.perf_counter() - began
            self.timings.append(
                StageTiming(stage=name, seconds=seconds, cached=self.cached, compiled=self.compiled, shared=self.shared)
            )

    def check(self) -> None:
        errors = candidate_errors(self.bench.target(self.candidate), self.experiment.model, self.candidate)
        if errors:
            more = f" ({len(errors) - 1} more: see `workbench inspect`.)" if len(errors) > 1 else ""
            where = f"{errors[0].operator} {errors[0].node!r}".lstrip()
            raise CheckError(f"{where}: {errors[0].problem} {errors[0].remedy}{more}")
        batch, fixed = self.candidate.serving.batch, self.experiment.model.fixed_batch
        if fixed is not None and batch > fixed:  # it would be several calls, and timed as one
            raise CheckError(f"the model takes batches of {fixed}, not of {batch}. Set serving.batch to {fixed}.")

    def open(
        self, artifact: Artifact, directory: Path, candidate: Candidate, sessions: contextlib.ExitStack
    ) -> Session:
        session = self.bench.target(candidate).open(artifact, directory, candidate)
        sessions.callback(session.close)
        return session

    def open_baseline(self, sessions: contextlib.ExitStack) -> Session:
        baseline = self.experiment.baseline
        artifact, directory = artifact_of(self.experiment, baseline, self.bench)
        return self.open(artifact, directory, baseline, sessions)

    def open_reference(self, sessions: contextlib.ExitStack) -> Session | None:
        """What accuracy is compared with, where it is not the baseline."""
        if not apart_from_baseline(self.experiment):
            return None
        session = open_reference(self.experiment.model)
        sessions.callback(session.close)
        return session

    def over_limit(self, certain: Mapping[str, float]) -> Stop | None:
        """A stop when lower (or upper) bounds that are certain already break a constraint."""
        if not self.gates:
            return None
        broken = {n: v for n, v in violations(self.experiment.constraints, certain).items() if v > 0}
        if not broken:
            return None
        limits = {c.metric: c.limit for c in self.experiment.constraints}
        reason = "; ".join(f"{n} is {certain[n]:.4g}, the limit is {limits[n]:g}" for n in sorted(broken))
        return Stop(stage=self.name, reason=reason, violations=broken)
