"""Several evaluations at once: what needs no card is made by compilers, and every card has a thread that waits for it.

begin ──► a compiler is free: compiled ahead ──► waits for a card ──► evaluated on it ──► `first`
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, TypeVar

from workbench.search.executors.base import CardLost, Compiler, Executor
from workbench.values.candidate import Candidate
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.results import Evaluation, Place, StageTiming

_log = logging.getLogger(__name__)

_What = TypeVar("_What")
_HEARD_EVERY_S = 0.2
MAX_LOSSES = 2
"""So many cards may be lost at one candidate before that counts as the candidate's fault."""


@dataclass(kw_only=True)
class _Flight(Generic[_What]):
    what: _What
    work: Callable[[], Callable[[Executor], Evaluation]]
    ahead: tuple[StageTiming, ...] = ()
    losses: list[str] = field(default_factory=list)


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


class Crew(Generic[_What]):
    """Compilers and cards, and what each is at. As a context manager it waits for its threads; whoever ends early
    closes the executors before.

    A single card without compilers works in the calling thread: `begin` returns when it has ended. For one thread.
    """

    def __init__(
        self,
        cards: Sequence[Executor],
        compilers: Sequence[Compiler] = (),
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        """Args: hear: called in the waiting thread, a few times a second."""
        self._hear = hear
        self._cards, self._compilers = list(cards), list(compilers)
        self._compiles, self._members = bool(compilers), len(cards)
        self._aside: set[Place | None] = set()
        self._compiling: dict[Future[tuple[StageTiming, ...]], tuple[_Flight[_What], Compiler]] = {}
        self._waiting: list[_Flight[_What]] = []
        self._measuring: dict[Future[Evaluation], tuple[_Flight[_What], Executor]] = {}
        threads = len(cards) + len(compilers)
        self._threads = ThreadPoolExecutor(threads, "crew") if threads > 1 else None

    def __enter__(self) -> Crew[_What]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=kind is None, cancel_futures=True)

    @property
    def free(self) -> bool:
        """Whether something more may begin: no more is compiled ahead than the cards can soon take."""
        if self._compiles:
            return bool(self._compilers) and len(self._waiting) < self._members
        return bool(self._cards) and not self._waiting

    @property
    def working(self) -> tuple[_What, ...]:
        """What was begun and not yet taken by `first`: being measured, waiting for a card, being compiled."""
        measuring = [flight for flight, _ in self._measuring.values()]
        compiling = [flight for flight, _ in self._compiling.values()]
        return tuple(flight.what for flight in (*measuring, *self._waiting, *compiling))

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

    def set_aside(self, place: Place) -> bool:
        """Give this card nothing more; False where it is the last one."""
        if place in self._aside or self._members <= 1:
            return False
        self._aside.add(place)
        self._members -= 1
        self._cards = [card for card in self._cards if card.place != place]
        return True

    @property
    def sound(self) -> Executor | None:
        """A card that is free and was not set aside."""
        return self._cards[0] if self._cards else None

    def first(self) -> Done[_What] | None:
        """Wait for what ends first; of several, what came to a card first. None where only a compiler became free.

        Raises:
            ToolchainError: no card is left.
        """
        futures: tuple[Future[Any], ...] = (*self._measuring, *self._compiling)
        while not wait(futures, timeout=_HEARD_EVERY_S, return_when=FIRST_COMPLETED).done:
            self._hear()
        self._hear()
        for made in [future for future in self._compiling if future.done()]:
            flight, compiler = self._compiling.pop(made)
            self._compilers.append(compiler)
            flight.ahead = made.result()
            self._waiting.append(flight)
        ended = next((future for future in self._measuring if future.done()), None)
        done = None if ended is None else self._ended(ended)
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

    def _ended(self, future: Future[Evaluation]) -> Done[_What] | None:
        flight, card = self._measuring.pop(future)
        lost = future.exception()
        aside = card.place in self._aside
        if not isinstance(lost, CardLost):
            if not aside:
                self._cards.append(card)
            return Done(what=flight.what, future=future, ahead=flight.ahead)
        if lost.comes_back and not aside:
            self._cards.append(card)
        elif not aside:
            self._members -= 1
        flight.losses.append(str(lost))
        if not self._members:
            raise ToolchainError(f"{lost} No card is left to measure on; what was measured is kept.")
        if len(flight.losses) >= MAX_LOSSES:
            blamed: Future[Evaluation] = Future()
            said = "; ".join(flight.losses)
            blamed.set_exception(CrashError(f"{MAX_LOSSES} cards were lost at it: {said}", stage=lost.stage))
            return Done(what=flight.what, future=blamed, ahead=flight.ahead)
        _log.warning("%s What it was at is measured on another card.", lost)
        self._waiting.insert(0, flight)
        return None


def _made_ahead(compiler: Compiler, candidate: Candidate, until: float | None) -> tuple[StageTiming, ...]:
    """A compiler that dies over it is left to the evaluation to tell of, which meets the same."""
    try:
        return compiler.compile(candidate, until=until)
    except CrashError as crash:
        _log.info("%s: compiling ahead ended: %s", candidate.short_id, crash)
        return ()
