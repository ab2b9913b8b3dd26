"""How right it is: first over growing parts of the split, then over all of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.keys import accuracy_key
from workbench.evaluation.reference import reference_words
from workbench.inputs.metrics import (
    Outcomes,
    load_outcomes,
    per_sample,
    primary_of,
    same_outcomes,
    save_outcomes,
    size,
    summarize,
    take,
)
from workbench.search.limits import rejection
from workbench.search.rungs.climb import Climb
from workbench.search.rungs.lending import keep, lender
from workbench.values import significance
from workbench.values.artifact import Artifact
from workbench.values.facts import Fact, audit_of_answers
from workbench.values.measurement import SAME_ANSWERS, Accuracy, AccuracyComparison, Estimate
from workbench.values.metrics import accuracy_metrics, drop_metric
from workbench.values.results import Evaluation, Stop


def take_answers(climb: Climb, scores: AccuracyPass, artifact: Artifact, directory: Path) -> None:
    """Another's outcomes where its files compute the same, else say under which key its own may be lent.

    On held-out data everything is measured, as it is by the baseline, which only lends.
    """
    if climb.split != "validation":
        return
    at = (climb.candidate, climb.bench, artifact, directory)
    key = accuracy_key(*at, witness=climb.witness, scored=scores.scored)
    known = lender(climb, "accuracy", key)
    if known is None or climb.loans.audited or (lent := _answers_of(climb, known)) is None:
        keep(climb, Fact(kind="accuracy", key=key))
        if known is not None and climb.loans.audited:
            scores.measure_afresh()
        return
    scores.borrow(lent)
    keep(climb, Fact(kind="accuracy", key=key, lender=known.candidate.id))


def _answers_of(climb: Climb, known: Evaluation) -> Outcomes | None:
    """What a lender's journal holds; None where that is gone or damaged."""
    try:
        return load_outcomes(climb.bench.journal.outcomes(known.candidate.id, climb.split))
    except (FileNotFoundError, ValueError):
        return None


def _audit(climb: Climb, outcomes: Outcomes, own: Accuracy) -> None:
    """Of an audited candidate that could have borrowed: whether the loan would have been right."""
    fact = next((fact for fact in climb.facts if fact.kind == "accuracy"), None)
    known = lender(climb, "accuracy", fact.key) if fact is not None and climb.loans.audited else None
    lent = None if known is None else _answers_of(climb, known)
    if fact is None or known is None or lent is None or known.measurement.accuracy is None:
        return
    values = (own.values[own.primary], known.measurement.accuracy.values[own.primary])
    audit = audit_of_answers(*values, known.candidate.id, same=same_outcomes(outcomes, lent))
    keep(climb, replace(fact, audit=audit))


def growing_subsets(climb: Climb, scores: AccuracyPass) -> Stop | None:
    """Score 1/8, 1/4, 1/2 … of the split; stop once the drop is certainly over its limit."""
    metric = drop_metric(scores.scorer.unit)
    limit = next((c.limit for c in climb.experiment.constraints if c.metric == metric), None)
    if not climb.gates or limit is None:
        return None
    for look in significance.look_schedule(climb.experiment.dataset.size(climb.split)):
        candidate = scores.first(look)
        reference = take(scores.reference_outcomes(), size(candidate))
        keep_accuracy(climb, candidate, reference)
        excess = significance.certain_violation(per_sample(reference), per_sample(candidate), limit_pp=limit)
        if excess is not None:
            what = "accuracy drop" if scores.scorer.primary == "accuracy" else f"drop of {scores.scorer.primary}"
            return Stop(
                stage=climb.name,
                reason=f"after {size(candidate)} samples the {what} is certainly at least "
                f"{limit + excess:.2f} {scores.scorer.unit or 'pp'}; the limit is {limit:g}",
                violations={metric: excess},
            )
    return None


def full_accuracy(climb: Climb, scores: AccuracyPass) -> Stop | None:
    outcomes = scores.full()
    climb.cached = scores.from_store
    save_outcomes(climb.bench.journal.outcomes(climb.candidate.id, climb.split), outcomes)
    itself = scores.baseline_is_reference
    reference = None if climb.is_baseline and itself else scores.reference_outcomes()
    baseline = None if climb.is_baseline or itself else scores.baseline_outcomes()
    theirs = None if climb.is_baseline else scores.baseline_outcomes()
    same = theirs is not None and same_outcomes(theirs, outcomes) and _answers_as_baseline(climb, scores)
    accuracy = keep_accuracy(climb, outcomes, reference, baseline, same=same)
    _audit(climb, outcomes, accuracy)
    stop = climb.over_limit(accuracy_metrics(accuracy))
    metric = drop_metric(accuracy.unit)
    if stop is None or reference is None or accuracy.comparison is None or metric not in stop.violations:
        return stop
    limit = next(c.limit for c in climb.experiment.constraints if c.metric == metric)
    said = rejection(metric, accuracy.comparison, limit, per_sample(reference), per_sample(outcomes))
    others = {name: by for name, by in stop.violations.items() if name != metric}
    further = [f"{name} is over its limit by {by:.4g}" for name, by in sorted(others.items())]
    return replace(stop, reason="; ".join([said, *further]))


def _answers_as_baseline(climb: Climb, scores: AccuracyPass) -> bool:
    """Whether its answers are the float baseline's own, bit for bit; of what it borrowed, whether its lender's are."""
    owner = next((fact.lender for fact in climb.facts if fact.kind == "accuracy"), None)
    known = None if owner is None else climb.bench.journal.evaluation(owner)
    if known is None or known.measurement.accuracy is None:
        return scores.answers_as_baseline()
    found = known.measurement.accuracy.against_baseline or known.measurement.accuracy.comparison
    return owner == climb.experiment.baseline.id or (found is not None and found.test == SAME_ANSWERS)


def keep_accuracy(
    climb: Climb,
    outcomes: Outcomes,
    reference: Outcomes | None,
    baseline: Outcomes | None = None,
    *,
    same: bool = False,
) -> Accuracy:
    """What these outcomes come to beside the others, which the measurement holds from here on.

    Args:
        same: they are the float baseline's own answers: not the samples alone show no loss then, there is none.
        reference: in float32; None where these outcomes are its own.
        baseline: of the float model as it runs today, where that is not the reference.
    """
    primary, unit, higher = primary_of(outcomes, climb.experiment.dataset.task)

    def against(other: Outcomes | None, *, own: bool) -> AccuracyComparison | None:
        found = None if other is None else significance.compare(per_sample(other), per_sample(outcomes))
        if found is None or not (own and same):
            return found
        return replace(found, drop_pp=Estimate(value=0.0, low=0.0, high=0.0), p_value=1.0, test=SAME_ANSWERS)

    accuracy = Accuracy(
        primary=primary,
        unit=unit,
        higher=higher,
        proof=climb.proof,
        alike=climb.alike,
        values=summarize(outcomes),
        samples=size(outcomes),
        split=climb.split,
        comparison=against(reference, own=baseline is None),
        reference="" if reference is None else reference_words(climb.experiment),
        against_baseline=against(baseline, own=True),
    )
    climb.measurement = replace(climb.measurement, accuracy=accuracy)
    return accuracy
