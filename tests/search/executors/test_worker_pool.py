"""Several evaluations at once: cards, and compilers ahead of them."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.evaluations import candidate, evaluation
from workbench.search.executors.base import TimeUp, Worker
from workbench.search.executors.worker_pool import WorkerPool, Workers
from workbench.search.stages.request import Task
from workbench.values.candidate import Candidate
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.results import Evaluation, StageTiming

SLOW_S = 300.0
"""Until a test that hangs fails."""


class Card:
    """A card of which a test says what happens on it."""

    def __init__(self, name: str, does: Callable[[str], None] = lambda name: None) -> None:
        self.does, self.name = does, name

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        self.does(self.name)
        return evaluation(started_at=f"on {self.name}")


class CompilerOf:
    def __init__(self, does: Callable[[Candidate], None]) -> None:
        self.does = does

    def compile(self, candidate: Candidate, *, until: float | None = None) -> tuple[StageTiming, ...]:
        self.does(candidate)
        return (StageTiming(stage="compile", seconds=1.0, cached=False, compiled=1),)


def work(card: Worker) -> Evaluation:
    return card.evaluate(Task(candidate=candidate()))


def pool_of(card: Card, compiler: CompilerOf) -> WorkerPool[str]:
    return WorkerPool(Workers(cards=(card,), compilers=(compiler,)))


def all_of(pool: WorkerPool[str]) -> Iterator[tuple[str, Evaluation]]:
    while pool.working:
        what, future = pool.first()
        yield what, future.result()


def test_compilers_work_ahead_of_a_card_but_not_further_than_it_can_soon_take() -> None:
    measured, compiled = threading.Event(), threading.Semaphore(0)
    card = Card("a", lambda _: measured.wait(SLOW_S) and None)
    with pool_of(card, CompilerOf(lambda _: compiled.release())) as pool:
        for what in ("first", "second"):  # one at the card, one compiled and waiting for it
            assert pool.free
            pool.begin(what, work, candidate())
            assert compiled.acquire(timeout=SLOW_S)
        assert not pool.free
        measured.set()
        done = list(all_of(pool))
    assert [what for what, _ in done] == ["first", "second"]
    assert all(one.stages[0].compiled == 1 for _, one in done)


def test_a_compiler_that_dies_leaves_the_candidate_to_its_evaluation() -> None:
    def dies(_: Candidate) -> None:
        raise CrashError("the process died.", stage="compile")

    with pool_of(Card("a"), CompilerOf(dies)) as pool:
        pool.begin("it", work, candidate())
        ((_, done),) = all_of(pool)
    assert done.status == "complete"


def test_what_ends_a_compile_ahead_is_the_result_and_costs_nobody_else_anything() -> None:
    for raised in (TimeUp("compile"), ToolchainError("the compiler is gone.")):
        measured = threading.Event()

        def ends(_: Candidate, raised: Exception = raised) -> None:
            raise raised

        card = Card("a", lambda _, measured=measured: measured.wait(SLOW_S) and None)  # type: ignore[misc]
        with pool_of(card, CompilerOf(ends)) as pool:
            pool.begin("at the card", work)
            pool.begin("in the compiler", work, candidate())
            what, future = pool.first()
            assert (what, pool.working, pool.free) == ("in the compiler", ("at the card",), True)
            with pytest.raises(type(raised), match=str(raised)):
                future.result()
            measured.set()
            assert [one.status for _, one in all_of(pool)] == ["complete"]
