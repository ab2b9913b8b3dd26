"""Which cards of a sweep are not to be trusted, by the float baseline that is timed beside every candidate."""

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter_ns

import numpy as np

from tests.evaluations import evaluation
from tests.search.sweeping import Recorder
from workbench.evaluation.bench import Bench
from workbench.evaluation.run_notes import read_set_aside
from workbench.inputs.experiment import Experiment
from workbench.search.cards import suspects
from workbench.search.executors import Task, Workers
from workbench.search.sweep import run_sweep
from workbench.values.results import Evaluation, Place
from workbench.values.reuse import Reuse


def on(card: str, drifts: Sequence[float], host: str = "here") -> list[Evaluation]:
    """Evaluations of one card, each with the baseline's time over its first one."""
    return [
        replace(
            evaluation(threads=1 + number, drift=drift, started_at=f"2026-01-01T00:{number:02d}:00+00:00"),
            place=Place(host=host, card=card),
        )
        for number, drift in enumerate(drifts)
    ]


STEADY = [1.0, 1.01, 0.99, 1.005]


def test_cards_of_which_nothing_is_certain_are_trusted() -> None:
    slower = [1.0, 1.2, 1.4, 1.41, 1.39]
    reused = [replace(e, reuse=(Reuse(kind="latency", key="k", source="x"),)) for e in on("1", [1.3, 1.3, 1.3])]
    for why, seen in (
        ("they agree within noise", [*on("0", STEADY), *on("1", [x * 1.03 for x in STEADY]), *on("2", STEADY)]),
        ("the machine slows down as a whole", [*on("0", slower), *on("1", slower), *on("2", slower)]),
        ("the times were reused", [*on("0", STEADY), *reused, *on("2", STEADY)]),
        ("one measurement is not enough", [*on("0", STEADY), *on("1", [2.0]), *on("2", STEADY)]),
        ("there are no cards", [evaluation(drift=1.0), evaluation(threads=2, drift=3.0)]),
    ):
        assert suspects(seen) == [], why
    for seed in range(5):
        rng = np.random.default_rng(seed)
        cards = [on(str(card), np.exp(rng.normal(0.0, 0.04, 12)).tolist()) for card in range(8)]
        assert suspects([e for card in cards for e in card]) == [], "noise alone"


def test_a_card_that_always_differs_is_named_with_all_that_it_measured() -> None:
    slow = on("1", [1.3, 1.31, 1.29])
    (found,) = suspects([*on("0", STEADY), *slow, *on("2", STEADY)])
    assert found.place == Place(host="here", card="1")
    assert set(found.measured) == {e.candidate.id for e in slow}
    assert found.reason.startswith("the float baseline takes 29% longer on card 1 of here than on its peers; noise")


def test_a_card_that_begins_to_throttle_is_named_with_what_it_measured_since() -> None:
    throttled = on("0", [1.0, 1.01, 1.0, 1.25, 1.26, 1.24])
    (found,) = suspects([*throttled, *on("1", STEADY), *on("2", STEADY)])
    assert set(found.measured) == {e.candidate.id for e in throttled[3:]}
    assert "and did not at first" in found.reason


def test_of_two_cards_that_differ_the_slower_one_is_named() -> None:
    (found,) = suspects([*on("0", STEADY), *on("1", [1.2, 1.21, 1.19])])
    assert found.place.card == "1"
    (found,) = suspects([*on("0", STEADY), *on("0", [1.3, 1.3, 1.3], "there"), *on("1", STEADY)])
    assert found.place == Place(host="there", card="0"), "one name on two hosts is two cards"


class Throttled:
    """An executor that is bound to a card, on which everything takes so many times as long, the baseline too."""

    def __init__(self, bench: Bench, card: str, drift: float) -> None:
        self.bench, self.place, self.drift = bench, Place(host="here", card=card), drift

    def evaluate(self, task: Task, *, until: float | None = None) -> Evaluation:
        found = evaluation(drift=self.drift, started_at=f"2026-01-01T00:00:00.{perf_counter_ns()}+00:00")
        toolchain = self.bench.toolchain(task.candidate)
        return replace(found, candidate=task.candidate, toolchain=toolchain, place=self.place)


def test_a_throttled_card_is_set_aside_and_its_candidates_are_measured_elsewhere(
    question: Experiment, bench: Bench
) -> None:
    recorder = Recorder()
    cards = [Throttled(bench, card, 1.5 if card == "2" else 1.0) for card in "012"]

    end = run_sweep(question, bench, trials=12, listeners=(recorder,), workers=Workers(cards=tuple(cards)))

    found = bench.journal.evaluations()
    (aside,) = end.set_aside
    assert aside == read_set_aside(bench.journal.root)[0]
    assert (aside.place.card, "50% longer" in aside.reason, len(found)) == ("2", True, 12)
    assert all(found[i].place.card != "2" for i in aside.measured_anew)
    assert len(aside.measured_anew) == len(recorder.seen) - 12
