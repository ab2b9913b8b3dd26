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
from workbench.search.rungs.climb import Climb
from workbench.search.rungs.lending import keep, lender, lent_curve
from workbench.targets.base import Session
from workbench.values.artifact import Artifact
from workbench.values.facts import Fact, audit_of_curve
from workbench.values.measurement import BatchCurve
from workbench.values.results import Stop

_log = logging.getLogger(__name__)


def service(climb: Climb, session: Session, baseline: Session, artifact: Artifact, directory: Path) -> Stop | None:
    at = (climb.experiment, climb.candidate, climb.bench)
    with device_lock(climb.bench.device_lock, wait_s=3600.0, report=_log.info):
        started_s = measured_startup_s(*at, artifact, directory, climb.split)
        known = None if climb.effort.curve else searched_service(climb.candidate, climb.bench)
        if known is None:
            curve = _curve(climb, session, baseline, artifact, directory)
            known = best_service(*at, curve, climb.split)
    climb.measurement = replace(climb.measurement, startup_s=started_s, service=known)
    return None


def _timed(climb: Climb, curve: BatchCurve) -> BatchCurve:
    """At the speed that the curve and the calls timed just before it agree on; borrowed calls tell nothing of now."""
    latency = climb.measurement.latency
    borrowed = any(fact.kind == "latency" and fact.lender for fact in climb.facts)
    return curve if latency is None or borrowed or curve.clock != "host" else with_agreed_drift(curve, latency)


def _curve(climb: Climb, session: Session, baseline: Session, artifact: Artifact, directory: Path) -> BatchCurve:
    """Another's where its files do the same work, else measured."""
    at, share = (climb.experiment, climb.candidate, climb.bench), climb.effort.calls

    def another() -> Session:
        return climb.bench.target(climb.candidate).open(artifact, directory, climb.candidate)

    if climb.split != "validation" or climb.bench.toolchain(climb.candidate).emulated:
        return _timed(climb, measured_curve(*at, session, baseline, climb.split, open_another=another, share=share))
    batches, lengths = surface_shapes(climb.experiment, climb.candidate)
    key = curve_key(*at, artifact, directory, batches, lengths, climb.split)
    known = lender(climb, "curve", key)
    if known is not None and not climb.loans.audited:
        keep(climb, Fact(kind="curve", key=key, lender=known.candidate.id))
        return lent_curve(known)
    own = _timed(climb, measured_curve(*at, session, baseline, climb.split, open_another=another, share=share))
    audit = None
    if known is not None:
        ours, lent = (curve_at(each, lengths) for each in (at_first_speed(own), lent_curve(known)))
        audit = audit_of_curve(ours, lent, known.candidate.id, between=climb.loans.between)
    keep(climb, Fact(kind="curve", key=key, audit=audit))
    return own
