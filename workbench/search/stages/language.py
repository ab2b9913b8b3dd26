"""The pipeline of a language model: quantized, priced by the timing model, then evaluated window by window.

    check → calibrate → latency_short (modelled, so it costs nothing) → smoke → accuracy_subset → accuracy_full

The first windows of a split stand for all of it. A candidate stops at one of a few looks once it certainly breaks the
limit on its loss. −log p has no bounds, so certainty is Student's (`certainly_worse`), about one error in a thousand
[inferred: windows are means over hundreds of tokens]. The baseline and the space's presets, which others are compared
with, take every stage.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.evaluation.accuracy_pass import WindowPass
from workbench.evaluation.build import artifact_of
from workbench.inputs.metrics.outcomes import MeasuredOutcomes, per_sample, save_outcomes, size, summarize, take
from workbench.search.stages.accuracy import with_rejection
from workbench.search.stages.request import Progress, Request, StageResult
from workbench.space.space import Forbidden, build
from workbench.targets.language import language_target
from workbench.values import significance
from workbench.values.artifact import Artifact
from workbench.values.documents.canonical import digest
from workbench.values.errors import MeasureError
from workbench.values.measurement import (
    Accuracy,
    Estimate,
    LanguageFigures,
    Latency,
    Measurement,
)
from workbench.values.metrics import accuracy_metrics
from workbench.values.modelled_times.figures import at_errors, interval, with_intervals
from workbench.values.modelled_times.statement import ModelledCalls
from workbench.values.reuse import Reuse
from workbench.values.sequential import EARLY

SMOKE_WINDOWS = 1
_SMALLEST_LOOK = 8
"""Windows at the first look; with fewer a recipe's spread is not known well enough to be certain of anything."""
DROP = "accuracy_loss"


def language(request: Request, progress: Progress) -> None:
    """Every stage; the caller has the errors."""
    with progress.stage("check"):
        request.check()
    artifact, directory = artifact_of(*request.at, progress, split=request.split)
    progress.then(progress.result.of_files(artifact))
    with progress.stage("latency_short"):
        latency, figures, key = modelled(request, artifact, directory)
        result = progress.result.under(Reuse(kind="latency", key=key)).measured(latency=latency, language=figures)
        if progress.then(result.within(request, _numbers(result.measurement))):
            return
    experiment = request.effort.scored(request.experiment, request.split)
    at = (experiment, request.candidate, request.bench, request.split)
    scores = WindowPass(*at, artifact=artifact, directory=directory)
    with progress.stage("smoke"):  # the first window alone: logits that are NaN or infinite end here
        try:
            scores.first(SMOKE_WINDOWS)
        except MeasureError as error:
            raise MeasureError(f"the float model itself: {error}" if request.is_baseline else str(error)) from error
    with progress.stage("accuracy_subset"):
        if progress.then(_looks(request, progress.result.under(Reuse(kind="accuracy", key=scores.key)), scores)):
            return
    with progress.stage("accuracy_full"):
        progress.then(_full(request, progress.result, scores))


def modelled(request: Request, artifact: Artifact, directory: Path) -> tuple[Latency, LanguageFigures, str]:
    """Times under the experiment's load, of the candidate and of the float baseline, with what they may be off by, and
    their equivalence key.

    `Latency` is of one step of decoding: a token for each row of the batch.
    """
    load = request.experiment.load
    assert load is not None  # of a language model
    target = language_target(request.bench.target(request.candidate))
    question = request.experiment
    ours = theirs = target.costs(question.model, artifact, directory, load)
    if not request.is_baseline:
        theirs = target.costs(question.model, *artifact_of(question, question.baseline, request.bench), load)
    prefill, decode = (
        ModelledCalls(clock=ours.clock, candidate=(mine,), baseline=(base,), pairs=((0, 0, 1),))
        for mine, base in ((ours.prefill, theirs.prefill), (ours.decode, theirs.decode))
    )
    times = at_errors(ours.clock).call_ms([ours.prefill, ours.decode, theirs.decode])
    prefill_ms, decode_ms, baseline_ms = (interval(each) for each in times)
    figures = LanguageFigures(
        load=load,
        prefill_ms=prefill_ms,
        decode_ms=decode_ms,
        prefill=prefill,
        kv_bytes_per_token=ours.kv_bytes_per_token,
        weight_bytes=ours.weight_bytes,
        basis=ours.basis,
    )
    latency = Latency(
        batch=load.batch,
        samples=1,
        p50_ms=decode_ms,
        p95_ms=decode_ms.value,
        p99_ms=None,
        mean_ms=decode_ms.value,
        throughput_per_s=1000 * load.batch / decode_ms.value,
        speedup=Estimate(value=baseline_ms.value / decode_ms.value, low=1.0, high=1.0),
        baseline_p50_ms=baseline_ms.value,
        quiet=True,
        verdict=f"modelled, not measured: one step of decoding by {ours.basis}",
        clock="modelled",
        holds=True,
        modelled=decode,
    )
    return with_intervals(latency), figures, digest([ours.clock, ours.prefill, ours.decode])


def _numbers(measurement: Measurement) -> dict[str, float]:
    """Of what carries no noise, under its public name."""
    figures = measurement.language
    assert figures is not None  # they were modelled before
    assert measurement.size_bytes is not None  # of files that are there
    return {
        "size_mb": measurement.size_bytes / 1e6,
        "prefill_ms": figures.prefill_ms.value,
        "decode_ms": figures.decode_ms.value,
        "kv_kb_per_token": figures.kv_bytes_per_token / 1e3,
    }


def _looks(request: Request, result: StageResult, scores: WindowPass) -> StageResult:
    """Score a part of the windows at a time; stop once it is certainly over the limit on the loss."""
    limit = next((c.limit for c in request.experiment.constraints if c.metric == DROP), None)
    if limit is None or not request.gated:
        return result
    for preset in request.experiment.space.presets:
        with contextlib.suppress(Forbidden):
            if build(request.experiment.space, preset.assignment).id == request.candidate.id:
                return result
    planned, measure = looks(scores.total), request.experiment.dataset.measure
    nats = math.log1p(limit / 100) if measure == "perplexity" else limit  # it is in percent of a perplexity
    for look in planned:
        ours = scores.first(look)
        theirs = take(scores.reference(), size(ours))
        result = _with_accuracy(request, result, ours, theirs)
        low = certainly_worse(theirs, ours, nats, len(planned))
        if low is not None:
            loss = 100 * math.expm1(low) if measure == "perplexity" else low
            unit = result.measurement.accuracy.unit if result.measurement.accuracy else ""
            return result.stopped(
                f"after {size(ours)} of {scores.total} windows the loss in {measure} is certainly at least "
                f"{loss:.2f} {unit}; the limit is {limit:g}",
                {DROP: loss - limit},
            )
    return result


def looks(windows: int) -> tuple[int, ...]:
    """How many windows have been judged at each look before all: an eighth, a quarter, a half."""
    return tuple(size for size in (windows // 8, windows // 4, windows // 2) if size >= _SMALLEST_LOOK)


def certainly_worse(
    reference: MeasuredOutcomes, ours: MeasuredOutcomes, limit_nats: float, planned_looks: int
) -> float | None:
    """By how many nats a token ours are certainly worse than the reference, where that is more than the limit.

    −log p has no bounds, so the betting test of other sweeps (`sequential.certain_violation`) can never be certain of
    it. Instead Student's lower bound of the paired difference is taken at `EARLY` divided among the looks: a model
    within the limit is stopped with about that probability at most over all looks, where differences of windows are
    near to normal [inferred: they are means over hundreds of tokens].

    Args:
        reference, ours: of the same windows, the first of them *in random order*.
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    if (count := size(ours)) < _SMALLEST_LOOK:
        return None
    weights = ours.denominators[:, 0]
    apart = ours.numerators[:, 0] - reference.numerators[:, 0]
    mean = apart.sum() / weights.sum()
    error = math.sqrt(count / (count - 1) * float(np.square(apart - mean * weights).sum())) / weights.sum()
    quantile = float(special.stdtrit(count - 1, EARLY / max(planned_looks, 1)))
    low = float(mean + quantile * error)
    return low if low > limit_nats else None


def _full(request: Request, result: StageResult, scores: WindowPass) -> StageResult:
    outcomes = scores.full()
    save_outcomes(request.bench.journal.outcomes(request.candidate.id, request.split), outcomes)
    reference = None if request.is_baseline else scores.reference()
    result = replace(_with_accuracy(request, result, outcomes, reference), cached=scores.from_store)
    assert result.measurement.accuracy is not None  # just measured
    result = result.within(request, accuracy_metrics(result.measurement.accuracy))
    return with_rejection(request, result, DROP, reference, outcomes)


def _with_accuracy(
    request: Request, result: StageResult, outcomes: MeasuredOutcomes, reference: MeasuredOutcomes | None
) -> StageResult:
    measure = request.experiment.dataset.measure
    values = summarize(outcomes)
    comparison = None
    if reference is not None:
        comparison = significance.compare(per_sample(reference), per_sample(outcomes))
        if measure == "perplexity":
            # a ratio's percentage above 1, of log perplexities: its ends keep their coverage
            drop = comparison.drop_pp
            value, low, high = (100 * math.expm1(nats) for nats in (drop.value, drop.low, drop.high))
            comparison = replace(comparison, drop_pp=replace(drop, value=value, low=low, high=high), unit="%")
    accuracy = Accuracy(
        primary=measure,
        unit="%" if measure == "perplexity" else "nats",
        higher=False,
        values={**values, "perplexity": math.exp(values["nll"])},
        samples=size(outcomes),
        split=request.split,
        comparison=comparison,
    )
    return result.measured(accuracy=accuracy)
