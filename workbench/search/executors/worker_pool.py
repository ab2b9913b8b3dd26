"""Several evaluations at once: what needs no card is made by compilers, and whoever is compiled waits for a card.

begin ──► a compiler is free: compiled ahead ──► a card is free: evaluated on it ──► `first`
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, TypeVar

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import Executor, Worker
from workbench.search.pipeline import failed_evaluation
from workbench.search.stages.request import Task
from workbench.values.candidate import Candidate
from workbench.values.errors import MAX_CRASHES, CrashError
from workbench.values.results import MAX_ATTEMPTS, Evaluation, StageTiming

_log = logging.getLogger(__name__)

_What = TypeVar("_What")
_HEARD_EVERY_S = 0.2


class WorkerPool(Generic[_What]):
    """Compilers and cards, and what was begun with them. As a context manager it waits for its threads; whoever ends
    early closes the executors before.

    A single card without compilers works in the calling thread: `begin` returns when it has ended.
    """

    def __init__(
        self,
        cards: Sequence[Executor],
        compilers: Sequence[Worker] = (),
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        """Args: hear: called in the waiting thread, a few times a second."""
        self._hear, self._most, self._compiles = hear, len(cards) + len(compilers), bool(compilers)
        self._cards, self._compilers = SimpleQueue[Executor](), SimpleQueue[Worker]()
        for card in cards:
            self._cards.put(card)
        for compiler in compilers:
            self._compilers.put(compiler)
        self._flying: dict[Future[Evaluation], _What] = {}
        self._threads = ThreadPoolExecutor(self._most, "pool") if self._most > 1 else None

    def __enter__(self) -> WorkerPool[_What]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=kind is None, cancel_futures=True)

    @property
    def free(self) -> bool:
        """Whether something more may begin: no more is compiled ahead than the cards can soon take."""
        return len(self._flying) < self._most

    @property
    def working(self) -> tuple[_What, ...]:
        """What was begun and not yet taken by `first`."""
        return tuple(self._flying.values())

    def begin(
        self,
        what: _What,
        work: Callable[[Executor], Evaluation],
        ahead: Candidate | None = None,
        until: float | None = None,
    ) -> None:
        """Have it done, where `free` says that it can be.

        Args:
            work: called once a card is free, in whatever thread waits for it.
            ahead: the candidate that a compiler makes before; None for nothing.
            until: the moment at which the compiler is ended.
        """

        def fly() -> Evaluation:
            made = self._made_ahead(ahead, until) if ahead is not None and self._compiles else ()
            card = self._cards.get()
            try:
                evaluation = work(card)
            finally:
                self._cards.put(card)
            return replace(evaluation, stages=(*made, *evaluation.stages))

        if self._threads is not None:
            self._flying[self._threads.submit(fly)] = what
            return
        future: Future[Evaluation] = Future()
        self._flying[future] = what
        try:
            future.set_result(fly())
        except Exception as error:  # of any kind: whoever takes the result raises it
            future.set_exception(error)

    def first(self) -> tuple[_What, Future[Evaluation]]:
        """Wait for what ends first, of several what was begun first; its result, or what was raised, is there.

        What a compiler raised, but for its own crash, ends what it compiled for.
        """
        while not wait(self._flying, timeout=_HEARD_EVERY_S, return_when=FIRST_COMPLETED).done:
            self._hear()
        self._hear()
        done = next(future for future in self._flying if future.done())
        return self._flying.pop(done), done

    def _made_ahead(self, candidate: Candidate, until: float | None) -> tuple[StageTiming, ...]:
        """A compiler that dies over it is left to the evaluation to tell of, which meets the same."""
        compiler = self._compilers.get()
        try:
            return compiler.compile(candidate, until=until)
        except CrashError as crash:
            _log.info("%s: compiling ahead ended: %s", candidate.short_id, crash)
            return ()
        finally:
            self._compilers.put(compiler)


def survived(
    experiment: Experiment,
    bench: Bench,
    executor: Executor,
    task: Task,
    *,
    crashes: int = 0,
    crashed: Callable[[int], None] = lambda crashes: None,
    until: float | None = None,
) -> Evaluation:
    """What became of a candidate, which takes its evaluation process down at most `MAX_CRASHES` times, and in a
    first look once.

    Args:
        crashes: of this candidate so far.
        crashed: told the new count before anything else is done, so that it survives this process.
        until: moment of `time.perf_counter` at which the evaluation is ended.

    Raises:
        TimeUp: it was ended.
    """
    while True:
        try:
            return executor.evaluate(task, until=until)
        except CrashError as crash:
            crashes += 1
            crashed(crashes)
            told = crash
            if crashes < MAX_CRASHES:
                _log.warning("%s, at %s: %s It is evaluated once more.", task.candidate.short_id, crash.stage, crash)
                if not task.look:
                    continue
            else:
                told = CrashError(f"it crashed {crashes} times; {crash}", stage=crash.stage, log_path=crash.log_path)
            failed = failed_evaluation(experiment, task.candidate, bench, task.split, told)
            return replace(failed, attempt=MAX_ATTEMPTS)
