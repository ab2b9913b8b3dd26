"""How fast it is: a short look, at which a hopeless candidate stops, the full measurement, and what a service would
make of it: start-up, the curve over batches, the best settings.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace

from workbench.evaluation.bench import device_lock
from workbench.evaluation.carried import timed_feeds
from workbench.evaluation.measure import (
    TimingProtocol,
    device_figures,
    load_raw_times,
    ratio_by_rounds,
    save_raw_times,
    time_against_baseline,
)
from workbench.evaluation.modelled_latency import time_modelled
from workbench.evaluation.replay import peak_memory
from workbench.evaluation.reuse import curve_key, latency_key
from workbench.prediction.curve import at_first_speed, with_agreed_drift
from workbench.prediction.stage import (
    best_service,
    measured_curve,
    measured_startup_s,
    searched_service,
    surface_shapes,
)
from workbench.prediction.surface import curve_at
from workbench.search.stages.request import Opened, Request, StageResult
from workbench.targets.base import DeviceSession, Feeds, Session
from workbench.values.bins import timed_length
from workbench.values.measurement import BatchCurve, Latency
from workbench.values.results import Evaluation
from workbench.values.reuse import Audit, Reuse, audit_of_curve, audit_of_latency
from workbench.values.system.source_closure import closure_digest

_log = logging.getLogger(__name__)


def _feeds(request: Request) -> tuple[list[Feeds], list[Feeds]]:
    """What candidate and baseline are timed with: the same samples, each padded as it would be."""
    settings, batch = request.experiment.measure, request.candidate.serving.batch
    feeds, baseline_feeds = (
        timed_feeds(
            data,
            request.experiment.model,
            request.split,
            count=settings.feeds,
            batch=batch,
            seed=request.experiment.seed,
            length=timed_length(settings.length, bins),
        )
        for data, bins in (
            (request.data, request.candidate.sequence_bins),
            (request.baseline_data, request.experiment.baseline.sequence_bins),
        )
    )
    return feeds, baseline_feeds


def timed_calls(request: Request, opened: Opened, calls: int, *, anchor: bool, limit_s: float | None = None) -> Latency:
    """Args: limit_s: about how long it may take, where calls are so slow that fewer rounds must do."""
    batch, session, baseline = request.candidate.serving.batch, opened.session, opened.baseline
    feeds, baseline_feeds = _feeds(request)
    protocol = TimingProtocol(seed=request.experiment.seed)
    if limit_s is not None and not request.bench.toolchain(request.candidate).emulated:
        pair_s = math.inf
        for _ in range(2):  # the first call of a shape may take long by itself
            began = time.perf_counter()
            session.run(feeds[0])
            baseline.run(baseline_feeds[0])
            pair_s = min(pair_s, time.perf_counter() - began)
        calls, protocol = _shortened(calls, protocol, limit_s / pair_s)
    with device_lock(request.bench.device_lock, wait_s=3600.0, report=_log.info):
        if request.bench.toolchain(request.candidate).emulated:
            latency, raw = time_modelled(
                session,
                baseline,
                feeds,
                batch,
                protocol,
                calls=calls,
                names=(request.candidate.id, request.experiment.baseline.id),
                known=request.bench.modelled_calls,
                baseline_feeds=baseline_feeds,
            )
        else:
            latency, raw = time_against_baseline(
                session, baseline, feeds, batch, protocol, calls=calls, baseline_feeds=baseline_feeds
            )
    if anchor:
        save_raw_times(raw, request.bench.journal.latency(request.candidate.id, request.split))
    first = request.bench.journal.anchor(request.split, batch, latency.baseline_p50_ms, keep=anchor)
    return replace(latency, drift=latency.baseline_p50_ms / first)


_FEWEST_ROUNDS = 3


def _shortened(calls: int, protocol: TimingProtocol, fitting: float) -> tuple[int, TimingProtocol]:
    """(calls, protocol) where so many calls of each session fit: rounds, calls and warm-up in one proportion."""
    share = fitting / (2 * calls + 6 * protocol.minimum_warmup)  # one untimed call to each block; warm-up in windows
    if share >= 1:
        return calls, protocol
    rounds = max(_FEWEST_ROUNDS, int(protocol.rounds * share))
    warmup = max(1, int(6 * protocol.minimum_warmup * share))
    fewer = replace(protocol, rounds=rounds, minimum_warmup=1, maximum_warmup=warmup)
    return max(2 * rounds, int(calls * share)), fewer


def _key(request: Request, opened: Opened) -> str | None:
    """Under which the full times may be reused; None where they may not: on held-out data everything is measured, and
    modelled times cost nothing."""
    if request.split != "validation" or request.bench.toolchain(request.candidate).emulated:
        return None
    calls = request.effort.timed_calls(request.experiment)
    at = (*request.at, opened.artifact, opened.directory)
    return latency_key(*at, _feeds(request)[0], calls)


def short_latency(request: Request, result: StageResult, opened: Opened) -> StageResult:
    if not request.gated:
        return result
    key = _key(request, opened)
    known = None if key is None or request.reusable.audited else request.source("latency", key)
    if known is None:
        latency = timed_calls(request, opened, request.experiment.measure.short_calls, anchor=False)
    else:
        assert key is not None  # without one there is nobody
        result = replace(result.under(Reuse(kind="latency", key=key, source=known.candidate.id)), cached=True)
        latency = reused_latency(known)
    result = result.measured(latency=latency)
    # P95 and P99 are at least the P50, so its lower bound is a certain bound for all three.
    fastest_ms = latency.undrifted_p50_ms.low
    certain = dict.fromkeys(("latency_p50_ms", "latency_p95_ms", "latency_p99_ms"), fastest_ms)
    certain["speedup"] = latency.speedup.high
    return result.within(request, certain)


def reused_latency(evaluation: Evaluation) -> Latency:
    assert evaluation.measurement.latency is not None  # only those are sources
    return evaluation.measurement.latency


def _full(request: Request, result: StageResult, opened: Opened) -> StageResult:
    """The full times: another's where its files do the same work, else measured."""
    key = _key(request, opened)
    known = None if key is None else request.source("latency", key)
    if key is not None and known is not None and not request.reusable.audited:
        result = replace(result.under(Reuse(kind="latency", key=key, source=known.candidate.id)), cached=True)
        return result.measured(latency=reused_latency(known))
    own = timed_calls(request, opened, request.effort.timed_calls(request.experiment), anchor=True)
    if key is not None:
        audit = None if known is None else _audit(request, own, known)
        result = result.under(Reuse(kind="latency", key=key, audit=audit))
    return result.measured(latency=own)


def _audit(request: Request, own: Latency, known: Evaluation) -> Audit:
    raw = [
        load_raw_times(request.bench.journal.latency(each.id, request.split))
        for each in (request.candidate, known.candidate)
    ]
    ratio = ratio_by_rounds(raw[0], raw[1], seed=request.experiment.seed) if raw[0] and raw[1] else None
    return audit_of_latency(own, reused_latency(known), known.candidate.id, ratio)


def full_latency(request: Request, result: StageResult, opened: Opened) -> StageResult:
    result, session = _full(request, result, opened), opened.session
    batch, seed = request.candidate.serving.batch, request.experiment.seed
    feeds = timed_feeds(request.data, request.experiment.model, request.split, count=8, batch=batch, seed=seed)
    if isinstance(session, DeviceSession):
        modelled = request.bench.toolchain(request.candidate).emulated  # no load makes it draw power
        device = device_figures(session, feeds[:2], load_s=0.0) if modelled else device_figures(session, feeds)
        return result.measured(device=device, peak_memory_bytes=device.memory_bytes)
    key = {
        "artifact": [f.sha256 for f in opened.artifact.files],
        "serving": request.candidate.serving,
        "toolchain": request.bench.toolchain(request.candidate),
        "data": request.data.digest(request.split),
        "code": closure_digest(
            "workbench.evaluation.replay", type(request.bench.target(request.candidate)).__module__, alone=(__name__,)
        ),
    }
    files = (opened.directory, opened.artifact, request.candidate)
    peak = request.bench.store.json_of("memory", key, lambda: peak_memory(*files, feeds))
    return result.measured(peak_memory_bytes=int(peak))


def service(request: Request, result: StageResult, opened: Opened) -> StageResult:
    at = request.at
    with device_lock(request.bench.device_lock, wait_s=3600.0, report=_log.info):
        started_s = measured_startup_s(*at, opened.artifact, opened.directory, request.split)
        known = None if request.effort.curve else searched_service(request.candidate, request.bench)
        if known is None:
            result, curve = _curve(request, result, opened)
            known = best_service(*at, curve, request.split)
    return result.measured(startup_s=started_s, service=known)


def _timed(result: StageResult, curve: BatchCurve) -> BatchCurve:
    """At the speed that the curve and the calls timed just before it agree on; reused calls tell nothing of now."""
    latency = result.measurement.latency
    return (
        curve
        if latency is None or result.source("latency") or curve.clock != "host"
        else with_agreed_drift(curve, latency)
    )


def _curve(request: Request, result: StageResult, opened: Opened) -> tuple[StageResult, BatchCurve]:
    """Another's where its files do the same work, else measured."""
    at, share, sessions = request.at, request.effort.calls, (opened.session, opened.baseline)

    def another() -> Session:
        return request.bench.target(request.candidate).open(opened.artifact, opened.directory, request.candidate)

    if request.split != "validation" or request.bench.toolchain(request.candidate).emulated:
        return result, _timed(
            result,
            measured_curve(*at, *sessions, request.split, open_another=another, share=share),
        )
    batches, lengths = surface_shapes(request.experiment, request.candidate)
    key = curve_key(*at, opened.artifact, opened.directory, batches, lengths, request.split)
    known = request.source("curve", key)
    if known is not None and not request.reusable.audited:
        return result.under(Reuse(kind="curve", key=key, source=known.candidate.id)), _reused_curve(known)
    own = _timed(result, measured_curve(*at, *sessions, request.split, open_another=another, share=share))
    audit = None
    if known is not None:
        ours, theirs = (curve_at(each, lengths) for each in (at_first_speed(own), _reused_curve(known)))
        audit = audit_of_curve(ours, theirs, known.candidate.id)
    return result.under(Reuse(kind="curve", key=key, audit=audit)), own


def _reused_curve(evaluation: Evaluation) -> BatchCurve:
    """At first speed, as it lies in its evaluation; so its drift is 1."""
    assert evaluation.measurement.service is not None  # only those are sources
    return replace(evaluation.measurement.service.curve, drift=1.0, baseline=None, baseline_first_ms=0.0)
