"""What the sampler learns of an evaluation: values, or by how much which limit was missed."""

from __future__ import annotations

from collections.abc import Mapping

import optuna
from optuna.samplers import GPSampler
from optuna.trial import TrialState

from workbench.inputs.experiment import Experiment
from workbench.search.asking import FORBIDDEN, REPEAT
from workbench.search.deferred import predicted_numbers
from workbench.search.front import with_baseline_drop
from workbench.search.stages.smoke import SMOKE_CONSTRAINT
from workbench.values.metrics import metrics
from workbench.values.objectives import METRICS, violations
from workbench.values.results import Evaluation

FORBIDDEN_CONSTRAINT = "forbidden"
FAILED_CONSTRAINT = "failed"


def tell(
    study: optuna.Study,
    trial: optuna.Trial,
    experiment: Experiment,
    evaluation: Evaluation,
    known: Mapping[str, Evaluation],
    *,
    repeat: bool,
) -> None:
    """Values when every objective was measured, or predicted of a set that waits to be compiled; else the violations
    alone, in a pruned trial.

    TPE learns from a pruned trial's constraints as much as from a complete one (optuna.md §4, table B).
    GPSampler reads complete trials only, so there the worst values seen so far stand in; they exist in Optuna's
    study alone, under the attribute `placeholder`.
    """
    numbers = with_baseline_drop(experiment, evaluation) | predicted_numbers(evaluation)
    violated: dict[str, float] = {}
    if evaluation.status == "complete":
        violated.update(violations(experiment.constraints, numbers))
    if evaluation.stop is not None:
        violated.update(evaluation.stop.violations)
    if evaluation.failure is not None:
        violated[FAILED_CONSTRAINT] = 1.0
    trial.set_user_attr("status", evaluation.status)
    if repeat:
        trial.set_user_attr(REPEAT, True)
    _set_constraints(trial, experiment, violated)
    names = [objective.metric for objective in experiment.objectives]
    if evaluation.status != "failed" and all(name in numbers for name in names):
        study.tell(trial, [numbers[name] for name in names])
    elif isinstance(study.sampler, GPSampler) and (worst := _worst_values(experiment, known)) is not None:
        trial.set_user_attr("placeholder", True)
        study.tell(trial, worst)
    else:
        study.tell(trial, state=TrialState.PRUNED)


def tell_forbidden(study: optuna.Study, trial: optuna.Trial, experiment: Experiment, why: str) -> None:
    """The space excludes what was proposed: nothing was evaluated, and the sampler learns that it would fail."""
    trial.set_user_attr(FORBIDDEN, why)
    _set_constraints(trial, experiment, {FORBIDDEN_CONSTRAINT: 1.0})
    study.tell(trial, state=TrialState.PRUNED)


def tell_in_flight(study: optuna.Study, trial: optuna.Trial) -> None:
    """What was proposed is being evaluated already: nothing can be told of it yet."""
    trial.set_user_attr(REPEAT, True)
    study.tell(trial, state=TrialState.FAIL)


def _worst_values(experiment: Experiment, known: Mapping[str, Evaluation]) -> list[float] | None:
    complete = [metrics(e) for e in known.values() if e.status == "complete"]
    if not complete:
        return None
    worst = {"minimize": max, "maximize": min}
    names = [o.metric for o in experiment.objectives]
    return [worst[METRICS[name].direction](numbers[name] for numbers in complete) for name in names]


def _set_constraints(trial: optuna.Trial, experiment: Experiment, violated: Mapping[str, float]) -> None:
    """Every trial carries every name (GPSampler refuses studies where they differ); unknown counts as met."""
    names = [constraint.metric for constraint in experiment.constraints]
    there = trial.constraints  # of a run that was killed while it told this very result; they cannot be set twice
    for name in (*names, SMOKE_CONSTRAINT, FORBIDDEN_CONSTRAINT, FAILED_CONSTRAINT):
        if name not in there:
            trial.set_constraint(name, float(violated.get(name, 0.0)))
