"""How far its answers lie from float32: in the search where somebody asks for it, and of all that is confirmed."""

from __future__ import annotations

from workbench.inputs.experiment import Experiment
from workbench.search.rungs.climb import Climb
from workbench.shipping.fidelity import Extent, fidelity_of_sessions
from workbench.targets.base import Session
from workbench.values.metrics import METRICS, fidelity_metrics
from workbench.values.results import Stop

SEARCHED = Extent(samples=128, of_a_shape=16, scored=False)
"""Scores of all samples are the accuracy's affair; the differences of outputs need fewer."""
_NAMES = frozenset(name for name, metric in METRICS.items() if metric.source == "agreement")


def is_asked(experiment: Experiment) -> bool:
    """Whether a figure of fidelity is an objective or a limit."""
    limited = [constraint.metric for constraint in experiment.constraints if constraint.of_output is None]
    return not _NAMES.isdisjoint([*(objective.metric for objective in experiment.objectives), *limited])


def fidelity(climb: Climb, session: Session, baseline: Session) -> Stop | None:
    """A stop where a limit on it is broken; nothing is measured where nobody asks, or the set is not whole yet."""
    if climb.split != "holdout" and not is_asked(climb.experiment):
        return None
    climb.fidelity = fidelity_of_sessions(
        climb.experiment,
        climb.candidate,
        climb.bench,
        session=session,
        baseline=baseline,
        split=climb.split,
        extent=SEARCHED,
    )
    return climb.over_limit(fidelity_metrics(climb.fidelity))
