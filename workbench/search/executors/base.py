"""What a sweep asks of whoever evaluates, in this process or in another one, here or on another machine; how it is
answered; and what the two say to each other: one JSON object a line, over a socket pair.

    to the process      {"experiment", "workspace", "identity", "seed", "journal", "store", "shared", "card", "alone",
                        "level"} first, then
                        {"task": "evaluate"} and the fields of a `Task`
                        {"task": "compile", "candidate"}
                        {"task": "probe"}
                        {"task": "time", "candidate"}
                        {"task": "service", "candidate", "seconds"}
    from the process    {"kind": "ready"} once it is open, {"kind": "began"} for each task, then any number of
                        {"kind": "stage", "stage"}, {"kind": "say", "text"}, {"kind": "log", "name", "level", "text"}
                        and one {"kind": "answer", "value"} or {"kind": "error", …}
"""

from __future__ import annotations

import json
import logging
import socket
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.pipeline import carry_out, timed
from workbench.search.plan import probe_call_ms
from workbench.search.stages.predict import made_ahead
from workbench.search.stages.request import Task
from workbench.values import errors
from workbench.values.candidate import Candidate, candidate_from_json
from workbench.values.documents.canonical import decode, encode
from workbench.values.errors import CandidateError, ConfigError, WorkbenchError
from workbench.values.measurement import Latency, ServiceResult
from workbench.values.results import Evaluation, StageTiming, evaluation_from_json

if TYPE_CHECKING:  # a type only: evaluation processes import this module, and must start quickly
    from workbench.shipping.service_confirmation import LoadTrial

_log = logging.getLogger(__name__)

Message = dict[str, Any]
Say = Callable[[str], None]


class TimeUp(Exception):
    """The time of the run is up, and what was in flight has been ended. Nothing of it is kept but what is in the store.

    Attributes:
        stage: in which it was.
    """

    def __init__(self, stage: str) -> None:
        super().__init__(f"the time is up, at {stage}")
        self.stage = stage


class Worker(ABC):
    """Does all that a run asks for, one task at a time; every task tells the bench when a stage begins.

    What evaluates reads the sweep's journal (`Bench.journal.evaluations`: what was predicted, what is known of times):
    on another machine it needs a copy of the evaluations that the driver has written.

    Every call may be given `until`, the moment of `time.perf_counter` at which it is ended, None for no such moment,
    and raises CrashError where the process that does it died while this one lived, with how it ended and its last
    words, and TimeUp where it was ended.
    """

    experiment: Experiment

    @abstractmethod
    def ask(self, task: Message, candidate: Candidate, say: Say = _log.info, *, until: float | None = None) -> Any:
        """The value of the answer to one task.

        Args:
            candidate: that it is about.
            say: told what the process says meanwhile.
        """

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        """As `workbench.search.pipeline.carry_out`, errors included."""
        return evaluation_from_json(self.ask({"task": "evaluate"} | encode(task), task.candidate, until=until))

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


def answer(task: Message, experiment: Experiment, bench: Bench, say: Say) -> Any:
    """What `Worker.ask` gives for a task, where it is done."""
    name, asked = task["task"], {key: value for key, value in task.items() if key != "task"}
    if name == "evaluate":
        return carry_out(decode(Task, asked), experiment, bench).to_json()
    if name == "probe":
        return probe_call_ms(experiment, bench)
    candidate = candidate_from_json(asked["candidate"])
    if name == "compile":
        return encode(made_ahead(experiment, candidate, bench))
    if name == "time":
        return encode(timed(experiment, candidate, bench))
    from workbench.shipping.service_confirmation import served  # few sweeps serve, and every start would pay for it

    bench.report(candidate, "service")
    return encode(served(experiment, candidate, bench, report=say, seconds=asked["seconds"]))


class InProcess(Worker):
    """In this process: a candidate that takes its process down takes the caller with it, and one that has begun is not
    ended before its time."""

    def __init__(self, experiment: Experiment, bench: Bench) -> None:
        self.experiment, self._bench = experiment, bench

    def ask(self, task: Message, candidate: Candidate, say: Say = _log.info, *, until: float | None = None) -> Any:
        return answer(task, self.experiment, self._bench, say)


# --- messages ----------------------------------------------------------------------------------------------------


class Line:
    """One end of the socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()  # threads of ours may log
        self._reader = end.makefile("r", encoding="utf-8", newline="\n")

    def send(self, message: Message) -> None:
        """Raises: OSError: the other end is gone."""
        data = json.dumps(message, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with self._sending:
            self._end.sendall(data)

    def __iter__(self) -> Iterator[Message]:
        """What comes, until the other end is gone, with or without half a message."""
        return self

    def __next__(self) -> Message:
        try:
            line = self._reader.readline()
        except ConnectionResetError:
            line = ""
        if not line.endswith("\n"):
            raise StopIteration
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        self._reader.close()
        self._end.close()


def encode_error(error: BaseException) -> Message:
    """An exception as data, its traceback with it."""
    only = error.args[0] if len(error.args) == 1 else None  # str() of a KeyError would quote it
    message: Message = {
        "kind": "error",
        "class": type(error).__name__,
        "text": only if isinstance(only, str) else str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, ConfigError):
        file = None if error.file is None else str(error.file)
        message["config"] = {"rule": error.rule, "file": file, "line": error.line, "key": error.key, "hint": error.hint}
    elif isinstance(error, CandidateError):
        message["log_path"] = None if error.log_path is None else str(error.log_path)
        message["transient"] = error.transient
    elif isinstance(error, OSError):
        message["os"] = [error.errno, error.strerror, error.filename if isinstance(error.filename, str) else None]
    return message


def decode_error(message: Message) -> Exception:
    """The exception again: the workbench's own and the system's as they were, any other, which is a programming
    mistake, as a RuntimeError that names its class and has the other process's traceback as a note."""
    if "config" in message:
        return ConfigError(**message["config"])
    kind, text = getattr(errors, message["class"], None), message["text"]
    if isinstance(kind, type) and issubclass(kind, CandidateError) and "transient" in message:
        log_path = None if message["log_path"] is None else Path(message["log_path"])
        return kind(text, log_path=log_path, transient=message["transient"])
    if isinstance(kind, type) and issubclass(kind, WorkbenchError) and kind is not ConfigError:
        return kind(text)
    number, words, name = message.get("os", (None, None, None))
    error = RuntimeError(f"{message['class']}: {text}") if number is None else OSError(number, words, name)
    error.add_note(f"In the evaluation process:\n{message['traceback']}")
    return error
