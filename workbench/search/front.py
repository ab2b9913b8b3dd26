"""The front: who is feasible and dominated by nobody, and which deferred candidates may be on it.

A candidate is deferred at the stage `predict` with an accuracy that was measured and a throughput that was predicted,
from a few of its shapes. It may be on the front unless a member is at least as
accurate and serves more than the upper end of the prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from workbench.inputs.experiment import Experiment
from workbench.values.measurement import Estimate
from workbench.values.metrics import METRICS, loss_metric, metrics
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
    name = loss_metric("" if accuracy is None else accuracy.unit)
    # who it is comes last: an id is a digest, and this is asked for every candidate before every proposal
    if "accuracy" in numbers and name not in numbers and evaluation.candidate.id == experiment.baseline.id:
        numbers[name] = 0.0
    return numbers


THROUGHPUT = "service_throughput_per_s"
_PREDICTED = frozenset({THROUGHPUT, "accuracy"})
"""Objectives that are known of a candidate that waits."""


def may_be_predicted(experiment: Experiment) -> bool:
    """Whether accuracy and the throughput of a service are all that counts."""
    service, metrics_asked = experiment.service, {objective.metric for objective in experiment.objectives}
    return service is not None and service.goal == "throughput" and metrics_asked <= _PREDICTED


def deferred_rate(evaluation: Evaluation) -> Estimate | None:
    """What was predicted of one that stopped on that and on nothing else."""
    stopped, prediction = evaluation.stop, evaluation.prediction
    if stopped is None or prediction is None or stopped.stage != "predict" or stopped.violations:
        return None
    return prediction.throughput_per_s


def is_deferred(evaluation: Evaluation) -> bool:
    return deferred_rate(evaluation) is not None


def may_be_on_front(experiment: Experiment, evaluations: Mapping[str, Evaluation]) -> list[Evaluation]:
    """Those that wait and may be on the front, the best prediction first; all of them once an audit has failed."""
    waiting = {e.candidate.id: (e, rate) for e in evaluations.values() if (rate := deferred_rate(e)) is not None}
    if not audit_failed(evaluations.values()):
        members = [metrics(e) for e in front_of(experiment, evaluations)]
        waiting = {i: each for i, each in waiting.items() if not any(dominates(m, *each) for m in members)}
    return [e for _, (e, _) in sorted(waiting.items(), key=lambda each: (-each[1][1].value, each[0]))]


def dominates(member: Mapping[str, float], evaluation: Evaluation, rate: Estimate) -> bool:
    """Whether a member's numbers are as accurate as what was predicted of another, and beyond all that it may serve."""
    accuracy = None if evaluation.prediction is None else evaluation.prediction.accuracy
    return (accuracy is None or member.get("accuracy", accuracy) >= accuracy) and member[THROUGHPUT] >= rate.high


def predicted_numbers(evaluation: Evaluation) -> tuple[dict[str, float], dict[str, float]]:
    """What the sampler learns of one that waits, under the names of the objectives, and standard errors of it, the
    interval taken as one of 95 %."""
    rate, prediction = deferred_rate(evaluation), evaluation.prediction
    if rate is None or prediction is None:
        return {}, {}
    known = {} if prediction.accuracy is None else {"accuracy": prediction.accuracy}
    return {THROUGHPUT: rate.value, **known}, {THROUGHPUT: (rate.high - rate.low) / 3.92}


def known_times(evaluations: Iterable[Evaluation]) -> dict[str, dict[tuple[int, int], Estimate]]:
    """Structure → (batch, length) → milliseconds at first speed, of all that was compiled and timed in this sweep."""
    found: dict[str, dict[tuple[int, int], Estimate]] = {}
    for evaluation in evaluations:
        if evaluation.prediction is None:
            continue
        own = found.setdefault(evaluation.prediction.structure, {})
        for time in evaluation.prediction.times:
            own.setdefault((time.batch, time.length), time.p50_ms)
        service = evaluation.measurement.service
        if service is not None and evaluation.status == "complete" and evaluation.candidate.compile.one_file_a_shape():
            for point in service.curve.points:
                own.setdefault((point.batch, point.length), point.p50_ms)
    return found


def audit_failed(evaluations: Iterable[Evaluation]) -> bool:
    """Whether a whole set served more than was thought possible."""
    return any(map(_why_wrong, evaluations))


def _why_wrong(evaluation: Evaluation) -> str:
    prediction, service = evaluation.prediction, evaluation.measurement.service
    if prediction is None or prediction.throughput_per_s is None or service is None or service.best is None:
        return ""
    most, best = prediction.throughput_per_s.high, service.best
    reached = (best.own or best).throughput_per_s  # modelled: by the predictions' own model
    if evaluation.status != "complete" or reached.low <= most:
        return ""
    return (
        f"{evaluation.candidate.short_id} serves {best.throughput_per_s.value:.0f}/s, predicted were {most:.0f} at most"
    )


def audit_words(evaluations: Sequence[Evaluation]) -> str:
    """'14 sets of shapes were predicted before …, 11 of them left at that.'; nothing where none was."""
    predicted = [e for e in evaluations if e.prediction is not None and e.prediction.throughput_per_s is not None]
    if not predicted:
        return ""
    what = f"{len(predicted)} sets of shapes were predicted before they were"
    if len(predicted) == 1:
        what = "1 set of shapes was predicted before it was"
    words = f"{what} compiled whole, {sum(map(is_deferred, predicted))} of them left at that"
    if not (why := next(filter(None, map(_why_wrong, predicted)), "")):
        return f"{words}."
    return f"{words}; the predictions were found wrong ({why}), so everything is compiled whole since."
