"""Before a whole set of shapes is compiled: few shapes are, the service of the set is predicted, and the set waits.

    one shape          smoke, accuracy
    more, if needed    until every other shape's time has an interval
    then               it waits; the sweep compiles whole what may be on the front (`search.front`)

Only where every shape is a compile of its own, and every objective can be told from accuracy and the times of shapes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace

from workbench.evaluation.bench import Bench, device_lock
from workbench.evaluation.build import Shape, artifact_of, only_shapes, shapes_of, shares_shapes, structure_of
from workbench.inputs.experiment import Experiment
from workbench.prediction.curve import at_first_speed
from workbench.prediction.shape_times import ShapeTimes, predict_times
from workbench.prediction.stage import best_service, measured_curve
from workbench.search.front import audit_failed, known_times, may_be_predicted
from workbench.search.stages.accuracy import full_accuracy, growing_subsets, smoke
from workbench.search.stages.request import Progress, Request, refuse_float
from workbench.targets.base import Session
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate, Split
from workbench.values.metrics import accuracy_metrics
from workbench.values.results import Prediction, ShapeTime, StageTiming
from workbench.values.service import ServiceChoices

_log = logging.getLogger(__name__)


def may_wait(experiment: Experiment, candidate: Candidate) -> bool:
    """Whether a candidate's set is predicted before it is compiled."""
    texts = experiment.dataset.preprocessor is not None
    return (
        experiment.compile == "deferred"
        and shares_shapes(candidate)
        and len(shapes_of(candidate)) > 1
        and texts == bool(candidate.compile.compiled_lengths())
        and experiment.model.fixed_batch is None
        and may_be_predicted(experiment)
    )


def known_prediction(request: Request) -> Prediction | None:
    """What was predicted of a candidate before it was measured whole; else the structure of one whose shapes are
    compiled, so that its times tell of others."""
    if request.split != "validation":
        return None
    before = request.bench.journal.evaluation(request.candidate.id)
    if before is not None and before.prediction is not None:
        return before.prediction
    if request.experiment.service is None or not shares_shapes(request.candidate):
        return None
    return Prediction(structure=structure_of(*request.at))


def predict(request: Request, progress: Progress) -> None:
    """Stops where the set's service was predicted; does not where too little is known, and all of it is to be
    compiled."""
    evaluations = request.bench.journal.evaluations()
    if audit_failed(evaluations.values()):
        return
    known = known_times(evaluations.values())
    times: dict[Shape, ShapeTime] = {}
    first = first_shape(request.candidate)
    with contextlib.ExitStack() as sessions:
        one = only_shapes(request.candidate, [first])
        artifact, directory = artifact_of(request.experiment, one, request.bench, progress, split=request.split)
        refuse_float(one, artifact)
        with progress.stage("predict"):
            opened = request.opened(artifact, directory, sessions, one)
            if progress.then(smoke(request, progress.result, opened)):
                return
            scores = request.scores(opened)
            for score in (growing_subsets, full_accuracy):
                if progress.then(score(request, progress.result, scores)):
                    return
            structure = structure_of(*request.at)
            times[first] = _timed(request, one, opened.session, opened.baseline)
        predicted = _with_more_shapes(request, progress, known, structure, times, opened.baseline)
        if predicted is None:
            return
    with progress.stage("predict"):
        curve_times = {(b, n or 0): predicted.times[b, n or 0] for b, n in shapes_of(request.candidate)}
        rate = predicted_throughput(*request.at, curve_times, request.split)
    count, emulated = len(shapes_of(request.candidate)), request.bench.toolchain(request.candidate).emulated
    measured = progress.result.measurement.accuracy
    basis = f"every shape's time is known of files of one structure; {len(times)} of {count} shapes compiled here"
    if predicted.errors:
        basis = f"{len(times)} of {count} shapes compiled; the others within {predicted.margin:.1%}, the largest of "
        basis += f"{predicted.errors} errors of known times that were left out"
    prediction = Prediction(
        structure=structure,
        times=tuple(times.values()),
        shapes=count,
        throughput_per_s=rate,
        accuracy=None if measured is None else accuracy_metrics(measured)["accuracy"],
        basis=basis,
    )
    result = replace(progress.result, prediction=prediction)
    if rate is not None:
        result = result.stopped(
            f"predicted to serve {rate.value:.0f}/s [{rate.low:.0f}, {rate.high:.0f}] from "
            f"{'modelled times of ' if emulated else ''}{len(times)} of {count} shapes; the others are compiled where "
            "that may be on the front"
        )
    progress.then(result)


def first_shape(candidate: Candidate) -> Shape:
    """The longest, since it holds every sample, at the smallest batch that holds a call; so sets share it."""
    shapes = shapes_of(candidate)
    longest = shapes[-1][1]
    batches = [batch for batch, length in shapes if length == longest]
    return next((b for b in batches if b >= candidate.serving.batch), batches[-1]), longest


def _with_more_shapes(
    request: Request,
    progress: Progress,
    known: Mapping[str, Mapping[tuple[int, int], Estimate]],
    structure: str,
    times: dict[Shape, ShapeTime],
    baseline: Session,
) -> ShapeTimes | None:
    """The times of the whole set, after as many further compiles as that takes; None once all would be compiled."""
    wanted = [(batch, length or 0) for batch, length in shapes_of(request.candidate)]
    for shape in (None, *telling_shapes(request.candidate)):
        if shape is not None and shape not in times and (shape[0], shape[1] or 0) not in known.get(structure, {}):
            if len(times) + 1 >= len(wanted):
                return None
            one = only_shapes(request.candidate, [shape])
            files = artifact_of(request.experiment, one, request.bench, progress, split=request.split)
            with contextlib.closing(request.bench.target(one).open(*files, one)) as session:
                times[shape] = _timed(request, one, session, baseline)
        own = {(time.batch, time.length): time.p50_ms for time in times.values()}
        joined = {**known, structure: {**known.get(structure, {}), **own}}
        predicted = predict_times(joined, structure, wanted)
        if predicted is not None:
            return predicted
    return None


def telling_shapes(candidate: Candidate) -> list[Shape]:
    """Every shape of a set, those first that say most of the others: corners, then what lies between."""
    shapes = list(shapes_of(candidate))
    ordered: list[Shape] = []
    for quantile in (0.0, 1.0, 0.5, 0.25, 0.75):
        for other in (0.0, 1.0, 0.5):
            batches = sorted({batch for batch, _ in shapes})
            lengths = sorted({length or 0 for _, length in shapes})
            batch = batches[round((1 - other) * (len(batches) - 1))]
            length = lengths[round(quantile * (len(lengths) - 1))]
            ordered.append((batch, length or None))
    return list(dict.fromkeys([*ordered, *shapes]))


def _timed(request: Request, one: Candidate, session: Session, baseline: Session) -> ShapeTime:
    with device_lock(request.bench.device_lock, wait_s=3600.0, report=_log.info):
        curve = at_first_speed(measured_curve(request.experiment, one, request.bench, session, baseline, request.split))
    (point,) = curve.points
    return ShapeTime(batch=point.batch, length=point.length, p50_ms=point.p50_ms)


_TIE = 0.01
"""Settings this close are predicted apart by which is simpler, so that times a little longer may give a little more."""


def predicted_throughput(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    times: Mapping[tuple[int, int], Estimate],
    split: Split,
) -> Estimate | None:
    """Answers per second of the best service settings; None where no settings keep the limit even at the least times.

    The settings are those that are best at the least times, so that the upper end is what is possible at best.

    Args:
        times: (batch, length) → milliseconds, of every shape of the set.
    """
    emulated = bench.toolchain(candidate).emulated

    def curve(at: str) -> BatchCurve:
        points = []
        for (batch, length), time in sorted(times.items(), key=lambda item: (item[0][1], item[0][0])):
            points.append(CurvePoint.exact(batch, length, float(getattr(time, at)), calls=0))
        return BatchCurve(
            points=tuple(points),
            stepped=True,
            threads=0,
            clock="modelled" if emulated else "host",
            verdict="predicted from other shapes",
        )

    at_best = best_service(experiment, candidate, bench, curve("low"), split).best
    if at_best is None:
        return None
    chosen = ServiceChoices.only(at_best.settings)
    rates = []
    for end in ("value", "high"):
        result = best_service(experiment, candidate, bench, curve(end), split, choices=chosen)
        rates.append((result.best or result.closest).throughput_per_s.value)
    high = at_best.throughput_per_s.high * (1 + _TIE)
    value = min(rates[0], high)
    return Estimate(value=value, low=min(rates[1], value), high=high)


SHAPES_AHEAD = 3
"""Of a set that is predicted, and of whose structure no time is known, as many of the shapes that tell most."""


def made_ahead(experiment: Experiment, candidate: Candidate, bench: Bench) -> tuple[StageTiming, ...]:
    """Compile what its evaluation will ask for first; the stages that took."""
    request = Request(experiment=experiment, candidate=candidate, bench=bench)
    progress = Progress(request)
    try:
        with progress.stage("check"):
            request.check()
        known = bench.journal.evaluations().values()
        if not may_wait(experiment, candidate) or audit_failed(known):
            artifact_of(experiment, candidate, bench, progress, split="validation")
        else:
            one = only_shapes(candidate, [first_shape(candidate)])
            artifact_of(experiment, one, bench, progress, split="validation")
            if structure_of(experiment, candidate, bench) not in known_times(known):
                for shape in telling_shapes(candidate)[:SHAPES_AHEAD]:
                    artifact_of(experiment, only_shapes(candidate, [shape]), bench, progress, split="validation")
    except CandidateError as error:
        _log.debug("%s cannot be made ahead: %s", candidate.short_id, error)
    return tuple(progress.timings)
