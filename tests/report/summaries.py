"""Sweeps of evaluations with chosen numbers, judged."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.evaluations import evaluation
from workbench.evaluation.run_notes import Neighbour
from workbench.report import Summary, summarize
from workbench.values.measurement import ServiceResult
from workbench.values.objectives import Constraint, Objective
from workbench.values.results import Evaluation
from workbench.values.significance import Outcomes

BASELINE = evaluation(accuracy=0.95)


def judge(
    *found: Evaluation,
    baseline: Evaluation = BASELINE,
    confirmed: Sequence[Evaluation] = (),
    outcomes: Mapping[str, Outcomes] | None = None,
    objectives: Sequence[str] = ("latency_p50_ms", "accuracy"),
    limits: Mapping[str, float | Mapping[str, Any]] | None = None,
    neighbours: tuple[Neighbour, ...] = (),
) -> Summary:
    """Args: outcomes: on validation, by candidate; limits: by metric, or with what else a constraint
    has, half a point of accuracy unless given."""
    bounds: Mapping[str, float | Mapping[str, Any]] = {"accuracy_loss_pp": 0.5} if limits is None else limits
    given = {metric: bound if isinstance(bound, Mapping) else {"limit": bound} for metric, bound in bounds.items()}
    return summarize(
        experiment_name="loans",
        experiment_file="experiments/loans.yaml",
        objectives=tuple(Objective(metric=metric) for metric in objectives),
        constraints=tuple(Constraint(metric=metric, **bound) for metric, bound in given.items()),
        evaluations=[baseline, *found],
        confirmations={e.candidate.id: e for e in confirmed},
        outcomes=lambda candidate_id, split: (outcomes or {}).get(candidate_id) if split == "validation" else None,
        baseline_id=baseline.candidate.id,
        neighbours=neighbours,
    )


def chosen(summary: Summary) -> str:
    assert summary.recommended is not None
    return summary.recommended.candidate_id


def member(
    speedup: float, *, drop_pp: float = 0.1, threads: int = 1, scheme: str = "static", keep_float: int = 0
) -> Evaluation:
    """4 ms / speedup, with a speed-up known to 2 % and a drop known to 0.3 pp."""
    return evaluation(
        threads=threads,
        scheme=scheme,
        keep_float=keep_float,
        accuracy=0.95 - drop_pp / 100,
        drop_pp=drop_pp,
        p50_ms=4.0 / speedup,
        speedup=speedup,
    )


def held_out(found: Evaluation, served: ServiceResult | None = None, accuracy: float | None = None) -> Evaluation:
    """The same confirmed on held-out data, with the service and the accuracy there where they are given."""
    of = found.measurement.accuracy
    assert of is not None
    values = of.values if accuracy is None else {**of.values, "accuracy": accuracy}
    scored, service = replace(of, values=values, split="holdout"), served or found.measurement.service
    measurement = replace(found.measurement, accuracy=scored, service=service)
    return replace(found, split="holdout", measurement=measurement)
