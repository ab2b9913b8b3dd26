"""One evaluation as it is asked for: a value, which crosses to another process as JSON."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from workbench.evaluation.bench import Bench
from workbench.evaluation.reuse import NOTHING_REUSABLE, Reusable
from workbench.inputs.experiment import Experiment
from workbench.search.effort import FULL, Effort
from workbench.search.pipeline import evaluate
from workbench.values.candidate import Candidate, candidate_from_json
from workbench.values.documents.canonical import decode, encode
from workbench.values.measurement import Split
from workbench.values.results import Evaluation, evaluation_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The fields mean what the arguments of `workbench.search.pipeline.evaluate` do."""

    candidate: Candidate
    incumbents: tuple[Evaluation, ...] = ()
    split: Split = "validation"
    gates: bool = True
    effort: Effort = FULL
    reusable: Reusable = NOTHING_REUSABLE
    whole: bool = False
    look: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "candidate": self.candidate.to_json(),
            "incumbents": [evaluation.to_json() for evaluation in self.incumbents],
            "split": self.split,
            "gates": self.gates,
            "effort": encode(self.effort),
            "reusable": encode(self.reusable),
            "whole": self.whole,
            "look": self.look,
        }


def task_from_json(data: dict[str, Any]) -> Task:
    """The task that `Task.to_json` wrote."""
    return Task(
        candidate=candidate_from_json(data["candidate"]),
        incumbents=tuple(evaluation_from_json(incumbent) for incumbent in data["incumbents"]),
        split=data["split"],
        gates=data["gates"],
        effort=decode(Effort, data["effort"]),
        reusable=decode(Reusable, data["reusable"]),
        whole=data["whole"],
        look=data["look"],
    )


def carry_out(task: Task, experiment: Experiment, bench: Bench) -> Evaluation:
    """The evaluation, made in this process; errors as those of `workbench.search.pipeline.evaluate`."""
    given = {field.name: getattr(task, field.name) for field in fields(task)}
    return evaluate(experiment, given.pop("candidate"), bench, **given)
