"""What became of measurements that candidates lent each other, where an audit found a loan wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.report.words import count_of, interval
from workbench.values.evidence import SHORT
from workbench.values.facts import Audit
from workbench.values.results import Evaluation

_WORDS = {"latency": "Times of calls", "curve": "Batch curves", "accuracy": "Answers"}
_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedLoans:
    """Loans of one kind and target that nobody takes any more.

    Attributes:
        finder: id of the candidate whose audit found it.
        anew: ids of those that had borrowed and were measured themselves since.
        doubtful: ids of those that still hold such a loan.
    """

    target: str
    kind: str
    finder: str
    audit: Audit
    anew: tuple[str, ...]
    doubtful: tuple[str, ...]


def stopped_loans(evaluations: Sequence[Evaluation]) -> tuple[StoppedLoans, ...]:
    """Of each kind by its first wrong audit."""
    wrong: dict[tuple[str, str], tuple[str, Audit]] = {}
    for evaluation in sorted(evaluations, key=lambda e: e.started_at):
        for fact in evaluation.facts:
            if fact.audit is not None and fact.audit.agrees is False:
                wrong.setdefault((evaluation.candidate.target, fact.kind), (evaluation.candidate.id, fact.audit))
    found = []
    for (target, kind), (finder, audit) in wrong.items():
        same = [
            (e.candidate.id, f) for e in evaluations for f in e.facts if (e.candidate.target, f.kind) == (target, kind)
        ]
        found.append(
            StoppedLoans(
                target=target,
                kind=kind,
                finder=finder,
                audit=audit,
                anew=tuple(i for i, fact in same if fact.replaces is not None),
                doubtful=tuple(i for i, fact in same if fact.lender is not None),
            )
        )
    return tuple(found)


def loan_sentences(evaluations: Sequence[Evaluation]) -> list[str]:
    """One sentence for each kind, with the audit's ratio and what was measured anew."""
    found = []
    for stopped in stopped_loans(evaluations):
        words = f"{_WORDS[stopped.kind]} are no longer shared on {stopped.target}: {stopped.finder[:SHORT]} "
        lender = f"{stopped.audit.lender[:SHORT]} of the same class"
        if stopped.kind == "accuracy":
            words += f"answered other than {lender}; its accuracy is {stopped.audit.ratio.value:.4f} times as high."
        else:
            words += f"took {interval(stopped.audit.ratio, 'x', 2)} what {lender} took."
        if stopped.anew:
            words += f" Measured anew: {_listed(stopped.anew)}."
        if stopped.doubtful:
            words += (
                f" Not measured yet, and doubtful: {_listed(stopped.doubtful)}; the same sweep again begins with them."
            )
        found.append(words)
    return found


def _listed(ids: Sequence[str]) -> str:
    named = ", ".join(each[:SHORT] for each in ids[:_LISTED])
    return named if len(ids) <= _LISTED else f"{named} and {count_of(len(ids) - _LISTED, 'other')}"
