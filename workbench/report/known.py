"""What is known of each candidate, strongest evidence first, and who is on the front by it.

Under load on held-out data goes before held-out data without load, and that before the search. Two candidates are
compared by the strongest evidence that both have, so that a prediction is never held against a measurement; and what
the stronger evidence kept, no weaker one removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from workbench.report.alike import Alike
from workbench.report.reading import SERVICE, cost_of, is_feasible, numbers_of
from workbench.report.words import over
from workbench.values.objectives import Constraint, Objective, pareto_front, violations
from workbench.values.results import Evaluation, Failure

Basis = Literal["load", "held out", "search"]
"""A measurement of the service under load, on held-out data; the confirmation without it; the search."""
BASES: tuple[Basis, ...] = get_args(Basis)

Views = Mapping[Basis, Evaluation]
"""One candidate, as each evidence there is shows it, strongest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of every candidate."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    baseline_id: str

    @property
    def serves(self) -> bool:
        """Whether a load on the service measures anything that is asked for."""
        asked = [*(o.metric for o in self.objectives), *(c.metric for c in self.constraints)]
        return any(metric in SERVICE for metric in asked)

    def keeps(self, evaluation: Evaluation) -> bool:
        """Complete, every objective and constraint measured, every constraint met."""
        return is_feasible(evaluation, self.objectives, self.constraints, self.baseline_id)

    def costs(self, evaluation: Evaluation) -> list[float]:
        """Its objectives, turned so that less is better."""
        return [cost_of(evaluation, o.metric, self.baseline_id) for o in self.objectives]


def held_against(confirmed: Evaluation | None, question: Question) -> str:
    """Why a candidate must not be recommended, by its confirmation; empty where that holds nothing against it.

    The one place that says so: whatever names a recommendation rests on it. A failure to run is told as one, for
    whoever reads that a candidate failed on held-out data takes it for inaccurate.
    """
    if confirmed is None:
        return ""
    failure, service = confirmed.failure, confirmed.measurement.service
    if failure is not None:
        again = "; the same sweep again makes another attempt" if confirmed.deserves_another else ""
        return (
            f"its confirmation could not be run, which says nothing of its accuracy ({failure_words(failure)}){again}"
        )
    if confirmed.overflow:
        return confirmed.overflow
    if broken := broken_by(confirmed, question):
        return "on held-out data it breaks " + ", ".join(over(name, by) for name, by in broken.items())
    if service is not None and service.best is None:
        return service.note or "its service keeps no limit on held-out data"
    return ""


def broken_by(confirmed: Evaluation, question: Question) -> dict[str, float]:
    """Constraints that a complete confirmation breaks, metric → by how much."""
    found = violations(question.constraints, numbers_of(confirmed, question.baseline_id))
    return {name: by for name, by in found.items() if by > 0}


def failure_words(failure: Failure) -> str:
    return f"{failure.kind} at {failure.stage}: {' '.join(failure.message.split())}".rstrip(".")


def views(searched: Evaluation, confirmed: Evaluation | None, *, serves: bool) -> Views:
    """Of a complete evaluation.

    A load whose figures must not be relied on counts as none; what the confirmation predicted stands then.
    """
    found: dict[Basis, Evaluation] = {}
    if confirmed is not None and confirmed.status == "complete":
        service = confirmed.measurement.service
        if serves and service is not None:
            if service.best is not None and service.confirmed is not None and service.confirmed.reliable:
                found["load"] = confirmed
            measurement = replace(confirmed.measurement, service=replace(service, confirmed=None))
            found["held out"] = replace(confirmed, measurement=measurement)
        else:
            found["held out"] = confirmed
    found["search"] = searched
    return found


def strongest(of: Views) -> Evaluation:
    return of[strongest_basis(of)]


def strongest_basis(of: Views) -> Basis:
    return next(basis for basis in BASES if basis in of)


def common(a: Views, b: Views) -> tuple[Evaluation, Evaluation]:
    """Both by the strongest evidence that both have."""
    basis = next(basis for basis in BASES if basis in a and basis in b)
    return a[basis], b[basis]


def searched_front(known: Mapping[str, Views], question: Question) -> list[str]:
    """Who is feasible and not dominated by the search's figures alone: what a confirmation is for."""
    able = [i for i, v in known.items() if question.keeps(v["search"])]
    points = [question.costs(known[i]["search"]) for i in able]
    return [able[i] for i in pareto_front(points, ["minimize"] * len(question.objectives))]


def front(known: Mapping[str, Views], question: Question, alike: Alike) -> dict[str, str]:
    """Candidate → the one that takes it off the front, empty for those on it; without those that are not feasible.

    By figures that were measured afresh, only a difference beyond the noise takes a candidate off: of so few, each
    that may be the best is worth seeing. In the search the point values decide, as they do for the sampler.
    """
    able = {i: v for i, v in known.items() if question.keeps(strongest(v))}
    return {i: _better(i, able, question, alike) for i in able}


def _better(candidate_id: str, able: Mapping[str, Views], question: Question, alike: Alike) -> str:
    basis = strongest_basis(able[candidate_id])
    mine = able[candidate_id][basis]
    costs = question.costs(mine) if question.keeps(mine) else []
    for other_id, other in able.items():
        if other_id == candidate_id or basis not in other or not question.keeps(other[basis]):
            continue
        theirs = question.costs(other[basis])
        if theirs == costs or any(its > own for its, own in zip(theirs, costs, strict=True)):
            continue
        if basis == "search" or alike.apart(mine, other[basis], [o.metric for o in question.objectives]):
            return other_id
    return ""


def in_order(ids: Sequence[str], known: Mapping[str, Views], question: Question) -> list[str]:
    """The strongest evidence first, within it the best in the first objective."""

    def key(candidate_id: str) -> tuple[int, float, str]:
        of = known[candidate_id]
        return BASES.index(strongest_basis(of)), question.costs(strongest(of))[0], candidate_id

    return sorted(ids, key=key)
