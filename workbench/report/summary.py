"""What a sweep found, as values; `verdict` makes them.

Of each candidate stands what is known, strongest evidence first: under load on held-out data goes before held-out data
without load, and that before the search. Two candidates are compared by the strongest evidence that both have, so that
a prediction is never held against a measurement; and what the stronger evidence kept, no weaker one removes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from workbench.evaluation.run_notes import LastRun, Neighbour
from workbench.report.words import SERVICE, cost_of, loss_of, numbers_of, over, title
from workbench.values.candidate import Candidate
from workbench.values.evidence import Evidence, level_for
from workbench.values.measurement import Estimate, ServiceResult
from workbench.values.objectives import Closest, Constraint, Objective, violations
from workbench.values.results import Damage, Evaluation, Failure
from workbench.values.sequential import Decision, decide

Basis = Literal["load", "held out", "search"]
"""A measurement of the service under load, on held-out data; the confirmation without it; the search."""
BASES: tuple[Basis, ...] = get_args(Basis)

Views = Mapping[Basis, Evaluation]
"""One candidate, as each evidence there is shows it, strongest first."""


def failure_words(failure: Failure) -> str:
    return f"{failure.kind} at {failure.stage}: {' '.join(failure.message.split())}".rstrip(".")


def common(a: Views, b: Views) -> tuple[Evaluation, Evaluation]:
    """Both by the strongest evidence that both have."""
    basis = next(basis for basis in BASES if basis in a and basis in b)
    return a[basis], b[basis]


Standing = Literal["front", "dominated", "infeasible", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A candidate on the Pareto front, or one that its confirmation took off it.

    Attributes:
        confirmation: the same candidate on the holdout split, timed afresh; None before it was confirmed.
        letters: members that share a letter cannot be told apart; empty when it differs from every other.
        broken_on_holdout: constraints that the holdout numbers break, metric → by how much.
        against: what its confirmation holds against it, in words; empty for nothing.
    """

    evaluation: Evaluation
    confirmation: Evaluation | None
    letters: str
    broken_on_holdout: Mapping[str, float]
    against: str = ""

    @property
    def id(self) -> str:
        return self.evaluation.candidate.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The candidate to ship, or one of several between which the evidence does not decide.

    Attributes:
        among: others that cannot be told apart from it in anything that decides: it is a choice among equals then.
        compared: the metrics that decide, in which these are equal.
        settled_by: what would have to be measured to tell them apart, or, of modelled times, to rely on it.
        evidence: the weakest level among the figures that it was chosen by.
        reason: why this one, in a few sentences.
        warnings: what speaks against relying on it, in sentences.
    """

    candidate_id: str
    reason: str
    warnings: tuple[str, ...]
    evidence: Evidence | None = None
    among: tuple[str, ...] = ()
    settled_by: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """In a row of a table."""
        return "CHOSEN AMONG EQUALS" if self.among else "RECOMMENDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One recipe of a language model in the search.

    Attributes:
        preset: its name, of one that the space gives.
        against_preset: its loss less the best preset's, in the unit of drops, with a simultaneous interval; None for
            that preset itself, and where there is none.
    """

    candidate_id: str
    preset: str
    against_preset: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Everything the reports show; made by `verdict.summarize`.

    Attributes:
        experiment_file: as the user would type it; part of the commands that reproduce a candidate.
        evaluations: all of the search, on the validation split, in the order given.
        front: by the strongest evidence on each; the best known first, then the best in the first objective.
        fallen: confirmed, and not on the front by what the confirmation measured.
        recommended: None when no candidate meets every constraint (then `closest` says who came closest), or no
            confirmation lets one be recommended (then `nothing_recommended` says why).
        stops, failures: reason → count.
        emulated: any number here comes from our emulator and says nothing about a real device.
        damage: files of the sweep that are gone or damaged; what they held is in nothing else here.
        run: how the last run of the sweep ended; None where that is not known.
        neighbours: timed beside the search, to take the speed-up of the recommended candidate apart.
        recipes: of a language model: those that were judged in full, the least loss first.
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
    fallen: tuple[Member, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    nothing_recommended: str = ""

    @property
    def why_none(self) -> str:
        """Why nothing is recommended, where nothing is, and what to do about it."""
        return self.nothing_recommended or "no candidate meets every constraint; the report says who came closest."

    def refusal(self, evaluation: Evaluation) -> str:
        """Why this candidate must not be recommended, by its confirmation; empty where nothing is held against it.

        The one place that says so: whatever names a recommendation rests on it. A failure to run is told as one, for
        whoever reads that a candidate failed on held-out data takes it for inaccurate.
        """
        confirmed = self.confirmations.get(evaluation.candidate.id)
        if confirmed is None:
            return ""
        failure, service = confirmed.failure, confirmed.measurement.service
        if failure is not None:
            again = "; the same sweep again makes another attempt" if confirmed.deserves_another else ""
            why = failure_words(failure)
            return f"its confirmation could not be run, which says nothing of its accuracy ({why}){again}"
        if confirmed.overflow:
            return confirmed.overflow
        if broken := self.broken_by(confirmed):
            return "on held-out data it breaks " + ", ".join(over(name, by) for name, by in broken.items())
        if service is not None and service.best is None:
            return service.note or "its service keeps no limit on held-out data"
        found = self.decision(confirmed)
        return "" if found is None or found.keeps else f"on held-out data its {found}"

    def decision(self, evaluation: Evaluation) -> Decision | None:
        """What the gate on accuracy says of one evaluation; None without such a limit, or of the baseline, which loses
        nothing. On held-out data it holds for all that were confirmed at once: the best of them is taken."""
        gate = next((c.gate for c in self.constraints if c.gate is not None), None)
        accuracy = evaluation.measurement.accuracy
        if (
            gate is None
            or accuracy is None
            or accuracy.comparison is None
            or self.baseline_id == evaluation.candidate.id
        ):
            return None
        confirmed = [e.measurement.accuracy for i, e in self.confirmations.items() if i != self.baseline_id]
        at_once = [a.comparison.drop_pp for a in confirmed if a is not None and a.comparison is not None]
        among = at_once if evaluation.split == "holdout" else []
        compared = accuracy.comparison
        return decide(gate, compared.drop_pp, samples=accuracy.samples, unit=compared.unit, among=among)

    def broken_by(self, confirmed: Evaluation) -> dict[str, float]:
        """Constraints that a confirmation breaks, metric → by how much."""
        found = violations(self.constraints, numbers_of(confirmed, self.baseline_id))
        return {name: by for name, by in found.items() if by > 0}

    @property
    def serves(self) -> bool:
        """Whether a load on the service measures anything that is asked for."""
        return any(metric in SERVICE for metric in self.asked)

    @property
    def asked(self) -> list[str]:
        """Metrics of the objectives, then of the constraints."""
        return [o.metric for o in self.objectives] + [c.metric for c in self.constraints]

    def costs(self, evaluation: Evaluation) -> list[float]:
        """Its objectives, turned so that less is better."""
        return [cost_of(evaluation, o.metric, self.baseline_id) for o in self.objectives]

    def views(self, evaluation: Evaluation) -> Views:
        """What is known of a complete candidate whose search evaluation this is, strongest first.

        A load whose figures must not be relied on counts as none; what the confirmation predicted stands then.
        """
        confirmed, found = self.confirmations.get(evaluation.candidate.id), dict[Basis, Evaluation]()
        if confirmed is not None and confirmed.status == "complete":
            service = confirmed.measurement.service
            found["held out"] = confirmed
            if self.serves and service is not None:
                alone = replace(confirmed.measurement, service=replace(service, confirmed=None))
                if service.best is not None and service.confirmed is not None and service.confirmed.reliable:
                    found = {"load": confirmed}
                found["held out"] = replace(confirmed, measurement=alone)
        return found | {"search": evaluation}

    def strongest(self, evaluation: Evaluation) -> Evaluation:
        """The same candidate by the strongest evidence on it."""
        return next(iter(self.views(evaluation).values())) if evaluation.status == "complete" else evaluation

    def evidence(self, evaluation: Evaluation) -> Evidence | None:
        """The weakest level among its objectives, by the strongest evidence on each candidate."""
        return level_for(self.strongest(evaluation), [o.metric for o in self.objectives])

    @property
    def baseline(self) -> Evaluation | None:
        return self.find(self.baseline_id)

    def title(self, candidate: Candidate) -> str:
        """What a candidate is, for a row; its engine is said where the sweep has several."""
        several = len({e.candidate.target for e in self.evaluations}) > 1
        return title(candidate, self.baseline_id, engine=several)

    @property
    def chosen(self) -> Evaluation | None:
        """The recommended candidate in the search."""
        return None if self.recommended is None else self.find(self.recommended.candidate_id)

    def chose(self, evaluation: Evaluation) -> bool:
        return self.recommended is not None and self.recommended.candidate_id == evaluation.candidate.id

    def find(self, candidate_id: str) -> Evaluation | None:
        return next((e for e in self.evaluations if e.candidate.id == candidate_id), None)

    def member(self, candidate_id: str) -> Member | None:
        return next((m for m in self.front if m.id == candidate_id), None)

    def numbers(self, evaluation: Evaluation) -> dict[str, float]:
        """`results.metrics`, with the baseline's drop against itself made explicit."""
        return numbers_of(evaluation, self.baseline_id)

    def is_feasible(self, evaluation: Evaluation) -> bool:
        """Complete, every objective measured and every constraint met, in the evaluation given."""
        if evaluation.status != "complete":
            return False
        numbers = self.numbers(evaluation)
        found = violations(self.constraints, numbers)
        measured = all(o.metric in numbers for o in self.objectives)
        return measured and all(found.get(c.metric, 1.0) <= 0 for c in self.constraints)

    def may_ship(self, evaluation: Evaluation) -> bool:
        """Whether nothing is held against it by the strongest evidence."""
        return self.is_feasible(self.strongest(evaluation)) and not self.refusal(evaluation)

    def standing(self, evaluation: Evaluation) -> Standing:
        if evaluation.status != "complete":
            return evaluation.status
        if self.member(evaluation.candidate.id) is not None:
            return "front"
        return "dominated" if self.may_ship(evaluation) else "infeasible"

    def speedup(self, evaluation: Evaluation) -> Estimate | None:
        """By the strongest evidence: nobody was chosen for what was timed afresh."""
        latency = self.strongest(evaluation).measurement.latency
        return latency.speedup if latency is not None else None

    def drop(self, evaluation: Evaluation) -> Estimate | None:
        """By the strongest evidence; zero for the baseline."""
        return loss_of(self.strongest(evaluation), self.baseline_id)

    def service(self, evaluation: Evaluation) -> ServiceResult | None:
        """The one of the held-out data where there is one, which real load may have confirmed; else the search's."""
        for one in (self.confirmations.get(evaluation.candidate.id), evaluation):
            if one is not None and one.measurement.service is not None:
                return one.measurement.service
        return None
