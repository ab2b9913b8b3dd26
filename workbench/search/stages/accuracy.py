"""How right it is: a few samples before many, then growing parts of the split, then all of it; and how far its answers
lie from float32, in the search where somebody asks for it, and of all that is confirmed.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.carried import FLOAT32_ON_THE_HOST, apart_from_baseline, first_steps, whole_samples
from workbench.evaluation.reuse import accuracy_key
from workbench.inputs.dataset import Batch
from workbench.inputs.metrics.outcomes import (
    MeasuredOutcomes,
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
from workbench.inputs.metrics.score import Outputs, agreement, cut_alike
from workbench.inputs.metrics.scorer import not_by_distance
from workbench.search.refusals import rejection
from workbench.search.stages.request import Opened, Request, StageResult
from workbench.shipping.agreement.compared import Asked
from workbench.shipping.agreement.measure import agreement_of_sessions
from workbench.values import significance
from workbench.values.errors import MeasureError
from workbench.values.measurement import FLOAT_INDEX, SAME_ANSWERS, Accuracy, AccuracyComparison, Estimate
from workbench.values.metrics import METRICS, accuracy_metrics, agreement_metrics, loss_metric
from workbench.values.results import Evaluation
from workbench.values.reuse import Reuse, audit_of_answers
from workbench.values.sequential import ERROR, certain_violation, decide, look_schedule


def take_answers(request: Request, result: StageResult, scores: AccuracyPass, opened: Opened) -> StageResult:
    """Another's outcomes where its files compute the same, else say under which key its own may be reused.

    On held-out data everything is measured, as it is by the baseline, which only is a source.
    """
    if request.split != "validation":
        return result
    at = (request.candidate, request.bench, opened.artifact, opened.directory)
    key = accuracy_key(*at, witness=result.witness, scored=scores.scored)
    known = request.source("accuracy", key)
    if known is not None and request.reusable.audited:
        scores.measure_afresh()
    elif known is not None and (reused := _answers_of(request, known)) is not None:
        scores.reuse(reused)
        return result.under(Reuse(kind="accuracy", key=key, source=known.candidate.id))
    return result.under(Reuse(kind="accuracy", key=key))


def _answers_of(request: Request, known: Evaluation) -> Outcomes | None:
    """What a source's journal holds; None where that is gone or damaged."""
    try:
        return load_outcomes(request.bench.journal.outcomes(known.candidate.id, request.split))
    except (FileNotFoundError, ValueError):
        return None


def _audited(request: Request, result: StageResult, outcomes: Outcomes) -> StageResult:
    """Of an audited candidate that could have reused answers: with whether they would have been right."""
    reuse = next((each for each in result.reuse if each.kind == "accuracy"), None)
    known = request.source("accuracy", reuse.key) if reuse is not None and request.reusable.audited else None
    reused, own = None if known is None else _answers_of(request, known), result.measurement.accuracy
    if reuse is None or known is None or reused is None or known.measurement.accuracy is None or own is None:
        return result
    values = (own.values[own.primary], known.measurement.accuracy.values[own.primary])
    audit = audit_of_answers(*values, known.candidate.id, same=same_outcomes(outcomes, reused))
    return result.under(replace(reuse, audit=audit))


def growing_subsets(request: Request, result: StageResult, scores: AccuracyPass) -> StageResult:
    """Score 1/16, 1/8 … of the split; stop once the drop is over its limit, and certainly over the zone's lower end."""
    metric = loss_metric(scores.scorer.unit)
    gate = next((c.gate for c in request.experiment.constraints if c.metric == metric), None)
    if not request.gated or gate is None:
        return result
    least = gate.limit - gate.zone
    looks = look_schedule(request.experiment.dataset.size(request.split))
    for look in looks:
        candidate = scores.first(look)
        reference = take(scores.reference_outcomes(), size(candidate))
        beyond = certain_violation(per_sample(reference), per_sample(candidate), limit_pp=least)
        if beyond is None and look != looks[-1]:
            continue
        result = with_accuracy(request, result, candidate, reference)
        accuracy = result.measurement.accuracy
        assert accuracy is not None  # just measured
        assert accuracy.comparison is not None  # it is not the baseline
        loss = accuracy.comparison.drop_pp.value
        if beyond is not None and loss > gate.limit:
            what = "accuracy loss" if scores.scorer.primary == "accuracy" else f"loss in {scores.scorer.primary}"
            reason = (
                f"after {size(candidate)} samples the {what} is {loss:.2f} {accuracy.comparison.unit}, certainly at "
                f"least {least + beyond:.2f}; the limit is {gate.limit:g}, false alarm at most {ERROR:.0%} "
                f"at {least:g} or less"
            )
            return result.stopped(reason, {metric: loss - gate.limit})
    return result


def full_accuracy(request: Request, result: StageResult, scores: AccuracyPass) -> StageResult:
    outcomes = scores.full()
    save_outcomes(request.bench.journal.outcomes(request.candidate.id, request.split), outcomes)
    itself = scores.baseline_is_reference
    reference = None if request.is_baseline and itself else scores.reference_outcomes()
    baseline = None if request.is_baseline or itself else scores.baseline_outcomes()
    theirs = None if request.is_baseline else scores.baseline_outcomes()
    same = theirs is not None and same_outcomes(theirs, outcomes) and _answers_as_baseline(request, result, scores)
    result = with_accuracy(request, result, outcomes, reference, baseline, same=same)
    result = replace(_audited(request, result, outcomes), cached=scores.from_store)
    accuracy = result.measurement.accuracy
    assert accuracy is not None  # just measured
    result = result.within(request, accuracy_metrics(accuracy))
    return with_rejection(request, result, loss_metric(accuracy.unit), reference, outcomes)


def with_rejection(
    request: Request, result: StageResult, metric: str, reference: Outcomes | None, outcomes: Outcomes
) -> StageResult:
    """A stop on a limit of this metric says how sure it is, and names the other limits that are broken."""
    accuracy, stop = result.measurement.accuracy, result.stop
    if stop is None or reference is None or accuracy is None or accuracy.comparison is None:
        return result
    if metric not in stop.violations:
        return result
    limit = next(c for c in request.experiment.constraints if c.metric == metric)
    said = rejection(metric, accuracy.comparison, limit.limit, per_sample(reference), per_sample(outcomes))
    if (gate := limit.gate) is not None:
        compared = accuracy.comparison
        said += f"; {decide(gate, compared.drop_pp, samples=accuracy.samples, unit=compared.unit)}"
    others = {name: by for name, by in stop.violations.items() if name != metric}
    further = [f"{name} is over its limit by {by:.4g}" for name, by in sorted(others.items())]
    return replace(result, stop=replace(stop, reason="; ".join([said, *further])))


def _answers_as_baseline(request: Request, result: StageResult, scores: AccuracyPass) -> bool:
    """Whether its answers are the float baseline's own, bit for bit; of what it reused, whether its source's are."""
    owner = result.source("accuracy")
    known = None if owner is None else request.bench.journal.evaluation(owner)
    if known is None or known.measurement.accuracy is None:
        return scores.answers_as_baseline()
    against = known.measurement.accuracy.against_baseline or known.measurement.accuracy.comparison
    return owner == request.experiment.baseline.id or (against is not None and against.test == SAME_ANSWERS)


def with_accuracy(
    request: Request,
    result: StageResult,
    outcomes: Outcomes,
    reference: Outcomes | None,
    baseline: Outcomes | None = None,
    *,
    same: bool = False,
) -> StageResult:
    """What these outcomes come to beside the others.

    Args:
        same: they are the float baseline's own answers: not the samples alone show no loss then, there is none.
        reference: in float32; None where these outcomes are its own.
        baseline: of the float model as it runs today, where that is not the reference.
    """
    primary, unit, higher = primary_of(outcomes, request.experiment.dataset.task)
    names = list(map(str, outcomes.names)) if isinstance(outcomes, MeasuredOutcomes) else []
    second = FLOAT_INDEX + primary

    def against(other: Outcomes | None, *, own: bool, at: int = 0) -> AccuracyComparison | None:
        by = None if other is None else significance.compare(per_sample(other, at), per_sample(outcomes, at))
        if by is None or not (own and same):
            return by
        return replace(by, drop_pp=Estimate(value=0.0, low=0.0, high=0.0), p_value=1.0, test=SAME_ANSWERS)

    accuracy = Accuracy(
        primary=primary,
        unit=unit,
        higher=higher,
        proof=result.proof,
        alike=result.alike,
        values=summarize(outcomes),
        samples=size(outcomes),
        split=request.split,
        comparison=against(reference, own=baseline is None),
        reference=FLOAT32_ON_THE_HOST if reference is not None and apart_from_baseline(request.experiment) else "",
        against_baseline=against(baseline, own=True),
        float_index=against(reference, own=baseline is None, at=names.index(second)) if second in names else None,
    )
    return result.measured(accuracy=accuracy)


SEARCHED = Asked(samples=128, of_a_shape=16, scored=False)
"""Scores of all samples are the accuracy's affair; the differences of outputs need fewer."""
_NAMES = frozenset(name for name, metric in METRICS.items() if metric.source == "agreement")


def measure_agreement(request: Request, result: StageResult, opened: Opened) -> StageResult:
    """A stop where a limit on it is broken; in the search only where a figure of it is an objective or a limit."""
    asked = [objective.metric for objective in request.experiment.objectives]
    asked += [constraint.metric for constraint in request.experiment.constraints if constraint.of_output is None]
    if request.split != "holdout" and _NAMES.isdisjoint(asked):
        return result
    distance = agreement_of_sessions(
        request.experiment,
        request.candidate,
        request.bench,
        session=opened.session,
        baseline=opened.baseline,
        asked=replace(SEARCHED, split=request.split),
    )
    return replace(result, agreement=distance).within(request, agreement_metrics(distance))


SMOKE_SAMPLES = 8
SMOKE_STEPS = 32
"""Of each of them, where a state is carried."""
SMOKE_CONSTRAINT = "smoke_cosine"


def smoke(request: Request, result: StageResult, opened: Opened) -> StageResult:
    """A few samples: finite, not constant, not far from the float32 output."""
    batch, at = request.candidate.serving.batch, (request.experiment.dataset.interface, request.experiment.model)
    runs, floats = whole_samples(opened.session, *at), whole_samples(opened.exact, *at)
    ours, theirs = (
        first_steps(data.batches(request.split, batch, stop=SMOKE_SAMPLES), SMOKE_STEPS)
        for data in (request.data, request.baseline_data)
    )
    ignored = {use.name for use in request.experiment.dataset.interface.outputs if use.meaning == "ignored"}

    def looked_at(outputs: Outputs) -> Outputs:
        return {name: array for name, array in outputs.items() if name not in ignored}

    seen_bits = hashlib.sha256()

    def ours_of(batch: Batch) -> Outputs:
        outputs = looked_at(runs.run(batch.feeds))
        for name, array in sorted(outputs.items()):
            seen_bits.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            seen_bits.update(np.ascontiguousarray(array).tobytes())
        return outputs

    seen = agreement(
        (
            cut_alike(ours_of(mine), mine, looked_at(floats.run(other.feeds)), other)
            for mine, other in zip(ours, theirs, strict=True)
        ),
        not_by_distance(request.experiment.dataset),
    )
    result = replace(result, witness=seen_bits.hexdigest())
    if not seen.finite.all():
        row = int(seen.indices[~seen.finite][0])
        if request.is_baseline:
            where = ""
            if apart_from_baseline(request.experiment):  # in fewer bits an overflow may be its own
                where = f" where it computes in {request.candidate.precision.mode}"
                where += " (in float32 it may not: `workbench agreement` tells)"
            raise MeasureError(
                f"the float model's own output holds NaN or Inf for row {row} of {request.split}{where}. Look at the "
                "data; an output that does not matter can be `ignored` in the manifest."
            )
        raise MeasureError(
            f"the output holds NaN or Inf for row {row} of {request.split}. Keep sensitive layers in float, or look "
            "at the calibration range of the first layers."
        )
    if seen.constant:
        raise MeasureError("every smoke sample gives the same output: the compiled model ignores its input.")
    mean, wanted = float(np.mean(seen.cosine)), request.experiment.smoke_cosine
    if request.gated and mean < wanted:
        reason = f"mean cosine with the float32 output is {mean:.4f} over {SMOKE_SAMPLES} samples, not {wanted:g}"
        return result.stopped(reason, {SMOKE_CONSTRAINT: wanted - mean})
    return result
