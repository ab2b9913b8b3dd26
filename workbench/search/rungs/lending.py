"""What a climb takes from others' measurements, and what it says of it."""

from __future__ import annotations

from dataclasses import replace

from workbench.search.rungs.climb import Climb
from workbench.values.facts import Fact, FactKind
from workbench.values.measurement import BatchCurve, Latency
from workbench.values.results import Evaluation


def lender(climb: Climb, kind: FactKind, key: str) -> Evaluation | None:
    """Whose measurement has this key; None where nobody's has, and for baseline and confirmations, which borrow
    nothing."""
    if not climb.gates or f"{climb.candidate.target} {kind}" in climb.loans.stopped:
        return None
    candidate_id = climb.loans.lenders.get(key)
    return None if candidate_id is None else climb.bench.journal.evaluation(candidate_id)


def lent_latency(evaluation: Evaluation) -> Latency:
    assert evaluation.measurement.latency is not None  # only those lend
    return evaluation.measurement.latency


def lent_curve(evaluation: Evaluation) -> BatchCurve:
    """At first speed, as it lies in its evaluation; so its drift is 1."""
    assert evaluation.measurement.service is not None  # only those lend
    return replace(evaluation.measurement.service.curve, drift=1.0, baseline=None, baseline_first_ms=0.0)


def keep(climb: Climb, fact: Fact) -> None:
    climb.facts = (*(each for each in climb.facts if each.kind != fact.kind), fact)
