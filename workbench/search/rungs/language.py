"""The ladder of a language model: quantized, priced by the modelled clock, then judged window by window.

    check → calibrate → latency_short (modelled, so it costs nothing) → smoke → accuracy_subset → accuracy_full

The first windows of a split stand for all of it. A candidate stops at one of a few looks once it certainly breaks the
limit on its loss, or another one is certainly better in every objective. −log p has no bounds, so certainty is
Student's (`differences.certainly_above`), about one error in a thousand [inferred: windows are means over hundreds of
tokens]. The baseline and the space's presets, which others are compared with, climb the whole ladder.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.evaluation.build import artifact_of
from workbench.evaluation.window_pass import WindowPass
from workbench.inputs.metrics import (
    MeasuredOutcomes,
    load_outcomes,
    per_sample,
    save_outcomes,
    size,
    summarize,
    take,
)
from workbench.search.limits import rejection
from workbench.search.rungs.climb import Climb
from workbench.search.rungs.lending import keep
from workbench.space.space import Forbidden, build
from workbench.targets.language import LanguageCosts, language_target
from workbench.values import significance
from workbench.values.artifact import Artifact
from workbench.values.documents.canonical import digest
from workbench.values.errors import MeasureError
from workbench.values.facts import Fact
from workbench.values.measurement import (
    Accuracy,
    AccuracyComparison,
    Estimate,
    LanguageFigures,
    Latency,
    Measurement,
)
from workbench.values.metrics import accuracy_metrics, metrics
from workbench.values.modelled_times.costs import at_errors, interval
from workbench.values.modelled_times.figures import with_intervals
from workbench.values.modelled_times.statement import ModelledCalls
from workbench.values.objectives import METRICS
from workbench.values.results import Evaluation, Stop

SMOKE_WINDOWS = 1
DROP = "accuracy_drop"
_EXACT = ("size_mb", "prefill_ms", "decode_ms", "kv_kb_per_token")
"""Objectives whose numbers carry no noise of a measurement."""


def language(climb: Climb) -> Stop | None:
    """The whole way up; the caller has the errors."""
    with climb.stage("check"):
        climb.check()
    artifact, directory = artifact_of(climb.experiment, climb.candidate, climb.bench, climb, split=climb.split)
    climb.measurement = replace(
        climb.measurement,
        size_bytes=artifact.size_bytes,
        int8_ops=artifact.int8_ops,
        float_matmuls_left=artifact.float_matmuls_left,
    )
    with climb.stage("latency_short"):
        latency, figures = modelled(climb, artifact, directory)
        climb.measurement = replace(climb.measurement, latency=latency, language=figures)
        exact = {name: value for name, value in _numbers(climb.measurement).items() if name in _EXACT}
        if stop := climb.over_limit(exact):
            return stop
    experiment = climb.effort.scored(climb.experiment, climb.split)
    scores = WindowPass(experiment, climb.candidate, climb.bench, climb.split, artifact=artifact, directory=directory)
    with climb.stage("smoke"):
        _smoke(climb, scores)
    with climb.stage("accuracy_subset"):
        keep(climb, Fact(kind="accuracy", key=scores.key))
        if stop := _looks(climb, scores):
            return stop
    with climb.stage("accuracy_full"):
        return _full(climb, scores)


def modelled(climb: Climb, artifact: Artifact, directory: Path) -> tuple[Latency, LanguageFigures]:
    """Times under the experiment's load, of the candidate and of the float baseline, with what they may be off by.

    `Latency` is of one step of decoding: a token for each row of the batch.
    """
    load = climb.experiment.load
    assert load is not None  # of a language model
    target = language_target(climb.bench.target(climb.candidate))
    ours = target.costs(climb.experiment.model, artifact, directory, load)
    if climb.is_baseline:
        theirs = ours
    else:
        theirs = target.costs(
            climb.experiment.model, *artifact_of(climb.experiment, climb.experiment.baseline, climb.bench), load
        )
    prefill, decode = (_calls(ours, theirs, name) for name in ("prefill", "decode"))
    keep(climb, Fact(kind="latency", key=digest([ours.clock, ours.prefill, ours.decode])))
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
        warmup_calls=0,
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
    return with_intervals(latency), figures


def _calls(ours: LanguageCosts, theirs: LanguageCosts, name: str) -> ModelledCalls:
    return ModelledCalls(
        clock=ours.clock, candidate=(getattr(ours, name),), baseline=(getattr(theirs, name),), pairs=((0, 0, 1),)
    )


def _numbers(measurement: Measurement) -> dict[str, float]:
    """Of `_EXACT`, under their public names."""
    found = {} if measurement.size_bytes is None else {"size_mb": measurement.size_bytes / 1e6}
    if (figures := measurement.language) is not None:
        found |= {
            "prefill_ms": figures.prefill_ms.value,
            "decode_ms": figures.decode_ms.value,
            "kv_kb_per_token": figures.kv_bytes_per_token / 1e3,
        }
    return found


def _smoke(climb: Climb, scores: WindowPass) -> None:
    """The first window alone: logits that are NaN or infinite end here."""
    try:
        scores.first(SMOKE_WINDOWS)
    except MeasureError as error:
        if climb.is_baseline:
            raise MeasureError(f"the float model itself: {error}") from error
        raise


def _gated(climb: Climb) -> bool:
    if not climb.gates:
        return False
    space = climb.experiment.space
    for preset in space.presets:
        try:
            if build(space, preset.assignment).id == climb.candidate.id:
                return False
        except Forbidden:
            continue
    return True


def _looks(climb: Climb, scores: WindowPass) -> Stop | None:
    """Score a part of the windows at a time; stop once it is certainly over the limit, or dominated."""
    if not _gated(climb):
        return None
    from workbench.quantization.llm.differences import looks  # with torch, which other targets' sweeps never need

    planned = looks(scores.total)
    limit = next((c.limit for c in climb.experiment.constraints if c.metric == DROP), None)
    rivals = [(e, found) for e in climb.incumbents if (found := _outcomes_of(climb, e, scores.total)) is not None]
    for look in planned:
        ours = scores.first(look)
        theirs = take(scores.reference(), size(ours))
        _keep(climb, ours, theirs)
        if limit is not None:
            low = _certainly(theirs, ours, _in_nats(climb, limit), len(planned))
            if low is not None:
                loss = _in_drop_unit(climb, low)
                unit = climb.measurement.accuracy.unit if climb.measurement.accuracy else ""
                return Stop(
                    stage=climb.name,
                    reason=f"after {size(ours)} of {scores.total} windows the loss in "
                    f"{climb.experiment.dataset.measure} is certainly at least {loss:.2f} {unit}; the limit is "
                    f"{limit:g}",
                    violations={DROP: loss - limit},
                )
        for incumbent, known in rivals:
            if _dominated(climb, incumbent, take(known, size(ours)), ours, len(planned)):
                return Stop(
                    stage=climb.name,
                    reason=f"after {size(ours)} of {scores.total} windows {incumbent.candidate.short_id} is certainly "
                    "better in every objective",
                )
    return None


def _outcomes_of(climb: Climb, evaluation: Evaluation, total: int) -> MeasuredOutcomes | None:
    """Of an incumbent over the whole split; None where its file is gone, damaged or of other windows."""
    try:
        found = load_outcomes(climb.bench.journal.outcomes(evaluation.candidate.id, climb.split))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, MeasuredOutcomes) and size(found) == total else None


def _dominated(
    climb: Climb, incumbent: Evaluation, theirs: MeasuredOutcomes, ours: MeasuredOutcomes, planned: int
) -> bool:
    """Whether the incumbent is at least as good in whatever is exact, and certainly loses less."""
    mine, its = _numbers(climb.measurement), metrics(incumbent)
    for objective in climb.experiment.objectives:
        name = objective.metric
        if name in _EXACT:
            if METRICS[name].direction == "minimize" and its[name] > mine[name]:
                return False
        elif name not in ("accuracy", DROP, climb.experiment.dataset.measure):
            return False
    return _certainly(theirs, ours, 0.0, planned) is not None


def _certainly(reference: MeasuredOutcomes, ours: MeasuredOutcomes, limit_nats: float, planned: int) -> float | None:
    """By how many nats a token ours are certainly worse than the reference, where that is more than the limit."""
    from workbench.quantization.llm.differences import certainly_above
    from workbench.quantization.llm.outcomes import TextOutcomes

    def text(outcomes: MeasuredOutcomes) -> TextOutcomes:
        counted = outcomes.denominators[:, 0].astype(np.int64)
        nothing = np.zeros(len(counted))
        return TextOutcomes(
            nll=outcomes.numerators[:, 0], predictions=counted, kl=nothing, agreed=nothing.astype(np.int64)
        )

    low = certainly_above(text(reference), text(ours), limit=math.exp(limit_nats), planned_looks=planned)
    return None if low is None else math.log(low)


def _in_nats(climb: Climb, drop: float) -> float:
    """A loss in the unit of `accuracy_drop`: percent of a perplexity, or nats of a divergence."""
    return math.log1p(drop / 100) if climb.experiment.dataset.measure == "perplexity" else drop


def _in_drop_unit(climb: Climb, nats: float) -> float:
    return 100 * math.expm1(nats) if climb.experiment.dataset.measure == "perplexity" else nats


def _full(climb: Climb, scores: WindowPass) -> Stop | None:
    outcomes = scores.full()
    climb.cached = scores.from_store
    save_outcomes(climb.bench.journal.outcomes(climb.candidate.id, climb.split), outcomes)
    reference = None if climb.is_baseline else scores.reference()
    accuracy = _keep(climb, outcomes, reference)
    stop = climb.over_limit(accuracy_metrics(accuracy))
    if stop is None or reference is None or accuracy.comparison is None or DROP not in stop.violations:
        return stop
    limit = next(c.limit for c in climb.experiment.constraints if c.metric == DROP)
    said = rejection(DROP, accuracy.comparison, limit, per_sample(reference), per_sample(outcomes))
    others = {name: by for name, by in stop.violations.items() if name != DROP}
    further = [f"{name} is over its limit by {by:.4g}" for name, by in sorted(others.items())]
    return replace(stop, reason="; ".join([said, *further]))


def _keep(climb: Climb, outcomes: MeasuredOutcomes, reference: MeasuredOutcomes | None) -> Accuracy:
    measure = climb.experiment.dataset.measure
    values = summarize(outcomes)
    comparison = None
    if reference is not None:
        comparison = significance.compare(per_sample(reference), per_sample(outcomes))
        if measure == "perplexity":
            comparison = _relative(comparison)
    accuracy = Accuracy(
        primary=measure,
        unit="%" if measure == "perplexity" else "nats",
        higher=False,
        values={**values, "perplexity": math.exp(values["nll"])},
        samples=size(outcomes),
        split=climb.split,
        comparison=comparison,
    )
    climb.measurement = replace(climb.measurement, accuracy=accuracy)
    return accuracy


def _relative(comparison: AccuracyComparison) -> AccuracyComparison:
    """A difference of log perplexities as the ratio's percentage above 1: its ends keep their coverage."""
    drop = comparison.drop_pp
    value, low, high = (100 * math.expm1(nats) for nats in (drop.value, drop.low, drop.high))
    return replace(comparison, drop_pp=replace(drop, value=value, low=low, high=high), unit="%")
