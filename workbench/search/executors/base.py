"""What the sweep asks of whoever evaluates, and the simplest answer: this very process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from workbench.artifacts import Bench
from workbench.candidate import Candidate
from workbench.evaluate import evaluate
from workbench.experiment import Experiment
from workbench.results import Evaluation, Split


class Executor(Protocol):
    """Evaluates one candidate at a time. Every call tells the bench when a stage begins."""

    def evaluate(
        self,
        candidate: Candidate,
        *,
        incumbents: Sequence[Evaluation] = (),
        split: Split = "validation",
        gates: bool = True,
    ) -> Evaluation:
        """As `workbench.evaluate.evaluate`, errors included.

        Raises:
            CrashError: the process that evaluated it died, while this one lived.
        """


class InProcess:
    """Evaluates in this process: a candidate that takes its process down takes the caller with it."""

    def __init__(self, experiment: Experiment, bench: Bench) -> None:
        self.experiment, self.bench = experiment, bench

    def evaluate(
        self,
        candidate: Candidate,
        *,
        incumbents: Sequence[Evaluation] = (),
        split: Split = "validation",
        gates: bool = True,
    ) -> Evaluation:
        return evaluate(self.experiment, candidate, self.bench, incumbents=incumbents, split=split, gates=gates)
