"""How fast it is: a short look, at which a hopeless or dominated candidate stops, and the full measurement."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path

from workbench.evaluation.accuracy_pass import AccuracyPass
from workbench.evaluation.carried import timed_feeds
from workbench.evaluation.device_figures import device_figures
from workbench.evaluation.device_lock import device_lock
from workbench.evaluation.keys import latency_key
from workbench.evaluation.measure import TimingProtocol, time_against_baseline
from workbench.evaluation.memory import peak_memory
from workbench.evaluation.modelled_clock import time_modelled
from workbench.evaluation.raw_times import load_raw_times, ratio_by_rounds, save_raw_times
from workbench.inputs.metrics import (
    per_sample,
    take,
)
from workbench.search.rungs.climb import Climb
from workbench.search.rungs.lending import keep, lender, lent_latency
from workbench.targets.base import DeviceSession, Feeds, Session
from workbench.values import significance
from workbench.values.artifact import Artifact
from workbench.values.bins import timed_length
from workbench.values.facts import Audit, Fact, audit_of_latency, lendable, repeat_of
from workbench.values.measurement import Estimate, Latency
from workbench.values.modelled_times.figures import certainly_slower
from workbench.values.results import Evaluation, Stop
from workbench.values.system.source_closure import closure_digest

_log = logging.getLogger(__name__)


def _feeds(climb: Climb) -> tuple[list[Feeds], list[Feeds]]:
    """What candidate and baseline are timed with: the same samples, each padded as it would be."""
    settings, batch = climb.experiment.measure, climb.candidate.serving.batch
    feeds, baseline_feeds = (
        timed_feeds(
            data,
            climb.experiment.model,
            climb.split,
            count=settings.feeds,
            batch=batch,
            seed=climb.experiment.seed,
            length=timed_length(settings.length, bins),
        )
        for data, bins in (
            (climb.data, climb.candidate.sequence_bins),
            (climb.baseline_data, climb.experiment.baseline.sequence_bins),
        )
    )
    return feeds, baseline_feeds


def timed_calls(climb: Climb, session: Session, baseline: Session, calls: int, *, anchor: bool) -> Latency:
    batch = climb.candidate.serving.batch
    feeds, baseline_feeds = _feeds(climb)
    protocol = TimingProtocol(seed=climb.experiment.seed)
    with device_lock(climb.bench.device_lock, wait_s=3600.0, report=_log.info):
        if climb.bench.toolchain(climb.candidate).emulated:
            latency, raw = time_modelled(
                session,
                baseline,
                feeds,
                batch,
                protocol,
                calls=calls,
                names=(climb.candidate.id, climb.experiment.baseline.id),
                known=climb.bench.modelled_calls,
                baseline_feeds=baseline_feeds,
            )
        else:
            latency, raw = time_against_baseline(
                session, baseline, feeds, batch, protocol, calls=calls, baseline_feeds=baseline_feeds
            )
    if anchor:
        save_raw_times(raw, climb.bench.journal.latency(climb.candidate.id, climb.split))
    first = climb.bench.journal.anchor(climb.split, batch, latency.baseline_p50_ms, keep=anchor)
    return replace(latency, drift=latency.baseline_p50_ms / first)


def _key(climb: Climb, artifact: Artifact, directory: Path) -> str | None:
    """Under which the full times may be lent; None where they may not: on held-out data everything is measured, and
    modelled times cost nothing."""
    if climb.split != "validation" or climb.bench.toolchain(climb.candidate).emulated:
        return None
    calls = climb.effort.timed_calls(climb.experiment)
    at = (climb.experiment, climb.candidate, climb.bench, artifact, directory)
    return latency_key(*at, _feeds(climb)[0], calls)


def short_latency(
    climb: Climb,
    session: Session,
    baseline: Session,
    scores: AccuracyPass,
    artifact: Artifact,
    directory: Path,
) -> Stop | None:
    if not climb.gates:
        return None
    key = _key(climb, artifact, directory)
    known = None if key is None or climb.loans.audited else lender(climb, "latency", key)
    if known is None:
        latency = timed_calls(climb, session, baseline, climb.experiment.measure.short_calls, anchor=False)
    else:
        assert key is not None  # without one there is nobody
        climb.cached = True
        keep(climb, Fact(kind="latency", key=key, lender=known.candidate.id))
        latency = lent_latency(known)
    climb.measurement = replace(climb.measurement, latency=latency)
    # P95 and P99 are at least the P50, so its lower bound is a certain bound for all three.
    fastest_ms = latency.undrifted_p50_ms.low
    certain = dict.fromkeys(("latency_p50_ms", "latency_p95_ms", "latency_p99_ms"), fastest_ms)
    certain["speedup"] = latency.speedup.high
    if stop := climb.over_limit(certain):
        return stop
    for incumbent in climb.incumbents:
        if _certainly_dominated(climb, incumbent, latency, scores):
            return Stop(
                stage=climb.name,
                reason=f"{incumbent.candidate.short_id} is certainly better in every objective",
            )
    return None


def _certainly_dominated(climb: Climb, incumbent: Evaluation, latency: Latency, scores: AccuracyPass) -> bool:
    """Whether the incumbent is better in every objective for certain (errors of about one in a thousand).

    Only objectives with a paired measurement count: accuracy by the sequential test against the incumbent's own
    drop, times by the speed-up at the same batch size. With any other objective nobody is stopped here.
    """
    theirs = incumbent.measurement
    if theirs.latency is None or theirs.accuracy is None or scores.done is None:
        return False
    if incumbent.candidate.serving.batch != climb.candidate.serving.batch:
        return False
    slower = _certainly_slower(latency, theirs.latency)
    for objective in climb.experiment.objectives:
        if objective.metric in ("latency_p50_ms", "throughput_per_s", "speedup"):
            if not slower:
                return False
        elif objective.metric == "accuracy":
            seen = per_sample(scores.done)
            baseline = per_sample(take(scores.reference_outcomes(), len(seen)))
            drop = theirs.accuracy.comparison
            limit_pp = 0.0 if drop is None else drop.drop_pp.high
            if significance.certain_violation(baseline, seen, limit_pp=limit_pp) is None:
                return False
        else:
            return False
    return True


def _certainly_slower(latency: Latency, incumbent: Latency) -> bool:
    """Of modelled times whatever their errors; what both have in common cancels."""
    every = certainly_slower(latency, incumbent)
    if every is not None:
        return every
    return _at_confidence(latency.speedup, 3.29)[1] < _at_confidence(incumbent.speedup, 3.29)[0]


def _at_confidence(estimate: Estimate, z: float) -> tuple[float, float]:
    """The interval of a positive ratio, widened (on the log scale) from 95 % to `z` standard errors."""
    stretch = z / 1.96
    value = math.log(estimate.value)
    low, high = math.log(estimate.low), math.log(estimate.high)
    return math.exp(value - stretch * (value - low)), math.exp(value + stretch * (high - value))


def _full(climb: Climb, session: Session, baseline: Session, artifact: Artifact, directory: Path) -> Latency:
    """The full times: another's where its files do the same work, else measured."""
    key = _key(climb, artifact, directory)
    known = None if key is None else lender(climb, "latency", key)
    if key is not None and known is not None and not climb.loans.audited:
        climb.cached = True
        keep(climb, Fact(kind="latency", key=key, lender=known.candidate.id))
        return lent_latency(known)
    short = climb.measurement.latency
    own = timed_calls(climb, session, baseline, climb.effort.timed_calls(climb.experiment), anchor=True)
    if key is not None:
        repeat = repeat_of(short, own) if short is not None and lendable(short) and lendable(own) else None
        audit = None if known is None else _audit(climb, own, known)
        keep(climb, Fact(kind="latency", key=key, audit=audit, repeat=repeat))
    return own


def _audit(climb: Climb, own: Latency, known: Evaluation) -> Audit:
    raw = [
        load_raw_times(climb.bench.journal.latency(each.id, climb.split)) for each in (climb.candidate, known.candidate)
    ]
    ratio = ratio_by_rounds(raw[0], raw[1], seed=climb.experiment.seed) if raw[0] and raw[1] else None
    return audit_of_latency(own, lent_latency(known), known.candidate.id, ratio=ratio, between=climb.loans.between)


def full_latency(climb: Climb, session: Session, baseline: Session, artifact: Artifact, directory: Path) -> Stop | None:
    latency = _full(climb, session, baseline, artifact, directory)
    batch, seed = climb.candidate.serving.batch, climb.experiment.seed
    feeds = timed_feeds(climb.data, climb.experiment.model, climb.split, count=8, batch=batch, seed=seed)
    if isinstance(session, DeviceSession):
        modelled = climb.bench.toolchain(climb.candidate).emulated  # no load makes it draw power
        device = device_figures(session, feeds[:2], load_s=0.0) if modelled else device_figures(session, feeds)
        climb.measurement = replace(
            climb.measurement, latency=latency, device=device, peak_memory_bytes=device.memory_bytes
        )
        return None
    key = {
        "artifact": [f.sha256 for f in artifact.files],
        "serving": climb.candidate.serving,
        "toolchain": climb.bench.toolchain(climb.candidate),
        "data": climb.data.digest(climb.split),
        "code": closure_digest(
            "workbench.evaluation.memory", type(climb.bench.target(climb.candidate)).__module__, alone=(__name__,)
        ),
    }
    found = climb.bench.store.get_json("memory", key)
    if found is None:
        found = peak_memory(directory, artifact, climb.candidate, feeds)
        climb.bench.store.put_json("memory", key, found)
    climb.measurement = replace(climb.measurement, latency=latency, peak_memory_bytes=int(found))
    return None
