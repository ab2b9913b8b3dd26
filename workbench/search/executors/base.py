"""What the sweep asks of whoever evaluates, and the simplest answer: this very process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.pipeline import carry_out
from workbench.search.stages.request import Task
from workbench.values.candidate import Candidate
from workbench.values.measurement import Latency, ServiceResult
from workbench.values.results import Evaluation, StageTiming

if TYPE_CHECKING:  # a type only: evaluation processes import this module, and must start quickly
    from workbench.shipping.service_confirmation import LoadTrial


class TimeUp(Exception):
    """The time of the run is up, and what was in flight has been ended. Nothing of it is kept but what is in the store.

    Attributes:
        stage: in which it was.
    """

    def __init__(self, stage: str) -> None:
        super().__init__(f"the time is up, at {stage}")
        self.stage = stage


class Executor(Protocol):
    """Evaluates one candidate at a time. Every call tells the bench when a stage begins.

    What evaluates reads the sweep's journal (`Bench.journal.evaluations`: what was predicted, what is known of times):
    on another machine it needs a copy of the evaluations that the driver has written.
    """

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        """As `workbench.search.pipeline.carry_out`, errors included.

        Args:
            until: moment of `time.perf_counter` at which it is ended; None for no such moment.

        Raises:
            CrashError: the process that evaluated it died, while this one lived.
            TimeUp: it was ended.
        """


class Measurer(Executor, Protocol):
    """An executor that does all that a run asks for, beside its search."""

    def probe(self, *, until: float | None = None) -> float:
        """As `workbench.search.plan.probe_call_ms`. Raises as `evaluate`."""

    def time(self, candidate: Candidate, *, until: float | None = None) -> Latency:
        """As `workbench.search.pipeline.timed`. Raises as `evaluate`."""

    def confirm_service(self, trial: LoadTrial) -> ServiceResult:
        """Serve and load a confirmed candidate where it measures. Raises as `evaluate`."""


class Compiler(Protocol):
    """Makes one candidate's files at a time, without a card."""

    def compile(self, candidate: Candidate, *, until: float | None = None) -> tuple[StageTiming, ...]:
        """As `workbench.search.stages.predict.made_ahead`: the files lie in the store then.

        Args:
            until: moment of `time.perf_counter` at which it is ended; None for no such moment.

        Raises:
            CrashError: the process that compiled died.
            TimeUp: it was ended.
        """


class InProcess:
    """Evaluates in this process: a candidate that takes its process down takes the caller with it, and one that has
    begun is not ended before its time."""

    def __init__(self, experiment: Experiment, bench: Bench) -> None:
        self.experiment, self.bench = experiment, bench

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        return carry_out(task, self.experiment, self.bench)
