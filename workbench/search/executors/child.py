"""Evaluations in a child process, one after the other, which is replaced when a candidate takes it down.

Baseline and candidate are timed side by side in the child, as they would be in one process of any kind; the sampler,
the tracker and the display, which would share an interpreter with them, stay here. A start costs a second or two, once
for each sweep and once for each crash.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import TimeUp
from workbench.search.executors.lifecycle import Process, Started, log_again
from workbench.search.executors.messages import Message, decode_error
from workbench.search.stages.request import Task
from workbench.targets.description import Card
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import decode, encode
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.measurement import Latency, ServiceResult
from workbench.values.results import Evaluation, Place, StageTiming, evaluation_from_json
from workbench.values.system.lifeline import ending, out_of_memory_kills

if TYPE_CHECKING:  # a type only: the child imports this package too, and must start quickly
    from workbench.shipping.service_confirmation import LoadTrial

_log = logging.getLogger(__name__)

_GRACE_S = 0.5


class ChildProcess:
    """An `Executor` whose evaluations run in a child process. As a context manager it ends the child.

    For one thread. The experiment is read again from its file in the child, so it must be the file's.
    """

    def __init__(
        self, experiment: Experiment, bench: Bench, card: Card | None = None, *, compiler: int | None = None
    ) -> None:
        """Args:
        card: the only one it sees; all that this process sees without it.
        compiler: its number, of one that compiles beside others and measures nothing.
        """
        self._experiment, self._bench, self._card = experiment, bench, card
        self.place = None if card is None else Place(host=platform.node(), card=card.name)
        self._alone = f"compiler-{compiler}" if compiler is not None else "" if card is None else card.name
        self._child: Started | None = None
        self._over = False

    def __enter__(self) -> ChildProcess:
        """Begins to start the child; the first task waits until it is ready."""
        self._child = self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over = True  # a thread of the sweep may wait for it, and is not to start another
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the child; None where there is none."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """End the child, whatever it does; a later task starts another."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        """As `workbench.search.pipeline.carry_out`, errors included.

        Raises:
            CrashError: the child died; names the stage, how it ended and its last words.
            TimeUp: it took until then, and the child was killed.
        """
        asked = {"task": "evaluate"} | encode(task)
        return evaluation_from_json(self._ask(asked, task.candidate, until=until))

    def compile(self, candidate: Candidate, *, until: float | None = None) -> tuple[StageTiming, ...]:
        """As `workbench.search.stages.predict.made_ahead`.

        Raises:
            CrashError: the child died.
            TimeUp: it took until then, and the child was killed.
        """
        task = {"task": "compile", "candidate": candidate.to_json()}
        return decode(tuple[StageTiming, ...], self._ask(task, candidate, until=until))

    def probe(self, *, until: float | None = None) -> float:
        """As `workbench.search.plan.probe_call_ms`.

        Raises:
            CrashError: the child died.
            TimeUp: it took until then, and the child was killed.
        """
        return float(self._ask({"task": "probe"}, self._experiment.baseline, until=until))

    def time(self, candidate: Candidate, *, until: float | None = None) -> Latency:
        """As `workbench.search.pipeline.timed`, errors included.

        Raises:
            CrashError: the child died.
            TimeUp: it took until then, and the child was killed.
        """
        task = {"task": "time", "candidate": candidate.to_json()}
        return decode(Latency, self._ask(task, candidate, until=until))

    def confirm_service(self, trial: LoadTrial) -> ServiceResult:
        """Serve and load a confirmed candidate; what its confirmation then says of its service.

        Raises:
            CrashError: the child died.
            ToolchainError: the machine, not the candidate, is at fault.
            TimeUp: it took until then, and the child was killed with the service.
        """
        task = {"task": "service", "candidate": trial.candidate.to_json(), "seconds": trial.seconds}
        return decode(ServiceResult, self._ask(task, trial.candidate, trial.report, until=trial.until))

    def _ask(
        self,
        task: Message,
        candidate: Candidate,
        say: Callable[[str], None] = _log.info,
        *,
        until: float | None = None,
    ) -> Any:
        child = self._ready(task)
        with _killed_at(child, until) as time_up:
            return self._answer(child, candidate, say, time_up)

    def _answer(
        self, child: Started, candidate: Candidate, say: Callable[[str], None], time_up: threading.Event
    ) -> Any:
        oom_kills = out_of_memory_kills()
        stage = "check"
        try:
            for message in child.line:
                match message["kind"]:
                    case "stage":
                        stage = message["stage"]
                        self._bench.report(candidate, stage)
                    case "say":
                        say(message["text"])
                    case "log":
                        log_again(message)
                    case "answer":
                        return message["value"]
                    case "error":
                        break
            else:
                if time_up.is_set() or self._over:  # ended by the sweep, from another thread
                    raise TimeUp(stage)
                raise self._crash(child, candidate, stage, oom_kills)
        except BaseException:  # a crash, Ctrl-C, or a listener's mistake: the child is of no more use
            self.close()
            raise
        raise decode_error(message)

    def _ready(self, task: Message) -> Started:
        """A child that has begun the task. One that died with nothing to do is replaced, which counts against nobody.

        Raises:
            ToolchainError: no child can be started.
            Exception: what the child raised while it opened the experiment.
        """
        failed = ""
        for _ in range(2):
            self._child = child = self._child or self._start()
            try:
                if not child.opened:
                    child.expect("ready")
                    child.opened = True
                child.forget_words()
                child.line.send(task)
                child.expect("began")
            except (EOFError, BrokenPipeError, ConnectionResetError):
                failed = f"the evaluation process {ending(child.ended())}: {child.last_lines() or 'it said nothing'}"
                self.close()
                continue
            except BaseException:
                self.close()
                raise
            return child
        raise ToolchainError(f"{failed}. It cannot be kept running; `workbench doctor` looks at this machine.")

    def _start(self) -> Started:
        if self._over:
            raise ToolchainError("the sweep has ended.")
        return self._launched(self.opening())

    def opening(self) -> Message:
        """What a child is told first."""
        return {
            "experiment": str(self._experiment.path.absolute()),
            "workspace": str(self._experiment.workspace),
            "identity": self._experiment.identity,
            "seed": self._experiment.seed,
            "journal": str(self._bench.journal.root.absolute()),
            "store": str(self._bench.store.root),
            "shared": None if self._bench.store.shared is None else self._bench.store.shared.url,
            "card": "" if self._card is None else self._card.name,
            "alone": self._alone,
            "level": logging.getLogger().getEffectiveLevel(),
        }

    def _launched(self, opening: Message) -> Started:
        try:
            return Process(opening, {} if self._card is None else self._card.environment)
        except OSError as error:
            raise ToolchainError(
                f"the evaluation process cannot be started: {error.strerror}. Free memory, processes or files."
            ) from error

    def _crash(self, child: Started, candidate: Candidate, stage: str, oom_kills: int) -> CrashError:
        code = child.ended()
        if code == -signal.SIGKILL:
            time.sleep(_GRACE_S)  # whoever kills all processes of ours means us next, and not the candidate
        log = self._bench.journal.log(candidate.id)
        log.write_text(child.words(), encoding="utf-8")
        said = child.last_lines()
        how = ending(code, out_of_memory=child.out_of_memory(oom_kills))
        return CrashError(
            f"the process that evaluated it {how}." + (f" Its last words: {said}" if said else ""),
            stage=stage,
            log_path=log,
        )


@contextlib.contextmanager
def _killed_at(child: Started, until: float | None) -> Iterator[threading.Event]:
    """Kill the child at that moment, unless the block has ended; the event says that it was."""
    time_up = threading.Event()
    if until is None:
        yield time_up
        return

    def kill() -> None:
        time_up.set()
        child.kill()

    timer = threading.Timer(max(0.0, until - time.perf_counter()), kill)
    timer.daemon = True
    timer.start()
    try:
        yield time_up
    finally:
        timer.cancel()
        timer.join()
