"""Who works for a sweep, and several evaluations at once: what needs no card is made by compilers, and whoever is
compiled waits for a card.

begin ──► a compiler is free: compiled ahead ──► a card is free: evaluated on it ──► `first`
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Generic, TypeVar

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import Worker
from workbench.search.executors.child import ChildProcess
from workbench.search.pipeline import failed_evaluation
from workbench.search.stages.request import Task
from workbench.targets import described
from workbench.targets.description import Card
from workbench.values.candidate import Candidate
from workbench.values.errors import MAX_CRASHES, CrashError
from workbench.values.results import MAX_ATTEMPTS, Evaluation, StageTiming

_log = logging.getLogger(__name__)

_What = TypeVar("_What")
_HEARD_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Attributes:
    cards: where evaluations run, as many at once.
    compilers: compile ahead for them.
    here: how many of the cards are fed by this machine: by its processors, from its memory.
    hear: passes on, in the calling thread, what they said since it was last called: a few times a second.
    """

    cards: tuple[Worker, ...]
    here: int = 1
    compilers: tuple[Worker, ...] = ()
    hear: Callable[[], None] = lambda: None


class WorkerPool(Generic[_What]):
    """Compilers and cards, and what was begun with them. As a context manager it waits for its threads; whoever ends
    early closes the executors before.

    A single card without compilers works in the calling thread: `begin` returns when it has ended.
    """

    def __init__(self, workers: Workers) -> None:
        self._hear, self._compiles = workers.hear, bool(workers.compilers)
        self._most = len(workers.cards) + len(workers.compilers)
        self._cards, self._compilers = SimpleQueue[Worker](), SimpleQueue[Worker]()
        for card in workers.cards:
            self._cards.put(card)
        for compiler in workers.compilers:
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
        work: Callable[[Worker], Evaluation],
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
            made: tuple[StageTiming, ...] = ()
            if ahead is not None and self._compiles:
                compiler = self._compilers.get()
                try:
                    made = compiler.compile(ahead, until=until)
                except CrashError as crash:  # left to the evaluation to tell of, which meets the same
                    _log.info("%s: compiling ahead ended: %s", ahead.short_id, crash)
                finally:
                    self._compilers.put(compiler)
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


def survived(
    experiment: Experiment,
    bench: Bench,
    worker: Worker,
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
            return worker.evaluate(task, until=until)
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


# --- of this machine -------------------------------------------------------------------------------------------------

Report = Callable[[Candidate, str], None]
"""(candidate, the stage that begins)."""

PROCESSORS_A_CARD = 2
"""Kept free for every card: what calls it, and what feeds it, is not to wait for a compiler."""
PROCESSORS_A_COMPILER = 2
COMPILERS_A_CARD = 2
"""At most: more would compile what the sampler proposed knowing little of those before."""


@contextlib.contextmanager
def local_workers(experiment: Experiment, bench: Bench, *, compilers: int | None = None) -> Iterator[Workers]:
    """Processes of this machine, ended with the block: one for each card that the experiment's target finds, and what
    compiles ahead of them. On a target that computes on the host there is one, alone on the machine while it times.

    Args:
        compilers: that work ahead of the cards; None for as many as the processors allow.

    Raises:
        ToolchainError: the cards cannot be listed.
    """
    cards = cards_of(bench)
    free = len(os.sched_getaffinity(0)) - PROCESSORS_A_CARD * len(cards)
    most = max(0, min(COMPILERS_A_CARD * len(cards), free // PROCESSORS_A_COMPILER))
    ahead = most if compilers is None else compilers
    with contextlib.ExitStack() as stack:
        if len(cards) < 2 and not ahead:
            yield Workers(cards=(stack.enter_context(ChildProcess(experiment, bench)),), here=1)
            return
        report, hear = in_one_thread(bench.report)
        heard = replace(bench, report=report)
        measuring = [stack.enter_context(ChildProcess(experiment, heard, card)) for card in cards]
        compiling = [stack.enter_context(ChildProcess(experiment, heard, compiler=number)) for number in range(ahead)]
        yield Workers(cards=tuple(measuring), here=len(measuring), compilers=tuple(compiling), hear=hear)


def in_one_thread(report: Report) -> tuple[Report, Callable[[], None]]:
    """(what any thread may call, what passes it on in this one, where calls of this one are passed on at once)."""
    said: SimpleQueue[tuple[Candidate, str]] = SimpleQueue()
    owner = threading.get_ident()

    def hear() -> None:
        with contextlib.suppress(Empty):
            while True:
                report(*said.get_nowait())

    def say(candidate: Candidate, stage: str) -> None:
        said.put((candidate, stage))
        if threading.get_ident() == owner:
            hear()

    return say, hear


def cards_of(bench: Bench) -> tuple[Card, ...]:
    """The cards of a sweep's only target; none where a target computes on the host, or several would share them."""
    names = sorted(bench.targets)
    return described(names[0]).cards() if len(names) == 1 else ()
