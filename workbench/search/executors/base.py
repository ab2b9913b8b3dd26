"""What the sweep asks of whoever evaluates: this process, or a worker in another one, here or on another machine."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.messages import Message
from workbench.search.pipeline import carry_out
from workbench.search.stages.request import Task
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import decode, encode
from workbench.values.measurement import Latency, ServiceResult
from workbench.values.results import Evaluation, StageTiming, evaluation_from_json

if TYPE_CHECKING:  # a type only: evaluation processes import this module, and must start quickly
    from workbench.shipping.service_confirmation import LoadTrial

_log = logging.getLogger(__name__)


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


class InProcess:
    """Evaluates in this process: a candidate that takes its process down takes the caller with it, and one that has
    begun is not ended before its time."""

    def __init__(self, experiment: Experiment, bench: Bench) -> None:
        self.experiment, self.bench = experiment, bench

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        return carry_out(task, self.experiment, self.bench)


class Worker(ABC):
    """An executor that does all that a run asks for, in a process of its own; `until` and errors as of `evaluate`."""

    experiment: Experiment

    @abstractmethod
    def ask(
        self, task: Message, candidate: Candidate, say: Callable[[str], None] = _log.info, *, until: float | None = None
    ) -> Any:
        """The value of the answer to one task (`messages`).

        Args:
            candidate: that it is about.
            say: told what the process says meanwhile.
        """

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        """As `Executor.evaluate`; a crash says how the process ended, and its last words."""
        asked = {"task": "evaluate"} | encode(task)
        return evaluation_from_json(self.ask(asked, task.candidate, until=until))

    def compile(self, candidate: Candidate, *, until: float | None = None) -> tuple[StageTiming, ...]:
        """As `workbench.search.stages.predict.made_ahead`: the files lie in the store then."""
        task = {"task": "compile", "candidate": candidate.to_json()}
        return decode(tuple[StageTiming, ...], self.ask(task, candidate, until=until))

    def probe(self, *, until: float | None = None) -> float:
        """As `workbench.search.plan.probe_call_ms`."""
        return float(self.ask({"task": "probe"}, self.experiment.baseline, until=until))

    def time(self, candidate: Candidate, *, until: float | None = None) -> Latency:
        """As `workbench.search.pipeline.timed`."""
        task = {"task": "time", "candidate": candidate.to_json()}
        return decode(Latency, self.ask(task, candidate, until=until))

    def confirm_service(self, trial: LoadTrial) -> ServiceResult:
        """Serve and load a confirmed candidate where it measures; at the end of its time the service is killed too."""
        task = {"task": "service", "candidate": trial.candidate.to_json(), "seconds": trial.seconds}
        return decode(ServiceResult, self.ask(task, trial.candidate, trial.report, until=trial.until))
