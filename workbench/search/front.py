"""Which evaluations meet every limit, and which of these no other dominates."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.inputs.experiment import Experiment
from workbench.values.metrics import METRICS, drop_metric, metrics
from workbench.values.objectives import feasible, pareto_front
from workbench.values.results import Evaluation


def front_of(experiment: Experiment, evaluations: Mapping[str, Evaluation]) -> list[Evaluation]:
    """Complete and feasible evaluations that no other dominates, in order of the first objective."""
    able = [e for e in evaluations.values() if is_feasible(experiment, e)]
    points = [[metrics(e)[o.metric] for o in experiment.objectives] for e in able]
    directions = [METRICS[o.metric].direction for o in experiment.objectives]
    front = [able[i] for i in pareto_front(points, directions)]
    return sorted(front, key=lambda e: metrics(e)[experiment.objectives[0].metric])


def is_feasible(experiment: Experiment, evaluation: Evaluation) -> bool:
    """Complete, all objectives measured, every constraint measured and met."""
    if evaluation.status != "complete":
        return False
    numbers = with_baseline_drop(experiment, evaluation)
    wanted = [o.metric for o in experiment.objectives] + [c.metric for c in experiment.constraints]
    return all(name in numbers for name in wanted) and feasible(experiment.constraints, numbers)


def with_baseline_drop(experiment: Experiment, evaluation: Evaluation) -> dict[str, float]:
    """`results.metrics`, with the baseline's drop against itself made explicit: zero, by definition."""
    numbers, accuracy = metrics(evaluation), evaluation.measurement.accuracy
    name = drop_metric("" if accuracy is None else accuracy.unit)
    # who it is comes last: an id is a digest, and this is asked for every candidate before every proposal
    if "accuracy" in numbers and name not in numbers and evaluation.candidate.id == experiment.baseline.id:
        numbers[name] = 0.0
    return numbers
