"""What a service of one candidate would do: its batch curve, once, then every service setting by simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from workbench.evaluation.bench import Bench
from workbench.evaluation.carried import timed_feeds
from workbench.inputs.experiment import Experiment
from workbench.prediction.curve import (
    FEWEST_CALLS,
    FeedsOf,
    Yardstick,
    at_first_speed,
    measure_curve,
    modelled_curve,
    startup_s,
)
from workbench.prediction.host_costs.measure import assumed_costs, host_costs, processors
from workbench.prediction.search import at_other_speeds, best_settings
from workbench.prediction.surface import chosen_points, fitted
from workbench.prediction.together import MOST_SESSIONS, host_beside, side_by_side, slower_after_idle
from workbench.space.served_bins import choices_of
from workbench.targets.base import DeviceSession, Feeds, Session
from workbench.values.artifact import Artifact
from workbench.values.bins import timed_length
from workbench.values.candidate import Candidate
from workbench.values.measurement import BatchCurve, ServiceResult, Split
from workbench.values.modelled_times.figures import served_with_intervals
from workbench.values.service import ServiceChoices, ServiceQuestion

CURVE_FEEDS = 4
"""Distinct feeds of each shape: real texts, cut and padded to it."""
NO_SEQUENCES = 0
SURFACE_ROUNDS = 9
"""At least: a surface has few points that are dear, and its fit averages over what one of them is off by chance."""
_FEWEST_ROUNDS = 3


def serving_lengths(experiment: Experiment, candidate: Candidate) -> tuple[int, ...]:
    """The padded lengths a service of this candidate computes; (0,) where samples are no texts.

    Those come in the shape they have, whatever lengths the candidate compiles: the session pads each to the smallest
    that holds it, and that time is the curve's. Other compiled lengths are loaded and never run.
    """
    preprocessor = experiment.dataset.preprocessor
    if preprocessor is None:
        return (NO_SEQUENCES,)
    return candidate.sequence_bins or preprocessor.bins


def service_choices(experiment: Experiment, candidate: Candidate) -> ServiceChoices:
    choices = choices_of(experiment.space, candidate)
    assert choices is not None  # an experiment with a service was refused otherwise
    return choices


def surface_shapes(experiment: Experiment, candidate: Candidate) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(batches, lengths) that a service of this candidate may call it with."""
    choices, fixed = service_choices(experiment, candidate), experiment.model.fixed_batch
    batches = serving_batches(candidate, choices) if fixed is None else (fixed,)  # fewer rows are filled up
    offered = {length for bins in choices.sequence_bins for length in bins}
    return batches, tuple(sorted(offered)) or serving_lengths(experiment, candidate)


def serving_batches(candidate: Candidate, choices: ServiceChoices) -> tuple[int, ...]:
    """Batch sizes whose time is measured: those compiled, or one and those on offer; between them time is a line."""
    return candidate.compile.compiled_batches() or tuple(sorted({1, *choices.max_batch_size}))


def measured_curve(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    session: Session,
    baseline: Session,
    split: Split,
    *,
    open_another: Callable[[], Session] | None = None,
    share: float = 1.0,
) -> BatchCurve:
    """Latency against batch and length; the caller holds `measure.device_lock`.

    Where the service chooses its bins, a surface over all of them. On the holdout split nothing is chosen any more, so
    it is measured at the very bins that the search chose, and at the untuned ones.

    Args:
        open_another: the artifact once more, to time what several workers do at once on the host; None not to.
        share: of the time that the experiment gives a curve, and of the rounds that it has at least.

    Raises:
        MeasureError: a call failed, or (transient) timing took too long.
    """
    choices, question = service_choices(experiment, candidate), experiment.service
    assert question is not None  # there is no such stage otherwise
    batches, lengths = surface_shapes(experiment, candidate)
    found = searched_service(candidate, bench) if split == "holdout" and choices.sequence_bins else None
    if found is not None:
        chosen = (found.best or found.closest).settings, choices.untuned
        lengths = tuple(sorted({length for one in chosen for length in one.sequence_bins}))
        sizes = {one.max_batch_size for one in chosen}
        called = tuple(b for b in batches if b in sizes or (b in found.curve.batches and b <= max(sizes)))
        batches = called or batches  # a model of a fixed batch takes no other
    feeds_of = _feeds_of(experiment, split)
    if bench.toolchain(candidate).emulated:
        return modelled_curve(session, batches, lengths, feeds_of)
    yardstick = _yardstick(experiment, bench, baseline, feeds_of, split)
    on_device = isinstance(session, DeviceSession)
    points = chosen_points(batches, lengths) if choices.sequence_bins and found is None else None
    threads = 0 if on_device else candidate.serving.intra_op_threads
    sessions = 1 if open_another is None else _sessions_at_once(choices, question, threads)
    shape = batches[len(batches) // 2], lengths[len(lengths) // 2]
    with side_by_side(session, open_another or _none, sessions, feeds_of(*shape), threads=threads) as together:
        together.time_rounds()
        curve = measure_curve(
            session,
            batches if points is None else (points.batch,),
            lengths if points is None else points.lengths,
            feeds_of,
            beside=() if points is None else (*points.beside, *points.checks),
            fewest=max(_FEWEST_ROUNDS, round(share * (SURFACE_ROUNDS if choices.sequence_bins else FEWEST_CALLS))),
            threads=threads,
            stepped=on_device or experiment.model.fixed_batch is not None,
            yardstick=yardstick,
            budget_s=question.curve_s * share,
            seed=experiment.seed,
        )
        together.time_rounds()
        slower = slower_after_idle(session, feeds_of(batches[0], shape[1]))
    curve = replace(curve, together=together.found(), after_idle=slower)
    return curve if points is None else fitted(curve, points)


def _yardstick(experiment: Experiment, bench: Bench, baseline: Session, feeds_of: FeedsOf, split: Split) -> Yardstick:
    """Of one length, the same for every candidate and split: the middle one of the texts, in the baseline's bins.

    Its first time is that of the split, as of the calls that `with_agreed_drift` compares it with.
    """
    batch, length = experiment.baseline.serving.batch, NO_SEQUENCES
    lengths = experiment.dataset.lengths("validation")
    if lengths is not None:
        bins = serving_lengths(experiment, experiment.baseline)
        length = timed_length(experiment.measure.length or int(np.median(lengths)), bins) or NO_SEQUENCES
    return Yardstick(
        session=baseline,
        batch=batch,
        length=length,
        feeds=feeds_of(batch, length),
        first_ms=lambda now_ms: bench.journal.anchor(split, batch, now_ms, length=length),
    )


def _sessions_at_once(choices: ServiceChoices, question: ServiceQuestion, threads: int) -> int:
    """As many as a service may have and processors run at once, two at least: threads of two may be too many already;
    1 where nothing on the host can be told by more."""
    if threads < 1 or processors() < 2:
        return 1
    return min(max(choices.workers) * question.devices, max(processors() // threads, 2), MOST_SESSIONS)


def _none() -> Session:
    raise AssertionError("one session alone opens no other")


def best_service(
    experiment: Experiment,
    candidate: Candidate,
    bench: Bench,
    curve: BatchCurve,
    split: Split,
    *,
    choices: ServiceChoices | None = None,
) -> ServiceResult:
    """The best service settings under the experiment's load, by simulation over the split's own lengths.

    Deterministic for a curve and host costs. Those are measured once for a machine and workspace, unless the experiment
    states them; of a modelled device, whose host is not here, they are assumed. On the holdout split nothing is chosen:
    the settings are those of the search.
    """
    question, choices = experiment.service, choices or service_choices(experiment, candidate)
    assert question is not None  # there is no such stage otherwise
    host = question.host
    if host is None and bench.toolchain(candidate).emulated:
        host = assumed_costs(experiment.model, experiment.dataset)
    if host is None:
        report = partial(bench.report, candidate)
        measured = host_costs(experiment.model, experiment.dataset, bench.store, report=report)
        host = host_beside(measured, curve)
    lengths = experiment.dataset.lengths(split)
    bins = serving_lengths(experiment, candidate)
    if lengths is None:
        lengths, bins = np.zeros(1, dtype=np.int64), ()
    curve = at_first_speed(curve)
    found = searched_service(candidate, bench) if split == "holdout" else None
    stated, curve = curve.modelled, replace(curve, modelled=None)
    if found is None:
        result = best_settings(curve, choices, question, host, lengths, bins, seed=experiment.seed)
    else:
        chosen = ServiceChoices.only((found.best or found.closest).settings)
        result = best_settings(curve, chosen, question, host, lengths, bins, seed=experiment.seed)
        before = ServiceChoices.only(choices.untuned)
        today = best_settings(curve, before, question, host, lengths, bins, seed=experiment.seed)
        result = replace(result, untuned=today.untuned, untuned_missed=today.untuned_missed)
        result = replace(result, untuned_is_today=choices.today is not None)
    if stated is None:
        return result
    modelled = at_other_speeds(result, stated, question, host, lengths, bins, seed=experiment.seed)
    return served_with_intervals(replace(result, modelled=modelled))


def searched_service(candidate: Candidate, bench: Bench) -> ServiceResult | None:
    """What the search predicted of its service; None where it did not."""
    searched = bench.journal.evaluation(candidate.id, "validation")
    return searched.measurement.service if searched is not None else None


def measured_startup_s(
    experiment: Experiment, candidate: Candidate, bench: Bench, artifact: Artifact, directory: Path, split: Split
) -> float | None:
    """Seconds from opening until the first answer of every compiled file that the data reach, or of every length where
    one file takes all.

    None on an emulated toolchain: what an emulator takes on its host says nothing about loading onto a device.

    Raises:
        MeasureError: it cannot be opened, or a call failed.
    """
    if bench.toolchain(candidate).emulated:
        return None
    target = bench.target(candidate)
    return startup_s(
        lambda: target.open(artifact, directory, candidate), _one_for_each_file(experiment, candidate, artifact, split)
    )


def _one_for_each_file(
    experiment: Experiment, candidate: Candidate, artifact: Artifact, split: Split
) -> Sequence[Feeds]:
    feeds_of = _feeds_of(experiment, split)
    lengths = serving_lengths(experiment, candidate)
    wanted = {
        (file.batch or experiment.model.fixed_batch or 1, length)
        for file in artifact.files
        for length in (lengths if file.sequence_bin is None or lengths == (NO_SEQUENCES,) else (file.sequence_bin,))
    }
    return [feeds_of(batch, length)[0] for batch, length in sorted(wanted)]


def _feeds_of(experiment: Experiment, split: Split) -> FeedsOf:
    def feeds_of(batch: int, length: int) -> Sequence[Feeds]:
        return timed_feeds(
            experiment.dataset,
            experiment.model,
            split,
            count=CURVE_FEEDS,
            batch=batch,
            seed=experiment.seed,
            length=None if length == NO_SEQUENCES else length,
        )

    return feeds_of
