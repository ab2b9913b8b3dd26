"""What a sweep found, as values, and how the reports read its numbers; `verdict` makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from workbench.evaluation.last_run import LastRun
from workbench.evaluation.neighbours import Neighbour
from workbench.report.words import title
from workbench.values.candidate import Candidate
from workbench.values.damage import Damage
from workbench.values.dimension import Scalar
from workbench.values.measurement import Estimate, ServiceFigures, ServiceResult
from workbench.values.metrics import drop_metric, metrics
from workbench.values.objectives import METRICS, Closest, Constraint, Objective, violations
from workbench.values.results import Evaluation

Standing = Literal["front", "dominated", "infeasible", "stopped", "failed"]

SPEED = ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "throughput_per_s", "speedup")
SERVICE = ("service_throughput_per_s", "service_p50_ms", "service_p99_ms")
ACCURACY = ("accuracy", "accuracy_drop_pp", "accuracy_drop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimism:
    """How much the search flattered a candidate: its validation numbers against the held-out ones.

    The search chose the candidate *because of* its validation numbers, so luck is in them; the held-out data knew
    nothing of the choice. Positive means that validation looked better than it is.

    Attributes:
        drop_pp: drop on holdout minus drop on validation; None where a drop is not known.
        speedup: speed-up in the search minus the one timed afresh.
    """

    drop_pp: float | None
    speedup: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A candidate on the Pareto front.

    Attributes:
        confirmation: the same candidate on the holdout split, timed afresh; None before it was confirmed.
        letters: members that share a letter cannot be told apart; empty when it differs from every other.
        broken_on_holdout: constraints that the holdout numbers break, metric → by how much.
    """

    evaluation: Evaluation
    confirmation: Evaluation | None
    letters: str
    optimism: Optimism | None
    broken_on_holdout: Mapping[str, float]

    @property
    def id(self) -> str:
        return self.evaluation.candidate.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What changing one setting of the recommended candidate would do, as far as it was measured.

    Attributes:
        before, after: the setting's value in the recommended candidate and in the other; None where it does not apply.
        speed_ratio: the other's speed over the recommended one's.
        accuracy_pp: the other's accuracy minus the recommended one's.
        told_apart: whether the two differ beyond their noise.
        feasible: whether the other meets every constraint.
    """

    candidate_id: str
    parameter: str
    before: Scalar
    after: Scalar
    speed_ratio: float
    accuracy_pp: float
    told_apart: bool
    feasible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The candidate to ship.

    Attributes:
        reason: why this one, in a few sentences.
        warnings: what speaks against relying on it, in sentences.
        alternatives: other front members: candidate id → what it would cost and buy.
        steps: evaluated candidates that differ from it in one setting.
    """

    candidate_id: str
    reason: str
    warnings: tuple[str, ...]
    alternatives: Mapping[str, str]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything the reports show; made by `verdict.summarize`.

    Attributes:
        experiment_file: as the user would type it; part of the commands that reproduce a candidate.
        evaluations: all of the search, on the validation split, in the order given.
        front: best first in the first objective.
        recommended: None only when no candidate meets every constraint; then `closest` says who came closest.
        stops, failures: reason → count.
        emulated: any number here comes from our emulator and says nothing about a real device.
        damage: files of the sweep that are gone or damaged; what they held is in nothing else here.
        run: how the last run of the sweep ended; None where that is not known.
        neighbours: timed beside the search, to take the speed-up of the recommended candidate apart.
    """

    experiment_name: str
    experiment_file: str
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    evaluations: tuple[Evaluation, ...]
    confirmations: Mapping[str, Evaluation]
    baseline_id: str
    front: tuple[Member, ...]
    recommended: Recommendation | None
    closest: Closest | None
    stops: Mapping[str, int]
    failures: Mapping[str, int]
    emulated: bool
    damage: tuple[Damage, ...] = ()
    run: LastRun | None = None
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def baseline(self) -> Evaluation | None:
        return self.find(self.baseline_id)

    def title(self, candidate: Candidate) -> str:
        """What a candidate is, for a row; its engine is said where the sweep has several."""
        several = len({e.candidate.target for e in self.evaluations}) > 1
        return title(candidate, self.baseline_id, engine=several)

    def find(self, candidate_id: str) -> Evaluation | None:
        return next((e for e in self.evaluations if e.candidate.id == candidate_id), None)

    def member(self, candidate_id: str) -> Member | None:
        return next((m for m in self.front if m.id == candidate_id), None)

    def numbers(self, evaluation: Evaluation) -> dict[str, float]:
        """`results.metrics`, with the baseline's drop against itself made explicit."""
        return numbers_of(evaluation, self.baseline_id)

    def is_feasible(self, evaluation: Evaluation) -> bool:
        return is_feasible(evaluation, self.objectives, self.constraints, self.baseline_id)

    def standing(self, evaluation: Evaluation) -> Standing:
        if evaluation.status != "complete":
            return evaluation.status
        if self.member(evaluation.candidate.id) is not None:
            return "front"
        return "dominated" if self.is_feasible(evaluation) else "infeasible"


# --- reading an evaluation -----------------------------------------------------------------------------------------


def is_feasible(
    evaluation: Evaluation, objectives: Sequence[Objective], constraints: Sequence[Constraint], baseline_id: str
) -> bool:
    """Complete, every objective and every constraint measured, every constraint met."""
    if evaluation.status != "complete":
        return False
    numbers = numbers_of(evaluation, baseline_id)
    found = violations(constraints, numbers)
    return all(o.metric in numbers for o in objectives) and all(found.get(c.metric, 1.0) <= 0 for c in constraints)


def numbers_of(evaluation: Evaluation, baseline_id: str) -> dict[str, float]:
    """`results.metrics`, with the baseline's drop against itself, which is 0, made explicit."""
    numbers, accuracy = metrics(evaluation), evaluation.measurement.accuracy
    if evaluation.candidate.id == baseline_id and "accuracy" in numbers:
        numbers.setdefault(drop_metric("" if accuracy is None else accuracy.unit), 0.0)
    return numbers


def drop_of(evaluation: Evaluation, baseline_id: str) -> Estimate | None:
    """In percentage points, or in the metric's own unit where that is no share of 0..1; 0 for the baseline, None where
    it was not measured."""
    accuracy = evaluation.measurement.accuracy
    if accuracy is not None and accuracy.comparison is not None:
        return accuracy.comparison.drop_pp
    if accuracy is not None and evaluation.candidate.id == baseline_id:
        return Estimate(value=0.0, low=0.0, high=0.0)
    return None


def speedup_of(evaluation: Evaluation) -> Estimate:
    """Of a complete evaluation."""
    latency = evaluation.measurement.latency
    assert latency is not None, "a complete evaluation has a latency"
    return latency.speedup


def best_known_speedup(summary: Summary, evaluation: Evaluation) -> Estimate | None:
    """The one timed afresh at the end where there is one, since nobody was chosen for it; else the search's."""
    found = summary.confirmations.get(evaluation.candidate.id, evaluation)
    latency = found.measurement.latency or evaluation.measurement.latency
    return latency.speedup if latency is not None else None


def best_known_drop(summary: Summary, evaluation: Evaluation) -> Estimate | None:
    """The drop on holdout where it was confirmed, else the one of the search; zero for the baseline."""
    confirmed = summary.confirmations.get(evaluation.candidate.id)
    found = drop_of(confirmed, summary.baseline_id) if confirmed is not None else None
    return found if found is not None else drop_of(evaluation, summary.baseline_id)


def best_known_service(summary: Summary, evaluation: Evaluation) -> ServiceResult | None:
    """The one of the held-out data where there is one, which real load may have confirmed; else the search's."""
    for one in (summary.confirmations.get(evaluation.candidate.id), evaluation):
        if one is not None and one.measurement.service is not None:
            return one.measurement.service
    return None


def service_estimate(figures: ServiceFigures, metric: str) -> Estimate:
    """One of `SERVICE`, with its interval."""
    return {
        "service_throughput_per_s": figures.throughput_per_s,
        "service_p50_ms": figures.p50_ms,
        "service_p99_ms": figures.p99_ms,
    }[metric]


def cost_of(evaluation: Evaluation, metric: str, baseline_id: str) -> float:
    """The metric turned so that less is better."""
    value = numbers_of(evaluation, baseline_id)[metric]
    return -value if METRICS[metric].direction == "maximize" else value
