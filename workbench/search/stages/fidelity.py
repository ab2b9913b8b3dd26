"""How far its answers lie from float32: in the search where somebody asks for it, and of all that is confirmed."""

from __future__ import annotations

from dataclasses import replace

from workbench.inputs.experiment import Experiment
from workbench.search.stages.request import Found, Request
from workbench.shipping.fidelity import Extent, fidelity_of_sessions
from workbench.targets.base import Session
from workbench.values.metrics import METRICS, fidelity_metrics

SEARCHED = Extent(samples=128, of_a_shape=16, scored=False)
"""Scores of all samples are the accuracy's affair; the differences of outputs need fewer."""
_NAMES = frozenset(name for name, metric in METRICS.items() if metric.source == "agreement")


def is_asked(experiment: Experiment) -> bool:
    """Whether a figure of fidelity is an objective or a limit."""
    limited = [constraint.metric for constraint in experiment.constraints if constraint.of_output is None]
    return not _NAMES.isdisjoint([*(objective.metric for objective in experiment.objectives), *limited])


def fidelity(request: Request, found: Found, session: Session, baseline: Session) -> Found:
    """A stop where a limit on it is broken; nothing is measured where nobody asks, or the set is not whole yet."""
    if request.split != "holdout" and not is_asked(request.experiment):
        return found
    distance = fidelity_of_sessions(
        request.experiment,
        request.candidate,
        request.bench,
        session=session,
        baseline=baseline,
        split=request.split,
        extent=SEARCHED,
    )
    return replace(found, fidelity=distance).within(request, fidelity_metrics(distance))
