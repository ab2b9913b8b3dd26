"""What comes next in a sweep: a query over what was evaluated and the queue of what was asked for, its only state.

A run may be killed at any moment, as often as it likes, and the sweep still asks what it would have asked undisturbed:
who was asked for and has no evaluation that stands comes first, in the order of asking, then who begins every search,
then a proposal, which is drawn from the seed and the number of those before, never from the state of a generator that
died with its process.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.search.first_look import INT8_FIRST, first_int8
from workbench.search.outlook import proposal
from workbench.space.space import (
    EXACT_LIMIT,
    Assignment,
    Forbidden,
    assignment_of,
    build,
    combinations,
    draw,
    raw_size,
    suggest,
)
from workbench.values.candidate import Candidate
from workbench.values.results import Evaluation

MAX_REPEATS = 15
"""So many proposals in a row that are known or forbidden, and an unseen candidate is drawn."""
_SEED_STEP = 7919


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate that is asked for, by which choices of the space, and why, in a short sentence."""

    candidate: Candidate
    assignment: Assignment
    why: str


class Queue:
    """Who was asked for, in that order, and how often each took its evaluation process down; kept in the journal."""

    def __init__(
        self, experiment: Experiment, first: Sequence[tuple[str, Assignment]], journal: Journal | None = None
    ) -> None:
        """Args:
        first: why and what, of those that begin (`beginning`).
        journal: None where nothing is kept.
        """
        self.experiment, self._journal, self._keeping = experiment, journal, threading.Lock()
        kept = {} if journal is None else journal.queue()
        self.trials: dict[str, tuple[Assignment, str]] = {
            i: (choices, why) for i, choices, why in kept.get("trials", ())
        }
        self.crashes: dict[str, int] = dict(kept.get("crashes", {}))
        self._passed = int(kept.get("passed", 0))  # proposals that were known or forbidden
        self._looks: dict[str, float] = dict(kept.get("looks", {}))
        self._first, self._alike = _different(experiment, first)
        self._order()

    def looked_at(self, candidate_id: str, speedup: float) -> None:
        """A first look's speed-up, 0 where it failed: the faster one is tried before the other."""
        self._looks[candidate_id] = speedup
        self._order()
        self._keep()

    def _order(self) -> None:
        def place(trial: Trial) -> tuple[bool, bool, float]:
            look = self._looks.get(trial.candidate.id)
            return trial.candidate.id != self.experiment.baseline.id, look is None, -(look or 0.0)

        self._first.sort(key=place)

    def add(self, candidate: Candidate) -> bool:
        """Have a candidate asked for; False where the space has no choices for it."""
        if candidate.id not in self.trials and (found := assignment_of(self.experiment.space, candidate)) is not None:
            self.trials[candidate.id] = (found, "an earlier run asked for it")
        return candidate.id in self.trials

    def count_crashes(self, candidate_id: str, count: int) -> None:
        self.crashes[candidate_id] = count
        self._keep()

    def open(self, known: Collection[str], in_flight: Collection[str] = ()) -> list[str]:
        """Who was asked for and is neither known nor in flight, oldest first."""
        return [i for i in self.trials if i not in known and i not in in_flight]

    def next(self, known: Mapping[str, Evaluation], in_flight: Collection[str] = ()) -> Trial | None:
        """A candidate without an evaluation that stands; None when there is none left.

        Args:
            known: evaluations that stand.
            in_flight: ids of the candidates that are being evaluated.
        """
        taken = {*known, *in_flight}
        if waiting := self.open(taken):
            choices, why = self.trials[waiting[0]]
            return Trial(candidate=build(self.experiment.space, choices), assignment=choices, why=why)
        if (first := next((trial for trial in self._first if trial.candidate.id not in taken), None)) is not None:
            return self._asked(first)
        for _ in range(MAX_REPEATS):
            choices, why = self._proposed(known, in_flight)
            try:
                candidate = build(self.experiment.space, choices)
            except Forbidden:
                self._passed += 1
                continue
            if candidate.id not in taken:
                return self._asked(Trial(candidate=candidate, assignment=choices, why=why))
            self._passed += 1
            self.trials[candidate.id] = (choices, self.trials.get(candidate.id, (choices, why))[1])
        return None if (last := self._unseen(taken)) is None else self._asked(last)

    def _proposed(self, known: Mapping[str, Evaluation], in_flight: Collection[str]) -> tuple[Assignment, str]:
        told = len(known) + self._alike + self._passed
        seed = self.experiment.seed + _SEED_STEP * (told + len(in_flight))
        if self.experiment.sampler == "auto":
            tried = {i: choices for i, (choices, _) in self.trials.items()}
            if (found := proposal(self.experiment, tried, known, seed, in_flight)) is not None:
                return found
        drawn = random.Random(seed)
        return suggest(self.experiment.space, lambda _, choices: drawn.choice(choices)), "drawn at random"

    def _unseen(self, taken: Collection[str]) -> Trial | None:
        """Any one of a small space, a draw of a large one."""
        space, rng = self.experiment.space, random.Random(self.experiment.seed + len(taken))
        if raw_size(space) <= EXACT_LIMIT:
            every = list(combinations(space))
            rng.shuffle(every)
        else:
            every = [draw(space, rng) for _ in range(EXACT_LIMIT)]
        for choices in every:
            try:
                candidate = build(space, choices)
            except Forbidden:
                continue
            if candidate.id not in taken:
                return Trial(candidate=candidate, assignment=choices, why="drawn at random")
        return None

    def _asked(self, trial: Trial) -> Trial:
        self.trials[trial.candidate.id] = (trial.assignment, trial.why)
        self._keep()
        return trial

    def _keep(self) -> None:
        if self._journal is not None:
            with self._keeping:  # crashes are counted in the threads that wait for them
                trials = [[i, choices, why] for i, (choices, why) in dict(self.trials).items()]
                kept = {"trials": trials, "crashes": dict(self.crashes), "passed": self._passed, "looks": self._looks}
                self._journal.write_queue(kept)


def beginning(experiment: Experiment) -> list[tuple[str, Assignment]]:
    """Why and what, of those who begin every search: the baseline, the best bets on INT8, the presets."""
    presets = [(preset.name, preset.assignment) for preset in experiment.space.presets]
    found: list[tuple[str, Assignment]] = [
        ("the float baseline, which everything is compared with", experiment.baseline_assignment)
    ]
    for name, choices in (*first_int8(experiment), *presets):
        if choices not in [known for _, known in found]:
            found.append((f"preset {name!r} of the space" if name else INT8_FIRST, choices))
    return found


def _different(experiment: Experiment, first: Sequence[tuple[str, Assignment]]) -> tuple[list[Trial], int]:
    """One for each candidate, and how many others were the same."""
    found: dict[str, Trial] = {}
    for why, choices in first:
        with contextlib.suppress(Forbidden):
            candidate = build(experiment.space, choices)
            why = found[candidate.id].why if candidate.id in found else why
            found[candidate.id] = Trial(candidate=candidate, assignment=choices, why=why)
    return list(found.values()), len(first) - len(found)
