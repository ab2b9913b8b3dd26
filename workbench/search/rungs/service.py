"""What a service would make of it: start-up, the curve over batches, the best settings."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from workbench.evaluation.device_lock import device_lock
from workbench.prediction.stage import best_service, measured_curve, measured_startup_s, searched_service
from workbench.search.rungs.climb import Climb
from workbench.targets.base import Session
from workbench.values.artifact import Artifact
from workbench.values.results import Stop

_log = logging.getLogger(__name__)


def service(climb: Climb, session: Session, baseline: Session, artifact: Artifact, directory: Path) -> Stop | None:
    at = (climb.experiment, climb.candidate, climb.bench)
    with device_lock(climb.bench.device_lock, wait_s=3600.0, report=_log.info):
        started_s = measured_startup_s(*at, artifact, directory, climb.split)
        known = None if climb.effort.curve else searched_service(climb.candidate, climb.bench)
        if known is None:
            curve = measured_curve(*at, session, baseline, climb.split)
            known = best_service(*at, curve, climb.split)
    climb.measurement = replace(climb.measurement, startup_s=started_s, service=known)
    return None
