"""Several evaluations at once: what needs no card is made by compilers, and every card has a thread that waits for it.

begin ──► a compiler is free: compiled ahead ──► waits for a card ──► evaluated on it ──► `first`
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Generic, TypeVar

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


@dataclass(kw_only=True)
class _Flight(Generic[_What]):
    what: _What
    work: Callable[[], Callable[[Executor], Evaluation]]
    ahead: tuple[StageTiming, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Generic[_What]):
    """What was begun with `what`, and has ended.

    Attributes:
        future: its result is there, or what was raised.
        ahead: what was compiled before, without a card; it is not in the evaluation's stages.
    """

    what: _What
    future: Future[Evaluation]
    ahead: tuple[StageTiming, ...] = ()


class WorkerPool(Generic[_What]):
    """Compilers and cards, and what each is at. As a context manager it waits for its threads; whoever ends early
    closes the executors before.

    A single card without compilers works in the calling thread: `begin` returns when it has ended. For one thread.
    """

    def __init__(
        self,
        cards: Sequence[Executor],
        compilers: Sequence[Worker] = (),
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        """Args: hear: called in the waiting thread, a few times a second."""
        self._hear = hear
        self._cards, self._compilers = list(cards), list(compilers)
        self._compiles, self._cards_in_all = bool(compilers), len(cards)
        self._compiling: dict[Future[tuple[StageTiming, ...]], tuple[_Flight[_What], Worker]] = {}
        self._waiting: list[_Flight[_What]] = []
        self._measuring: dict[Future[Evaluation], tuple[_Flight[_What], Executor]] = {}
        self._uncompiled: list[Done[_What]] = []
        threads = len(cards) + len(compilers)
        self._threads = ThreadPoolExecutor(threads, "pool") if threads > 1 else None

    def __enter__(self) -> WorkerPool[_What]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=kind is None, cancel_futures=True)

    @property
    def free(self) -> bool:
        """Whether something more may begin: no more is compiled ahead than the cards can soon take."""
        if self._compiles:
            return bool(self._compilers) and len(self._waiting) < self._cards_in_all
        return bool(self._cards) and not self._waiting

    @property
    def working(self) -> tuple[_What, ...]:
        """What was begun and not yet taken by `first`: being measured, waiting for a card, being compiled."""
        uncompiled = [done.what for done in self._uncompiled]
        measuring = [flight for flight, _ in self._measuring.values()]
        compiling = [flight for flight, _ in self._compiling.values()]
        return (*uncompiled, *(flight.what for flight in (*measuring, *self._waiting, *compiling)))

    def begin(
        self,
        what: _What,
        work: Callable[[], Callable[[Executor], Evaluation]],
        ahead: Candidate | None = None,
        until: float | None = None,
    ) -> None:
        """Have it done, where `free` says that it can be.

        Args:
            work: called in this thread when a card is free, for what is then done on it.
            ahead: the candidate that a compiler makes before; None for nothing.
            until: the moment at which the compiler is ended.
        """
        flight = _Flight(what=what, work=work)
        if ahead is not None and self._compilers:
            assert self._threads is not None  # a compiler is never alone
            compiler = self._compilers.pop(0)
            future = self._threads.submit(_made_ahead, compiler, ahead, until)
            self._compiling[future] = (flight, compiler)
        else:
            self._waiting.append(flight)
            self._dispatch()

    def first(self) -> Done[_What] | None:
        """Wait for what ends first; of several, what came to a card first. None where only a compiler became free.

        What a compiler raised, but for its own crash, ends what it compiled for: it is what taking the result raises.
        """
        futures: tuple[Future[Any], ...] = (*self._measuring, *self._compiling)
        while not (self._uncompiled or wait(futures, timeout=_HEARD_EVERY_S, return_when=FIRST_COMPLETED).done):
            self._hear()
        self._hear()
        for made in [future for future in self._compiling if future.done()]:
            flight, compiler = self._compiling.pop(made)
            self._compilers.append(compiler)
            if (error := made.exception()) is None:
                flight.ahead = made.result()
                self._waiting.append(flight)
            else:
                future: Future[Evaluation] = Future()
                future.set_exception(error)
                self._uncompiled.append(Done(what=flight.what, future=future))
        measured = next((future for future in self._measuring if future.done()), None)
        done = None
        if measured is not None:
            done = self._ended(measured)
        elif self._uncompiled:
            done = self._uncompiled.pop(0)
        self._dispatch()
        return done

    def _dispatch(self) -> None:
        while self._waiting and self._cards:
            flight, card = self._waiting.pop(0), self._cards.pop(0)
            work = flight.work()
            if self._threads is not None:
                self._measuring[self._threads.submit(work, card)] = (flight, card)
                continue
            future: Future[Evaluation] = Future()
            self._measuring[future] = (flight, card)
            try:
                future.set_result(work(card))
            except Exception as error:  # of any kind: whoever takes the result raises it
                future.set_exception(error)

    def _ended(self, future: Future[Evaluation]) -> Done[_What]:
        flight, card = self._measuring.pop(future)
        self._cards.append(card)
        return Done(what=flight.what, future=future, ahead=flight.ahead)


def _made_ahead(compiler: Worker, candidate: Candidate, until: float | None) -> tuple[StageTiming, ...]:
    """A compiler that dies over it is left to the evaluation to tell of, which meets the same."""
    try:
        return compiler.compile(candidate, until=until)
    except CrashError as crash:
        _log.info("%s: compiling ahead ended: %s", candidate.short_id, crash)
        return ()


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
