"""What became of reused measurements, where an audit found their reuse wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.report.words import count_of, interval
from workbench.values.evidence import SHORT
from workbench.values.results import Evaluation
from workbench.values.reuse import Audit

_WORDS = {"latency": "Times of calls", "curve": "Batch curves", "accuracy": "Answers"}
_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedReuse:
    """Reused measurements of one kind and target that nobody takes any more.

    Attributes:
        finder: id of the candidate whose audit found it.
        anew: ids of those that had reused one and were measured themselves since.
        doubtful: ids of those that still reuse one.
    """

    target: str
    kind: str
    finder: str
    audit: Audit
    anew: tuple[str, ...]
    doubtful: tuple[str, ...]


def stopped_reuse(evaluations: Sequence[Evaluation]) -> tuple[StoppedReuse, ...]:
    """Of each kind by its first wrong audit."""
    wrong: dict[tuple[str, str], tuple[str, Audit]] = {}
    for evaluation in sorted(evaluations, key=lambda e: e.started_at):
        for reuse in evaluation.reuse:
            if reuse.audit is not None and reuse.audit.agrees is False:
                wrong.setdefault((evaluation.candidate.target, reuse.kind), (evaluation.candidate.id, reuse.audit))
    found = []
    for (target, kind), (finder, audit) in wrong.items():
        same = [
            (e.candidate.id, f) for e in evaluations for f in e.reuse if (e.candidate.target, f.kind) == (target, kind)
        ]
        found.append(
            StoppedReuse(
                target=target,
                kind=kind,
                finder=finder,
                audit=audit,
                anew=tuple(i for i, reuse in same if reuse.replaces is not None),
                doubtful=tuple(i for i, reuse in same if reuse.source is not None),
            )
        )
    return tuple(found)


def reuse_sentences(evaluations: Sequence[Evaluation]) -> list[str]:
    """One sentence for each kind, with the audit's ratio and what was measured anew."""
    found = []
    for stopped in stopped_reuse(evaluations):
        words = f"{_WORDS[stopped.kind]} are no longer shared on {stopped.target}: {stopped.finder[:SHORT]} "
        source = f"{stopped.audit.source[:SHORT]} of the same class"
        if stopped.kind == "accuracy":
            words += f"answered other than {source}; its accuracy is {stopped.audit.ratio.value:.4f} times as high."
        else:
            words += f"took {interval(stopped.audit.ratio, 'x', 2)} what {source} took."
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
