"""What the sweep asks of whoever evaluates, and the simplest answer: this very process."""

from __future__ import annotations

from typing import Protocol

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.task import Task, carry_out
from workbench.values.results import Evaluation


class Executor(Protocol):
    """Evaluates one candidate at a time. Every call tells the bench when a stage begins."""

    def evaluate(self, task: Task) -> Evaluation:
        """As `workbench.search.ladder.evaluate`, errors included.

        Raises:
            CrashError: the process that evaluated it died, while this one lived.
        """


class InProcess:
    """Evaluates in this process: a candidate that takes its process down takes the caller with it."""

    def __init__(self, experiment: Experiment, bench: Bench) -> None:
        self.experiment, self.bench = experiment, bench

    def evaluate(self, task: Task) -> Evaluation:
        return carry_out(task, self.experiment, self.bench)
