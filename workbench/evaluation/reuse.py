"""Which measurements of a sweep others may reuse, and which kinds of reuse an audit found wrong.

All of it is read from the sweep's evaluations and kept nowhere else. So what a kill or damage takes from the journal
is missing here too, and what is evaluated again can be reused again.

    source      measured itself in this sweep, on a machine that was quiet, or only changed its speed
    doubtful    reused, by a kind of reuse that an audit found wrong: to be measured anew
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.results import Evaluation
from workbench.values.reuse import Reuse, reusable

AUDITED = 0.2
"""The share of candidates that measure what they could reuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reusable:
    """What one evaluation may take from others.

    Attributes:
        sources: equivalence key → id of the candidate whose measurement it is.
        stopped: kinds of reuse (see `kind_of`) that nobody takes any more.
        audited: this candidate measures all the same, and says how far the reused one would have been off.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    stopped: tuple[str, ...] = ()
    audited: bool = False


NOTHING_REUSABLE = Reusable()


def reusable_for(candidate: Candidate, evaluations: Mapping[str, Evaluation], seed: int) -> Reusable:
    """What this candidate may reuse of the evaluations of its sweep, by candidate id."""
    stopped = stopped_kinds(evaluations.values())
    others = (evaluation for candidate_id, evaluation in evaluations.items() if candidate_id != candidate.id)
    sources: dict[str, str] = {}
    for evaluation in sorted(others, key=lambda e: (e.started_at, e.candidate.id)):
        for reuse in _reusable_of(evaluation):
            if kind_of(evaluation.candidate, reuse) not in stopped:
                sources.setdefault(reuse.key, evaluation.candidate.id)
    return Reusable(sources=sources, stopped=stopped, audited=is_audited(candidate, seed))


def is_audited(candidate: Candidate, seed: int) -> bool:
    """Drawn by the sweep's seed and the candidate's content: the same whenever it is asked."""
    return int(digest([seed, "audit", candidate.id])[:8], 16) < AUDITED * 16**8


def stopped_kinds(evaluations: Iterable[Evaluation]) -> tuple[str, ...]:
    """Kinds of reuse of which an audit found one wrong."""
    wrong = {
        kind_of(e.candidate, reuse) for e, reuse in _pairs(evaluations) if reuse.audit and reuse.audit.agrees is False
    }
    return tuple(sorted(wrong))


def doubtful(evaluations: Sequence[Evaluation]) -> tuple[Candidate, ...]:
    """Candidates that reuse a measurement of a stopped kind."""
    stopped = stopped_kinds(evaluations)
    found = [e.candidate for e, reuse in _pairs(evaluations) if reuse.source and kind_of(e.candidate, reuse) in stopped]
    return tuple(dict.fromkeys(found))


def instead_of(before: Sequence[Reuse], now: Sequence[Reuse]) -> tuple[Reuse, ...]:
    """What is said of a candidate that is measured anew, each with the source of the measurement that it replaces."""
    sources = {reuse.kind: reuse.source for reuse in before if reuse.source is not None}
    return tuple(
        replace(reuse, replaces=sources[reuse.kind]) if reuse.kind in sources and reuse.source is None else reuse
        for reuse in now
    )


def kind_of(candidate: Candidate, reuse: Reuse) -> str:
    """Such as 'onnxruntime latency': one wrong claim of a target makes its others of that kind doubtful."""
    return f"{candidate.target} {reuse.kind}"


def _pairs(evaluations: Iterable[Evaluation]) -> Iterator[tuple[Evaluation, Reuse]]:
    return ((evaluation, reuse) for evaluation in evaluations for reuse in evaluation.reuse)


def _reusable_of(evaluation: Evaluation) -> Iterator[Reuse]:
    """What was measured here, whole and undisturbed."""
    latency, service = evaluation.measurement.latency, evaluation.measurement.service
    sound = {
        "latency": latency is not None and reusable(latency),
        "accuracy": evaluation.measurement.accuracy is not None,
        "curve": service is not None and reusable(service.curve),
    }
    if evaluation.status == "complete" and not evaluation.cut:
        yield from (reuse for reuse in evaluation.reuse if reuse.source is None and sound[reuse.kind])
