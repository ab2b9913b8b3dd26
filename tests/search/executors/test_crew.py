"""Several evaluations at once: cards, compilers ahead of them, and cards that are lost or not to be trusted."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.evaluations import candidate, evaluation
from workbench.search.executors import CardLost, Crew, Done, Executor, Task
from workbench.values.candidate import Candidate
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.results import Evaluation, Place, StageTiming

SLOW_S = 30.0
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


def lost(name: str, *, comes_back: bool) -> Callable[[str], None]:
    def does(on: str) -> None:
        if on in name:
            raise CardLost(f"Card {on} is gone.", stage="latency_full", comes_back=comes_back)

    return does


def test_what_a_lost_card_was_at_is_measured_on_another() -> None:
    with Crew[str]([Card(name, lost("a", comes_back=False)) for name in "ab"]) as crew:
        crew.begin("first", work)
        crew.begin("second", work)
        done = list(all_of(crew))
        assert {one.future.result().started_at for one in done} == {"on b"}
        assert {one.what for one in done} == {"first", "second"}


def test_a_candidate_that_loses_several_cards_is_blamed_itself() -> None:
    with Crew[str]([Card(name, lost("ab", comes_back=True)) for name in "ab"]) as crew:
        crew.begin("poison", work)
        (done,) = all_of(crew)
        with pytest.raises(CrashError, match=r"2 cards were lost at it: Card [ab] is gone\.; Card [ab] is gone"):
            done.future.result()
        assert crew.free  # both come back


def test_without_a_card_the_sweep_ends_and_says_so() -> None:
    with Crew[str]([Card("a", lost("a", comes_back=False))]) as crew:
        crew.begin("it", work)
        with pytest.raises(ToolchainError, match="No card is left"):
            crew.first()


def test_a_card_that_is_set_aside_gets_nothing_more_and_the_last_one_stays() -> None:
    cards = [Card("a"), Card("b")]
    with Crew[str](cards) as crew:
        assert cards[0].place is not None
        assert cards[1].place is not None
        assert crew.set_aside(cards[0].place)
        assert not crew.set_aside(cards[0].place)
        assert not crew.set_aside(cards[1].place)
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
