"""The facts of a sweep: which measurements may be lent, to whom, and which loans were found wrong.

Facts are read from the sweep's evaluations and kept nowhere else. So what a kill or damage takes from the journal is
missing here too, and what is evaluated again is a fact again.

    lent    measured on the lender itself in this sweep, on a machine that was quiet, or only changed its speed
    owed    borrowed, by a kind of loan that an audit found wrong: to be measured anew
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.facts import BETWEEN, Fact, lendable
from workbench.values.facts import between as between_measurements
from workbench.values.measurement import Measurement
from workbench.values.results import Evaluation

AUDITED = 0.2
"""The share of candidates that measure what they could borrow, or what could be predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loans:
    """What one evaluation may take from others.

    Attributes:
        lenders: key of a fact → id of the candidate whose measurement it is.
        stopped: kinds of loans (see `kind_of`) that nobody takes any more.
        audited: this candidate measures all the same, and says how far the loan would have been off.
        between: the error of one measurement that the rounds inside it do not show (see `values.facts.between`).
    """

    lenders: Mapping[str, str] = field(default_factory=dict)
    stopped: tuple[str, ...] = ()
    audited: bool = False
    between: float = BETWEEN


NO_LOANS = Loans()


def loans_for(candidate: Candidate, evaluations: Mapping[str, Evaluation], seed: int) -> Loans:
    """What this candidate may borrow from the evaluations of its sweep, by candidate id."""
    stopped = stopped_kinds(evaluations.values())
    others = (evaluation for candidate_id, evaluation in evaluations.items() if candidate_id != candidate.id)
    lenders: dict[str, str] = {}
    for evaluation in sorted(others, key=lambda e: (e.started_at, e.candidate.id)):
        for fact in _lent(evaluation):
            if kind_of(evaluation.candidate, fact) not in stopped:
                lenders.setdefault(fact.key, evaluation.candidate.id)
    repeats = [fact.repeat for _, fact in _facts(evaluations.values()) if fact.repeat is not None]
    return Loans(
        lenders=lenders, stopped=stopped, audited=is_audited(candidate, seed), between=between_measurements(repeats)
    )


def is_audited(candidate: Candidate, seed: int, what: str = "audit") -> bool:
    """Drawn by the sweep's seed and the candidate's content: the same whenever it is asked.

    Args:
        what: is audited; each is drawn by itself.
    """
    return int(digest([seed, what, candidate.id])[:8], 16) < AUDITED * 16**8


def stopped_kinds(evaluations: Iterable[Evaluation]) -> tuple[str, ...]:
    """Kinds of loans of which an audit found one wrong."""
    wrong = {kind_of(e.candidate, fact) for e, fact in _facts(evaluations) if fact.audit and fact.audit.agrees is False}
    return tuple(sorted(wrong))


def owed(evaluations: Sequence[Evaluation]) -> tuple[Candidate, ...]:
    """Candidates that hold a loan of a stopped kind."""
    stopped = stopped_kinds(evaluations)
    found = [e.candidate for e, fact in _facts(evaluations) if fact.lender and kind_of(e.candidate, fact) in stopped]
    return tuple(dict.fromkeys(found))


def instead_of(before: Sequence[Fact], facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The facts of a candidate that is measured anew, each with the loan that it replaces."""
    lenders = {fact.kind: fact.lender for fact in before if fact.lender is not None}
    return tuple(
        replace(fact, replaces=lenders[fact.kind]) if fact.kind in lenders and fact.lender is None else fact
        for fact in facts
    )


def kind_of(candidate: Candidate, fact: Fact) -> str:
    """Such as 'onnxruntime latency': one wrong claim of a target makes its others of that kind doubtful."""
    return f"{candidate.target} {fact.kind}"


def _facts(evaluations: Iterable[Evaluation]) -> Iterator[tuple[Evaluation, Fact]]:
    return ((evaluation, fact) for evaluation in evaluations for fact in evaluation.facts)


def _lent(evaluation: Evaluation) -> Iterator[Fact]:
    """Facts that were measured here, whole and undisturbed."""
    if evaluation.status != "complete" or evaluation.cut:
        return
    yield from (fact for fact in evaluation.facts if fact.lender is None and _lendable(evaluation.measurement, fact))


def _lendable(measurement: Measurement, fact: Fact) -> bool:
    if fact.kind == "latency":
        return measurement.latency is not None and lendable(measurement.latency)
    if fact.kind == "accuracy":
        return measurement.accuracy is not None
    return measurement.service is not None and lendable(measurement.service.curve)
