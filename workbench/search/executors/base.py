"""What the sweep asks of whoever evaluates, and the simplest answer: this very process."""

from __future__ import annotations

from typing import Protocol

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.task import Task, carry_out
from workbench.values.results import Evaluation


class TimeUp(Exception):
    """The time of the run is up, and what was in flight has been ended. Nothing of it is kept but what is in the store.

    Attributes:
        stage: in which it was.
    """

    def __init__(self, stage: str) -> None:
        super().__init__(f"the time is up, at {stage}")
        self.stage = stage


class Executor(Protocol):
    """Evaluates one candidate at a time. Every call tells the bench when a stage begins."""

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        """As `workbench.search.ladder.evaluate`, errors included.

        Args:
            until: moment of `time.perf_counter` at which it is ended; None for no such moment.

        Raises:
            CrashError: the process that evaluated it died, while this one lived.
            TimeUp: it was ended.
        """


class InProcess:
    """Evaluates in this process: a candidate that takes its process down takes the caller with it, and one that has
    begun is not ended before its time."""

    def __init__(self, experiment: Experiment, bench: Bench) -> None:
        self.experiment, self.bench = experiment, bench

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        return carry_out(task, self.experiment, self.bench)
