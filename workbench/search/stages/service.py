"""What a service would make of it: start-up, the curve over batches, the best settings."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from workbench.evaluation.device_lock import device_lock
from workbench.evaluation.keys import curve_key
from workbench.prediction.curve import at_first_speed, with_agreed_drift
from workbench.prediction.stage import (
    best_service,
    measured_curve,
    measured_startup_s,
    searched_service,
    surface_shapes,
)
from workbench.prediction.surface import curve_at
from workbench.search.stages.request import Found, Request
from workbench.targets.base import Session
from workbench.values.artifact import Artifact
from workbench.values.measurement import BatchCurve
from workbench.values.results import Evaluation
from workbench.values.reuse import Reuse, audit_of_curve

_log = logging.getLogger(__name__)


def service(
    request: Request, found: Found, session: Session, baseline: Session, artifact: Artifact, directory: Path
) -> Found:
    at = request.at
    with device_lock(request.bench.device_lock, wait_s=3600.0, report=_log.info):
        started_s = measured_startup_s(*at, artifact, directory, request.split)
        known = None if request.effort.curve else searched_service(request.candidate, request.bench)
        if known is None:
            found, curve = _curve(request, found, session, baseline, artifact, directory)
            known = best_service(*at, curve, request.split)
    return found.measured(startup_s=started_s, service=known)


def _timed(found: Found, curve: BatchCurve) -> BatchCurve:
    """At the speed that the curve and the calls timed just before it agree on; reused calls tell nothing of now."""
    latency = found.measurement.latency
    return (
        curve
        if latency is None or found.source("latency") or curve.clock != "host"
        else with_agreed_drift(curve, latency)
    )


def _curve(
    request: Request, found: Found, session: Session, baseline: Session, artifact: Artifact, directory: Path
) -> tuple[Found, BatchCurve]:
    """Another's where its files do the same work, else measured."""
    at, share = request.at, request.effort.calls

    def another() -> Session:
        return request.bench.target(request.candidate).open(artifact, directory, request.candidate)

    if request.split != "validation" or request.bench.toolchain(request.candidate).emulated:
        return found, _timed(
            found, measured_curve(*at, session, baseline, request.split, open_another=another, share=share)
        )
    batches, lengths = surface_shapes(request.experiment, request.candidate)
    key = curve_key(*at, artifact, directory, batches, lengths, request.split)
    known = request.source("curve", key)
    if known is not None and not request.reusable.audited:
        return found.under(Reuse(kind="curve", key=key, source=known.candidate.id)), _reused_curve(known)
    own = _timed(found, measured_curve(*at, session, baseline, request.split, open_another=another, share=share))
    audit = None
    if known is not None:
        ours, theirs = (curve_at(each, lengths) for each in (at_first_speed(own), _reused_curve(known)))
        audit = audit_of_curve(ours, theirs, known.candidate.id, between=request.reusable.between)
    return found.under(Reuse(kind="curve", key=key, audit=audit)), own


def _reused_curve(evaluation: Evaluation) -> BatchCurve:
    """At first speed, as it lies in its evaluation; so its drift is 1."""
    assert evaluation.measurement.service is not None  # only those are sources
    return replace(evaluation.measurement.service.curve, drift=1.0, baseline=None, baseline_first_ms=0.0)
