"""Several evaluations at once: cards, compilers ahead of them, and cards that are not to be trusted."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.evaluations import candidate, evaluation
from workbench.search.executors import Crew, Done, Executor, Task, TimeUp
from workbench.values.candidate import Candidate
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.results import Evaluation, Place, StageTiming

SLOW_S = 300.0
"""Until a test that hangs fails."""


class Card:
    """A card of which a test says what happens on it."""

    def __init__(self, name: str, does: Callable[[str], None] = lambda name: None) -> None:
        self.place: Place | None = Place(host="here", card=name)
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


def work() -> Callable[[Executor], Evaluation]:
    return lambda executor: executor.evaluate(Task(candidate=candidate()))


def all_of(crew: Crew[str]) -> Iterator[Done[str]]:
    while crew.working:
        done = crew.first()
        if done is not None:
            yield done


def test_two_cards_work_at_the_same_time_and_each_is_given_one_thing() -> None:
    together = threading.Barrier(2, timeout=SLOW_S)
    with Crew[str]([Card(name, lambda _: together.wait() and None) for name in "ab"]) as crew:
        for what in ("first", "second"):
            assert crew.free
            crew.begin(what, work)
        assert not crew.free
        places = {done.future.result().started_at for done in all_of(crew)}
    assert places == {"on a", "on b"}


def test_a_single_card_works_in_the_calling_thread() -> None:
    threads: list[int] = []
    with Crew[str]([Card("a", lambda _: threads.append(threading.get_ident()))]) as crew:
        crew.begin("it", work)
        assert [done.what for done in all_of(crew)] == ["it"]
    assert threads == [threading.get_ident()]


def test_compilers_work_ahead_of_a_card_but_not_further_than_it_can_soon_take() -> None:
    measured, compiled = threading.Event(), threading.Semaphore(0)
    crew = Crew[str]([Card("a", lambda _: measured.wait(SLOW_S) and None)], [CompilerOf(lambda _: compiled.release())])
    with crew:
        begun = 0
        for what in ("first", "second", "third"):  # one at the card, one compiled and waiting for it
            while not crew.free and begun < 2:
                assert crew.first() is None
            if crew.free:
                crew.begin(what, work, candidate())
                begun += 1
                assert compiled.acquire(timeout=SLOW_S)
        while len(crew.working) == 2 and crew.free:
            assert crew.first() is None
        assert (begun, crew.free) == (2, False)
        measured.set()
        done = list(all_of(crew))
    assert [one.what for one in done] == ["first", "second"]
    assert all(one.ahead[0].compiled == 1 for one in done)


def test_a_compiler_that_dies_leaves_the_candidate_to_its_evaluation() -> None:
    def dies(_: Candidate) -> None:
        raise CrashError("the process died.", stage="compile")

    with Crew[str]([Card("a")], [CompilerOf(dies)]) as crew:
        crew.begin("it", work, candidate())
        (done,) = all_of(crew)
    assert done.ahead == ()
    assert done.future.result().status == "complete"


@pytest.mark.parametrize("raised", [TimeUp("compile"), ToolchainError("the compiler is gone.")])
def test_what_ends_a_compile_ahead_is_the_result_and_costs_nobody_else_anything(raised: Exception) -> None:
    measured = threading.Event()
    compiler = CompilerOf(lambda _: (_ for _ in ()).throw(raised))
    with Crew[str]([Card("a", lambda _: measured.wait(SLOW_S) and None)], [compiler]) as crew:
        crew.begin("at the card", work)
        crew.begin("in the compiler", work, candidate())
        done = crew.first()
        assert done is not None
        assert (done.what, crew.working, crew.free) == ("in the compiler", ("at the card",), True)
        with pytest.raises(type(raised), match=str(raised)):
            done.future.result()
        measured.set()
        assert [one.future.result().status for one in all_of(crew)] == ["complete"]


def test_every_compile_that_ends_so_is_told_even_where_nothing_else_is_in_flight() -> None:
    together = threading.Barrier(2, timeout=SLOW_S)

    def time_up(_: Candidate) -> None:
        together.wait()
        raise TimeUp("compile")

    with Crew[str]([Card("a")], [CompilerOf(time_up), CompilerOf(time_up)]) as crew:
        crew.begin("first", work, candidate())
        crew.begin("second", work, candidate())
        assert sorted(done.what for done in all_of(crew)) == ["first", "second"]
        assert not crew.working


def test_a_card_that_is_set_aside_gets_nothing_more_and_the_last_one_stays() -> None:
    cards = [Card("a"), Card("b")]
    with Crew[str](cards) as crew:
        assert cards[0].place is not None
        assert cards[1].place is not None
        assert crew.set_aside(cards[0].place)
        assert not crew.set_aside(cards[0].place)
        assert not crew.set_aside(cards[1].place)
        assert not crew.set_aside(Place(host="here", card="of nobody"))
        for what in ("first", "second"):
            crew.begin(what, work)
            (done,) = all_of(crew)
            assert done.future.result().started_at == "on b"


def test_a_card_that_is_set_aside_while_it_works_gets_nothing_after_that() -> None:
    with Crew[str]([Card("a"), Card("b")]) as crew:
        crew.begin("it", work)
        assert crew.set_aside(Place(host="here", card="a"))
        assert [done.future.result().started_at for done in all_of(crew)] == ["on a"]
        crew.begin("next", work)
        assert [done.future.result().started_at for done in all_of(crew)] == ["on b"]
        crew.begin("after", work)
        assert not crew.free
        assert [done.future.result().started_at for done in all_of(crew)] == ["on b"]


def test_whoever_is_bound_to_no_card_cannot_be_set_aside() -> None:
    seats = [Card("a"), Card("b")]
    for seat in seats:
        seat.place = None
    with Crew[str](seats) as crew:
        assert not crew.set_aside(Place(host="here", card="a"))
        crew.begin("first", work)
        crew.begin("second", work)
        assert len({done.future.result().started_at for done in all_of(crew)}) == 2
