"""How the reports read the numbers of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.values.measurement import Estimate, OwnIntervals, ServiceFigures
from workbench.values.metrics import METRICS, drop_metric, metrics
from workbench.values.objectives import Constraint, Objective, violations
from workbench.values.results import Evaluation

SPEED = tuple(name for name, metric in METRICS.items() if metric.source == "latency")
SERVICE = tuple(name for name, metric in METRICS.items() if metric.source == "service")
ACCURACY = tuple(name for name, metric in METRICS.items() if metric.source == "accuracy")
"""The last two of language models, of which one is the primary metric (`inputs.language` refuses the other)."""


def is_feasible(
    evaluation: Evaluation, objectives: Sequence[Objective], constraints: Sequence[Constraint], baseline_id: str
) -> bool:
    """Complete, every objective and every constraint measured, every constraint met."""
    if evaluation.status != "complete":
        return False
    numbers = numbers_of(evaluation, baseline_id)
    found = violations(constraints, numbers)
    return all(o.metric in numbers for o in objectives) and all(found.get(c.metric, 1.0) <= 0 for c in constraints)


def numbers_of(evaluation: Evaluation, baseline_id: str) -> dict[str, float]:
    """`metrics`, with the baseline's drop against itself, which is 0, made explicit."""
    numbers, accuracy = metrics(evaluation), evaluation.measurement.accuracy
    if evaluation.candidate.id == baseline_id and "accuracy" in numbers:
        numbers.setdefault(drop_metric("" if accuracy is None else accuracy.unit), 0.0)
    return numbers


def drop_of(evaluation: Evaluation, baseline_id: str) -> Estimate | None:
    """In percentage points, or in the metric's own unit where that is no share of 0..1; 0 for the baseline, None where
    it was not measured."""
    accuracy = evaluation.measurement.accuracy
    if accuracy is not None and accuracy.comparison is not None:
        return accuracy.comparison.drop_pp
    if accuracy is not None and evaluation.candidate.id == baseline_id:
        return Estimate(value=0.0, low=0.0, high=0.0)
    return None


def speedup_of(evaluation: Evaluation) -> Estimate:
    """Of a complete evaluation."""
    latency = evaluation.measurement.latency
    assert latency is not None, "a complete evaluation has a latency"
    return latency.speedup


def service_estimate(figures: ServiceFigures | OwnIntervals, metric: str) -> Estimate:
    """One of `SERVICE`, with its interval."""
    found: Estimate = getattr(figures, metric.removeprefix("service_"))
    return found


def cost_of(evaluation: Evaluation, metric: str, baseline_id: str) -> float:
    """The metric turned so that less is better."""
    value = numbers_of(evaluation, baseline_id)[metric]
    return -value if METRICS[metric].direction == "maximize" else value
