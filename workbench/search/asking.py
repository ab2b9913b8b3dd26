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
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from statistics import median

import numpy as np

from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment
from workbench.search.first_look import INT8_FIRST, first_int8
from workbench.search.front import front_of, predicted_numbers, with_baseline_drop
from workbench.search.parts import BESIDE_RUNS, FEWEST, Costs, Ranking, Seen, logged, rank
from workbench.search.surrogate import Codes, axes_of
from workbench.space.space import (
    EXACT_LIMIT,
    Assignment,
    Forbidden,
    SearchSpace,
    assignment_of,
    build,
    combinations,
    complete,
    draw,
    raw_size,
    suggest,
)
from workbench.values.candidate import Candidate
from workbench.values.dimension import Scalar
from workbench.values.results import Evaluation

MAX_REPEATS = 15
"""So many proposals in a row that are known or forbidden, and an unseen candidate is drawn."""
_SEED_STEP = 7919


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
        self._looks: dict[str, float] = dict(kept.get("looks", {}))
        self._first: dict[str, tuple[Assignment, str]] = {}
        for why, choices in first:
            with contextlib.suppress(Forbidden):
                self._first.setdefault(build(experiment.space, choices).id, (choices, why))

    def looked_at(self, candidate_id: str, speedup: float) -> None:
        """A first look's speed-up, 0 where it failed: the faster one is tried before the other."""
        self._looks[candidate_id] = speedup
        self._keep()

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

    def next(self, known: Mapping[str, Evaluation], in_flight: Collection[str] = ()) -> tuple[Candidate, str] | None:
        """A candidate without an evaluation that stands, and why, in a short sentence; None when there is none left.

        Args:
            known: evaluations that stand.
            in_flight: ids of the candidates that are being evaluated.
        """
        taken = {*known, *in_flight}
        if waiting := self.open(taken):
            choices, why = self.trials[waiting[0]]
            return build(self.experiment.space, choices), why
        for choices, why in self._who_may_come(known, in_flight):
            with contextlib.suppress(Forbidden):
                candidate = build(self.experiment.space, choices)
                if candidate.id not in taken:
                    self.trials[candidate.id] = choices, why
                    self._keep()
                    return candidate, why
        return None

    def _who_may_come(
        self, known: Mapping[str, Evaluation], in_flight: Collection[str]
    ) -> Iterator[tuple[Assignment, str]]:
        def place(candidate_id: str) -> tuple[bool, bool, float]:
            look = self._looks.get(candidate_id)
            return candidate_id != self.experiment.baseline.id, look is None, -(look or 0.0)

        yield from (self._first[i] for i in sorted(self._first, key=place))
        tried = {i: choices for i, (choices, _) in self.trials.items()}
        space, drawn, seed = self.experiment.space, random.Random(), self.experiment.seed
        for number in range(MAX_REPEATS):
            at, found = seed + _SEED_STEP * (MAX_REPEATS * len(tried) + number), None
            if self.experiment.sampler == "auto":
                found = proposal(self.experiment, tried, known, at, in_flight)
            drawn.seed(at)
            yield found or (suggest(space, lambda _, several: drawn.choice(several)), "drawn at random")
        # any one of a small space, a draw of a large one
        drawn.seed(seed + len({*known, *in_flight}))
        every: list[Assignment] = []
        if raw_size(space) <= EXACT_LIMIT:
            every += combinations(space)
            drawn.shuffle(every)
        else:
            every += (draw(space, drawn) for _ in range(EXACT_LIMIT))
        yield from ((choices, "drawn at random") for choices in every)

    def _keep(self) -> None:
        if self._journal is not None:
            with self._keeping:  # crashes are counted in the threads that wait for them
                trials = [[i, choices, why] for i, (choices, why) in dict(self.trials).items()]
                kept = {"trials": trials, "crashes": dict(self.crashes), "looks": self._looks}
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


# --- what is measured next by everything a sweep knows ---------------------------------------------------------------

_POOL = 4000
"""Assignments that are looked at for one proposal: all of a small space, else drawn ones and the front's neighbours."""
_KEPT = 4
"""Pools of so many spaces are kept from one proposal to the next: drawing one takes as long as the rest."""
_SURELY = 0.2
"""A class that is new with less probability is said to be known."""
_NUMERICS = ("calibrate", "lower", "accuracy_subset", "accuracy_full")
_TIME = ("latency_short", "latency_full", "service")


_File = tuple[object, int, int]
"""Everything that decides it but its shape; batch and length."""


def proposal(
    experiment: Experiment,
    tried: Mapping[str, Assignment],
    known: Mapping[str, Evaluation],
    seed: int,
    in_flight: Collection[str] = (),
) -> tuple[Assignment, str] | None:
    """The candidate with the greatest expected gain for its expected cost, and what is expected of it; none that is
    known, forbidden or in flight. Looked at are all candidates of a small space, of a large one some and what is near
    its front. None where too little is known yet, or nothing is left.

    Deterministic for a seed and what is known.

    Args:
        tried: candidate id → its choices, of all that was asked for, in that order: sums depend on it.
        in_flight: ids of what is being measured now: it is taken to come out as it is expected to (the "kriging
            believer" of Ginsbourger, Le Riche and Carraro, "Kriging is well-suited to parallelize optimization", 2010),
            so that nobody measures nearly the same meanwhile.
    """
    space = experiment.space
    seen = [_seen(experiment, assignment, known[i]) for i, assignment in tried.items() if i in known]
    if len(seen) < FEWEST:
        return None
    fronts = [tried[i] for i in sorted(e.candidate.id for e in front_of(experiment, known)) if i in tried]
    drawn, codes = _drawn(space, experiment.seed)
    near = _neighbours(space, fronts)
    pool, axes = [*drawn, *near], axes_of(space)
    costs = _costs(known)
    by_runs = any(e.compiled or e.shared for e in known.values())
    if by_runs:
        made = {file for e in known.values() if e.failure is None for file in _compiled_files(e.candidate)}
        costs = replace(costs, runs=lambda place: _runs(space, pool[place], made))
    asked = experiment.objectives, experiment.constraints, axes
    if flying := [tried[i] for i in in_flight if i in tried]:
        expected = rank(*asked, axes.codes(flying), seen, Costs(), np.random.default_rng(seed))
        seen += [_believed(expected, place, assignment) for place, assignment in enumerate(flying)]
    found = rank(*asked, np.vstack([codes, axes.codes(near)]), seen, costs, np.random.default_rng(seed))
    for place in found.order:
        try:
            candidate_id = build(space, pool[place]).id
        except Forbidden:
            continue
        if candidate_id not in known and candidate_id not in in_flight:
            modelled = any(e.toolchain.emulated for e in known.values())
            return pool[place], _words(experiment, found, int(place), by_runs=by_runs, modelled=modelled)
    return None


def _runs(space: SearchSpace, assignment: Assignment, made: AbstractSet[_File]) -> int:
    """Files that no candidate before has had compiled, by what the settings say."""
    with contextlib.suppress(Forbidden):
        return len(_compiled_files(build(space, assignment)) - made)
    return 0  # it is passed over


def _compiled_files(candidate: Candidate) -> frozenset[_File]:
    """Of a target that compiles a file for each shape: what tells its files apart."""
    settings = candidate.compile
    batches, lengths = settings.compiled_batches(), settings.compiled_lengths()
    if not settings.one_file_a_shape():
        return frozenset({(candidate.id, 0, 0)} if batches or lengths else ())
    alone = settings.for_shapes(batches[:1], lengths[-1:])
    same = (candidate.target, candidate.precision, candidate.quantization, alone)
    return frozenset((same, batch, length) for batch in batches for length in lengths or (0,))


def _words(experiment: Experiment, found: Ranking, place: int, *, by_runs: bool, modelled: bool) -> str:
    """Args: by_runs: costs are runs of a compiler, not seconds."""
    words = []
    for metric in dict.fromkeys(o.metric for o in experiment.objectives):
        if metric in found.predicted:
            mean, deviation = (float(each[place]) for each in found.predicted[metric])
            low, high = mean - 1.96 * deviation, mean + 1.96 * deviation
            if logged(metric):
                low, high = float(np.exp(low)), float(np.exp(high))
            words.append(f"{metric} {low:.4g} to {high:.4g}")
    shares = {"answers": found.new_numerics[place], "times": found.new_time[place]}
    known = [name for name, share in shares.items() if share <= _SURELY]
    cost = float(found.cost[place])
    priced = f"about {max(cost - BESIDE_RUNS, 0):.0f} runs of the compiler" if by_runs else f"about {cost:.0f} s"
    expected = " and ".join(words) or "to keep the limits"
    reused = f" ({' and '.join(known)} known from others)" if known else ""
    return f"expected {expected}{' (modelled)' if modelled else ''} for {priced}{reused}"


# --- of what it is made -----------------------------------------------------------------------------------------


_Pool = tuple[list[dict[str, Scalar]], Codes]
_pools: dict[tuple[str, int], _Pool] = {}


def _drawn(space: SearchSpace, seed: int) -> _Pool:
    """All of a small space, some of a large one; the same for every proposal of a sweep."""
    key = (space.digest, seed)
    if key not in _pools:
        rng = random.Random(seed)
        found = combinations(space) if raw_size(space) <= _POOL else (draw(space, rng) for _ in range(_POOL))
        while len(_pools) >= _KEPT:
            del _pools[next(iter(_pools))]
        allowed = [a for a in found if not any(rule.matches(a) for rule in space.forbid)]
        _pools[key] = (allowed, axes_of(space).codes(allowed))
    return _pools[key]


def _neighbours(space: SearchSpace, fronts: Sequence[Assignment]) -> list[dict[str, Scalar]]:
    """What differs from a member of the front in one choice, where not all of the space is looked at anyway."""
    if raw_size(space) <= _POOL:
        return []
    found = [
        complete(space, {**member, p.name: choice})
        for member in fronts
        for p in space.parameters
        if p.name in member
        for choice in p.choices
        if choice != member[p.name]
    ]
    return [a for a in found if not any(rule.matches(a) for rule in space.forbid)]


def _seen(experiment: Experiment, assignment: Assignment, evaluation: Evaluation) -> Seen:
    predicted, errors = predicted_numbers(evaluation)
    numbers = with_baseline_drop(experiment, evaluation) | predicted
    return Seen(
        assignment=assignment,
        numbers=numbers,
        errors=_errors_of(evaluation, numbers) | errors,
        numerics=_class_of(evaluation, ("accuracy",)),
        time=_class_of(evaluation, ("curve", "latency")),
        failed=evaluation.failure is not None and not evaluation.failure.transient,
    )


def _believed(expected: Ranking, place: int, assignment: Assignment) -> Seen:
    """A candidate in flight, as if it had come out as it is expected to; of classes of its own, which nobody knows."""
    numbers, errors = {}, {}
    for metric, (mean, deviation) in expected.predicted.items():
        value = float(np.exp(mean[place])) if logged(metric) else float(mean[place])
        numbers[metric] = value
        errors[metric] = float(deviation[place]) * (value if logged(metric) else 1.0)
    own = f"in flight {place}"
    return Seen(assignment=assignment, numbers=numbers, errors=errors, numerics=own, time=own)


def _class_of(evaluation: Evaluation, kinds: tuple[str, ...]) -> str:
    """Its equivalence key of the first of these kinds; empty where it has none."""
    keys = {reuse.kind: reuse.key for reuse in evaluation.reuse}
    return next((keys[kind] for kind in kinds if kind in keys), "")


_TIMES = ("speedup", "latency_", "throughput_", "service_")


def _errors_of(evaluation: Evaluation, numbers: Mapping[str, float]) -> dict[str, float]:
    """Standard errors of the figures that have intervals of 95 %.

    None of accuracies: what is scored on the split's samples comes again, and the front is decided by these samples
    alone. None of modelled times: their intervals are those of what the timing model is off by, the same for all.
    """
    latency = evaluation.measurement.latency
    modelled = latency is not None and latency.modelled is not None
    left_out = ("accuracy", *_TIMES) if modelled else ("accuracy",)
    found = {
        name: (numbers[f"{name}_high"] - numbers[f"{name}_low"]) / 3.92
        for name in numbers
        if f"{name}_low" in numbers and f"{name}_high" in numbers and not name.startswith(left_out)
    }
    if latency is not None and not modelled:
        relative = (latency.p50_ms.high - latency.p50_ms.low) / latency.p50_ms.value / 3.92
        for name in ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "throughput_per_s"):
            if name in numbers:
                found[name] = relative * numbers[name]
    return found


def _costs(known: Mapping[str, Evaluation]) -> Costs:
    """Median seconds of what complete candidates took, stage by stage, where they took it themselves."""
    done = [e for e in known.values() if e.status == "complete"]
    if not done:
        return Costs()

    def own(stages: tuple[str, ...]) -> float:
        """Of those that reused nothing: the half that took longest, since reuse leaves next to no time."""
        found = sorted(sum(s.seconds for s in e.stages if s.stage in stages and not s.cached) for e in done)
        return median(found[len(found) // 2 :])

    numerics, timed = own(_NUMERICS), own(_TIME)
    rest = (sum(s.seconds for s in e.stages if s.stage not in (*_NUMERICS, *_TIME)) for e in done)
    return Costs(each_s=max(median(rest), 0.1), numerics_s=numerics, time_s=timed)
