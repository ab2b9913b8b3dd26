"""How far a front and a recommendation rest on a modelled clock, and which measurements on a device would settle them.

Every candidate is judged under the same clock, clock after clock: which of two is faster does not depend on what both
have in common. A statement is that a candidate is on the front, or that it is the best in the leading objective. How
sure a statement would be with some unknowns measured is simulated: a clock is drawn as the truth, its values of these
unknowns are kept, the others are drawn anew given those, and the likelier answer's share is averaged over truths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.values.clocks.costs import Floats
from workbench.values.clocks.ensemble import SEED, Clocks, draws, ensemble, moved, spread
from workbench.values.clocks.figures import clock_of, figures_of
from workbench.values.clocks.robustness import MicroBenchmark, Robustness, Share
from workbench.values.clocks.statement import CallCosts, ModelledClock, parameters_of
from workbench.values.measurement import Measurement
from workbench.values.objectives import METRICS, Constraint, Objective

WANTED = 0.95
_TRUTHS, _GIVEN = 32, 32
"""Clocks taken for the truth, and clocks drawn given what is known of each."""
_TIE = 1e-6
"""Of the leading objective, relative: files of one structure take equal times under every clock."""
_MOST_JUDGED = 60
"""Candidates whose statements are looked at one by one, the most frequent on the front."""
Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A complete candidate.

    Attributes:
        numbers: of `metrics`, under the clock that is run.
    """

    id: str
    measurement: Measurement
    numbers: Mapping[str, float]


def robustness(
    contenders: Sequence[Contender],
    objectives: Sequence[Objective],
    constraints: Sequence[Constraint],
    *,
    lead: str,
    recommended: str = "",
) -> Robustness | None:
    """Judge the contenders under every clock that may be right; deterministic.

    Args:
        lead: the objective that decides whom to recommend.
        recommended: taken where several are equally good in it.

    Returns:
        None where nobody's times are modelled with stated costs, or not all by one clock.
    """
    known = [clock for one in contenders if (clock := clock_of(one.measurement)) is not None]
    if not known or len(known) < len(contenders) or any(clock != known[0] for clock in known):
        return None
    clock = known[0]
    question = _Question(objectives=tuple(objectives), constraints=tuple(constraints), lead=lead, first=recommended)
    front, best = question.answers(contenders, ensemble(clock))
    shares = sorted(
        (
            Share(candidate_id=one.id, on_front=float(on.mean()), best=float(leads.mean()))
            for one, on, leads in zip(contenders, front[:, 1:], best[:, 1:], strict=True)
            if on.any()
        ),
        key=lambda share: (-share.on_front, -share.best, share.candidate_id),
    )
    kept = {share.candidate_id for share in shares[:_MOST_JUDGED]}
    # who is on the front under no clock dominates nobody who is on it
    judged = [one for one in contenders if one.id in kept]
    certainty = _certainty(np.concatenate([front[:, 1:], best[:, 1:]]))
    return Robustness(
        clock=clock.name,
        clocks=front.shape[1] - 1,
        lead=lead,
        shares=tuple(shares),
        certainty=certainty[0],
        wanted=WANTED,
        benchmarks=() if certainty[0] >= WANTED else _benchmarks(judged, question, clock),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    lead: str
    first: str

    def answers(self, contenders: Sequence[Contender], clocks: Clocks) -> tuple[Truths, Truths]:
        """[contenders, clocks] twice: on the front; best in the leading objective."""
        count = len(next(iter(clocks.prices.values())))
        figures = [figures_of(one.measurement, clocks) for one in contenders]

        def values(metric: str) -> Floats:
            """[contenders, clocks]; NaN where it is not known."""
            return np.stack(
                [
                    own[metric] if metric in own else np.full(count, one.numbers.get(metric, np.nan))
                    for one, own in zip(contenders, figures, strict=True)
                ]
            )

        able = np.ones((len(contenders), count), dtype=bool)
        for constraint in self.constraints:
            reached, sign = values(constraint.metric), 1 if constraint.known.direction == "minimize" else -1
            able &= sign * (reached - constraint.limit) <= 0  # false for NaN
        names = dict.fromkeys([self.lead, *(o.metric for o in self.objectives)])
        costs = {name: _cost(values(name), name) for name in names}
        for metric in (o.metric for o in self.objectives):
            able &= np.isfinite(costs[metric])
        return _front([costs[o.metric] for o in self.objectives], able), self._best(costs[self.lead], able, contenders)

    def _best(self, lead: Floats, able: Truths, contenders: Sequence[Contender]) -> Truths:
        """One in each clock that has anybody able."""
        costs = np.where(able, lead, np.inf)
        least = costs.min(axis=0)
        tied = able & (costs <= least + _TIE * np.abs(least))
        ids = [one.id for one in contenders]
        chosen: Truths = np.zeros_like(tied)
        for place in sorted(range(len(ids)), key=lambda place: (ids[place] != self.first, ids[place])):
            chosen[place] = tied[place] & ~chosen.any(axis=0)
        return chosen


def _cost(values: Floats, metric: str) -> Floats:
    return np.negative(values) if METRICS[metric].direction == "maximize" else values


def _front(costs: Sequence[Floats], able: Truths) -> Truths:
    """[contenders, clocks] able, and nobody able is at least as good in all and better in one."""
    found = able.copy()
    for place in range(len(able)):
        as_good, better = able.copy(), np.zeros_like(able)
        for own in costs:
            as_good &= own <= own[place]
            better |= own < own[place]
        found[place] &= ~(as_good & better).any(axis=0)
    return found


def _benchmarks(judged: Sequence[Contender], question: _Question, clock: ModelledClock) -> tuple[MicroBenchmark, ...]:
    """Greedily, the unknown that makes the statements surest next to those before it; as long as one does at all."""
    priced = parameters_of(call for one in judged for call in _calls(one.measurement))
    telling = [place for place, unknown in enumerate(clock.unknowns) if priced & set(unknown.moves)]
    chosen: list[int] = []
    found: list[MicroBenchmark] = []
    reached = _known_certainty(judged, question, clock, [])
    while reached[0] < WANTED and len(chosen) < len(telling):
        left = [place for place in telling if place not in chosen]
        tried = {place: _known_certainty(judged, question, clock, [*chosen, place]) for place in left}
        best = max(left, key=lambda place: (*tried[place], -place))
        if tried[best] <= reached:
            break
        chosen.append(best)
        reached = tried[best]
        unknown = clock.unknowns[best]
        found.append(
            MicroBenchmark(unknown=unknown.name, about=unknown.about, command=unknown.settled_by, certainty=reached[0])
        )
    return tuple(found)


def _calls(measurement: Measurement) -> Iterator[CallCosts]:
    """Everything of it that a clock prices."""
    if measurement.latency is not None and measurement.latency.modelled is not None:
        yield from measurement.latency.modelled.candidate
        yield from measurement.latency.modelled.baseline
    if measurement.service is not None and measurement.service.modelled is not None:
        yield from measurement.service.modelled.calls


def _known_certainty(
    judged: Sequence[Contender], question: _Question, clock: ModelledClock, known: Sequence[int]
) -> tuple[float, float]:
    """(of the least certain statement, the mean of all) once the unknowns at these places are known."""
    clocks = moved(clock, _given(clock, known))
    answers = np.concatenate(question.answers(judged, clocks))[:, 1:]
    return _certainty(answers.reshape(len(answers), _TRUTHS, _GIVEN))


def _certainty(answers: Truths) -> tuple[float, float]:
    """(of the least certain statement, the mean) of [statements, (truths,) clocks]: its likelier answer's share."""
    share = answers.mean(axis=-1)
    sure = np.maximum(share, 1 - share).reshape(len(answers), -1).mean(axis=1)
    return float(sure.min()), float(sure.mean())


def _given(clock: ModelledClock, known: Sequence[int]) -> Floats:
    """[unknowns, 1 + truths · given] draws: of each truth, those that agree with it in what is known.

    Which centre a truth is about is not known either: its values of the known unknowns make one likelier.
    """
    truths = draws(clock, _TRUTHS, SEED)[:, 1:]
    fresh = draws(clock, _TRUTHS * _GIVEN, SEED + 1)[:, 1:].reshape(-1, _TRUTHS, _GIVEN)
    centres = np.log([unknown.data_sheet for unknown in clock.unknowns])
    own = np.maximum([spread(unknown) for unknown in clock.unknowns], 1e-9)
    odds = np.zeros(_TRUTHS)
    for place in known:
        about = (truths[place] - np.array([[0.0], [centres[place]]])) / own[place]
        odds += (about[0] ** 2 - about[1] ** 2) / 2
    on_sheet = 1 / (1 + np.exp(-np.clip(odds, -50, 50)))
    drawn_on_sheet = np.arange(_GIVEN) % 2  # as `draws` alternates: what they are about is replaced by what is likely
    wanted = (np.arange(_GIVEN) + 0.5) / _GIVEN < on_sheet[:, None]
    logs = fresh + centres[:, None, None] * (wanted[None] - drawn_on_sheet)
    for place in known:
        logs[place] = truths[place][:, None]
    return np.concatenate([np.zeros((len(centres), 1)), logs.reshape(len(centres), -1)], axis=1)
