"""How far a front and a recommendation rest on a modelled clock, and which measurements on a device would tell.

Every candidate is judged under the same clock, clock after clock: which of two is faster does not depend on what both
have in common. A statement is that a candidate is on the front, or that it is the best in the leading objective. An
unknown that changes one of them where it alone is moved is worth measuring first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.values.clocks.costs import Floats
from workbench.values.clocks.ensemble import MEMBERS, SEED, Clocks, draws, ensemble, moved
from workbench.values.clocks.figures import clock_of, figures_of
from workbench.values.clocks.robustness import MicroBenchmark, Robustness, Share
from workbench.values.clocks.statement import CallCosts, ModelledClock, parameters_of
from workbench.values.measurement import Measurement
from workbench.values.objectives import METRICS, Constraint, Objective

_TIE = 1e-6
"""Of the leading objective, relative: files of one structure take equal times under every clock."""
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
    answers = np.concatenate([front, best])
    share_of = answers[:, 1:].mean(axis=1)
    return Robustness(
        clock=clock.name,
        clocks=front.shape[1] - 1,
        lead=lead,
        shares=tuple(shares),
        certainty=float(np.maximum(share_of, 1 - share_of).min()),
        benchmarks=() if (answers == answers[:, :1]).all() else _benchmarks(contenders, question, clock),
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


def _benchmarks(
    contenders: Sequence[Contender], question: _Question, clock: ModelledClock
) -> tuple[MicroBenchmark, ...]:
    """The unknowns that change an answer where each is moved alone, the most telling first; where none does, as only
    several together do, all that price anything."""
    priced = parameters_of(call for one in contenders for call in _calls(one.measurement))
    drawn = draws(clock, MEMBERS, SEED)
    found = []
    for place, unknown in enumerate(clock.unknowns):
        if not priced & set(unknown.moves):
            continue
        alone = np.zeros_like(drawn)
        alone[place] = drawn[place]
        share = np.concatenate(question.answers(contenders, moved(clock, alone)))[:, 1:].mean(axis=1)
        turned = float(np.minimum(share, 1 - share).max())
        told = MicroBenchmark(
            unknown=unknown.name, about=unknown.about, command=unknown.settled_by, changed_under=turned
        )
        found.append(told)
    telling = [one for one in found if one.changed_under] or found
    return tuple(sorted(telling, key=lambda one: -one.changed_under))


def _calls(measurement: Measurement) -> Iterator[CallCosts]:
    """Everything of it that a clock prices."""
    if measurement.latency is not None and measurement.latency.modelled is not None:
        yield from measurement.latency.modelled.candidate
        yield from measurement.latency.modelled.baseline
    if measurement.service is not None and measurement.service.modelled is not None:
        yield from measurement.service.modelled.calls
