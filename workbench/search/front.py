"""The front: who is feasible and dominated by nobody, and which deferred candidates may be on it.

A candidate is deferred at the stage `predict` with an accuracy that was measured and a throughput that was predicted,
from a few of its shapes. It may be on the front unless a member is at least as
accurate and serves more than the upper end of the prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from workbench.inputs.experiment import Experiment
from workbench.values.measurement import Estimate
from workbench.values.metrics import METRICS, drop_metric, metrics
from workbench.values.objectives import feasible, pareto_front
from workbench.values.prediction import Prediction
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


THROUGHPUT = "service_throughput_per_s"
_PREDICTED = frozenset({THROUGHPUT, "accuracy"})
"""Objectives that are known of a candidate that waits."""


def may_be_predicted(experiment: Experiment) -> bool:
    """Whether accuracy and the throughput of a service are all that counts."""
    service, metrics_asked = experiment.service, {objective.metric for objective in experiment.objectives}
    return service is not None and service.goal == "throughput" and metrics_asked <= _PREDICTED


def is_deferred(evaluation: Evaluation) -> bool:
    """Whether it stopped on a prediction and on nothing else."""
    stopped, prediction = evaluation.stop, evaluation.prediction
    predicted = prediction is not None and prediction.throughput_per_s is not None
    return stopped is not None and stopped.stage == "predict" and not stopped.violations and predicted


def may_be_on_front(experiment: Experiment, evaluations: Mapping[str, Evaluation]) -> list[Evaluation]:
    """Those that wait and may be on the front, the best prediction first; all of them once an audit has failed."""
    waiting = [e for e in evaluations.values() if is_deferred(e)]
    if not audit_failed(evaluations.values()):
        members = [metrics(e) for e in front_of(experiment, evaluations)]
        waiting = [
            e for e in waiting if not any(dominates(m, e.prediction) for m in members if e.prediction is not None)
        ]
    return sorted(waiting, key=lambda e: (-_rate(e).value, e.candidate.id))


def dominates(member: Mapping[str, float], prediction: Prediction) -> bool:
    """Whether a member's numbers are as accurate as what was predicted of another, and beyond all that it may serve."""
    accuracy, rate = prediction.accuracy, prediction.throughput_per_s
    assert rate is not None  # nothing was predicted otherwise
    return (accuracy is None or member.get("accuracy", accuracy) >= accuracy) and member[THROUGHPUT] >= rate.high


def _rate(evaluation: Evaluation) -> Estimate:
    assert evaluation.prediction is not None  # it waits
    assert evaluation.prediction.throughput_per_s is not None
    return evaluation.prediction.throughput_per_s


def predicted_numbers(evaluation: Evaluation) -> dict[str, float]:
    """What the sampler learns of one that waits, under the names of the objectives."""
    if not is_deferred(evaluation):
        return {}
    assert evaluation.prediction is not None  # it waits
    accuracy = evaluation.prediction.accuracy
    return {THROUGHPUT: _rate(evaluation).value, **({} if accuracy is None else {"accuracy": accuracy})}


def predicted_errors(evaluation: Evaluation) -> dict[str, float]:
    """Standard errors of `predicted_numbers`, the interval taken as one of 95 %."""
    return {THROUGHPUT: (_rate(evaluation).high - _rate(evaluation).low) / 3.92} if is_deferred(evaluation) else {}


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
    return any(map(_wrong, evaluations))


def _wrong(evaluation: Evaluation) -> bool:
    prediction, service = evaluation.prediction, evaluation.measurement.service
    if prediction is None or prediction.throughput_per_s is None or service is None or service.best is None:
        return False
    reached = (service.best.own or service.best).throughput_per_s  # modelled: by the predictions' own model
    return evaluation.status == "complete" and reached.low > prediction.throughput_per_s.high


def audit_words(evaluations: Sequence[Evaluation]) -> str:
    """'14 sets of shapes were predicted before …, 11 of them left at that.'; nothing where none was."""
    predicted = [e for e in evaluations if e.prediction is not None and e.prediction.throughput_per_s is not None]
    if not predicted:
        return ""
    several = len(predicted) > 1
    what = (
        f"{len(predicted)} sets of shapes were predicted before they were"
        if several
        else ("1 set of shapes was predicted before it was")
    )
    words = f"{what} compiled whole, {sum(map(is_deferred, predicted))} of them left at that"
    wrong = next(filter(_wrong, predicted), None)
    if wrong is None:
        return f"{words}."
    service = wrong.measurement.service
    assert service is not None  # nothing else is wrong
    why = (
        f"{wrong.candidate.short_id} serves {(service.best or service.closest).throughput_per_s.value:.0f}/s, "
        f"predicted were {_rate(wrong).high:.0f} at most"
    )
    return f"{words}; the predictions were found wrong ({why}), so everything is compiled whole since."
