"""What each change brings a fleet: today's, then with length bins, batching, INT8 and front ends, each on top of those
before it.

    steps = what_ifs(…)                 # one card at its highest rate, step by step
    fleet = fleet_plan(steps, …)      # cards, servers, power, and what a lost server means

A step rests on a candidate that the sweep timed, at settings that are simulated on its batch curve. Where the candidate
between two steps was not timed, the step says so and its effect is in the next one; nothing is assumed of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from workbench.prediction.highest_rate import OneCard, on_its_curve, rate_of
from workbench.targets import described
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError
from workbench.values.evidence import Evidence
from workbench.values.measurement import ServiceResult
from workbench.values.results import Evaluation
from workbench.values.service import ServiceChoices, ServiceSettings
from workbench.values.setting_groups import Group, between, differing_groups

WhatIf = Literal["today", "bins", "batching", "model", "front ends"]
Finding = Literal["", "not timed", "keeps no limit", "already so", "not chosen", "not measured"]
"""Why a step has no rate of its own: its candidate was not timed; no rate keeps the limit; nothing changes, since it is
so already; the chosen candidate is the float baseline; what several front ends cost was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One card after a change, at the highest rate that keeps the limit on P99.

    Attributes:
        groups: of settings that differ from today's, in the step 'model'.
        held: what-ifs before it that were not timed apart, so that what they bring is in this rate too.
        candidate_id: that was timed, or that would have to be.
        quantized: whether it computes in INT8.
        rate_per_s: None where `finding` says why.
        evidence: of the rate: 'predicted' from measured times of calls, 'modelled' from an emulator's.
        power_w: of a card, measured while calls of this candidate ran back to back; None where it was not.
    """

    what_if: WhatIf
    candidate_id: str
    settings: ServiceSettings | None = None
    rate_per_s: float | None = None
    front_ends: int = 1
    groups: tuple[Group, ...] = ()
    held: tuple[WhatIf, ...] = ()
    quantized: bool = False
    finding: Finding = ""
    evidence: Evidence | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A candidate that the sweep timed: its evaluation, one card of it, and what its service may be told."""

    evaluation: Evaluation
    card: OneCard
    choices: ServiceChoices


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What runs today, as its owner says it.

    Attributes:
        cards: that run today; None where nobody said it.
        streams_per_card: that one card of them carries.
    """

    cards: int | None = None
    streams_per_card: float | None = None
    cards_per_server: int = 8

    def __post_init__(self) -> None:
        for name in ("cards", "streams_per_card", "cards_per_server"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{value} is not positive.", key=name)

    @property
    def streams(self) -> float | None:
        if self.cards is None or self.streams_per_card is None:
            return None
        return self.cards * self.streams_per_card


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """Requests that go before those of the classes after it. Attributes: share: of all requests."""

    name: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStep:
    """The fleet after a step.

    Attributes:
        gain: rate of a card over that of the last step before it that has one.
        streams_per_card: where today's is said.
        cards: None where the step has no rate.
        cards_with_spare_server: so many that one server may be lost without more load on a card than before.
        served_with_lost_server: class → share of its requests that the fleet without one server still carries, the
            first classes first; 'all' where there are no classes.
    """

    step: Step
    gain: float | None = None
    streams_per_card: float | None = None
    cards: int | None = None
    servers: int | None = None
    cards_with_spare_server: int | None = None
    served_with_lost_server: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """All steps for one load.

    Attributes:
        basis: 'rate' where the requests per second are known, so that cards follow from a card's rate and a headroom;
            'today' where only the present fleet is: cards are then in proportion to it, and whatever reserve it has
            stays.
        rate_per_s: requests per second; None on the basis 'today'.
    """

    basis: Literal["rate", "today"]
    fleet: Fleet
    p99_ms: float
    headroom: float | None
    rate_per_s: float | None
    classes: tuple[PriorityClass, ...]
    steps: tuple[FleetStep, ...]
    unit: Literal["card", "server process"]
    emulated: bool

    @property
    def last(self) -> FleetStep | None:
        """The last step with a number of cards."""
        return next((each for each in reversed(self.steps) if each.cards is not None), None)


def what_ifs(baseline: Candidate, chosen: Candidate, timed: Mapping[str, Timed]) -> tuple[Step, ...]:
    """From the baseline at today's settings to the chosen candidate at its best ones; deterministic.

    Args:
        timed: by id, candidates with a batch curve; the two ends at least.

    Raises:
        ConfigError: one of the two ends has no batch curve.
    """
    for end in (baseline, chosen):
        if end.id not in timed:
            raise ConfigError(
                f"candidate {end.short_id} has no batch curve.", hint="Sweep with a `service:` section, then again."
            )
    groups = differing_groups(baseline, chosen)
    start, goal = timed[baseline.id], timed[chosen.id]
    today = start.choices.untuned
    steps = [_step("today", start, ServiceChoices.only(today))]
    best = goal.card.asked(None, on_its_curve(goal.choices, goal.card.service))
    bins = (best.best or best.closest).settings.sequence_bins or today.sequence_bins
    lengths = _between(baseline, chosen, groups, ("lengths",))
    if "lengths" in groups or bins != today.sequence_bins:
        steps.append(_at(lengths, timed, "bins", lambda one: ServiceChoices.only(replace(today, sequence_bins=bins))))
    else:
        steps.append(_nothing("bins", lengths))
    batched = _between(baseline, chosen, groups, ("lengths", "batch"))
    steps.append(_at(batched, timed, "batching", lambda one: _batched(one, bins)))
    rest = tuple(group for group in groups if group not in ("lengths", "batch"))
    if rest:
        steps.append(replace(_result("model", goal, best), groups=rest))
    else:
        steps.append(Step(what_if="model", candidate_id=chosen.id, finding="not chosen"))
    if not described(chosen.target).on_host:
        steps.append(_front_ends(goal))
    return tuple(_with_held(steps))


def _with_held(steps: Sequence[Step]) -> Iterator[Step]:
    waiting: tuple[WhatIf, ...] = ()
    for step in steps:
        if step.finding == "not timed":
            waiting += (step.what_if,)
        elif step.rate_per_s is not None:
            step, waiting = replace(step, held=waiting), ()
        yield step


def _between(
    baseline: Candidate, chosen: Candidate, groups: Sequence[Group], wanted: Sequence[Group]
) -> Candidate | None:
    return between(baseline, chosen, [group for group in wanted if group in groups])


def _batched(one: Timed, bins: tuple[int, ...]) -> ServiceChoices:
    return replace(one.choices, sequence_bins=(bins,) if one.choices.sequence_bins else ())


def _at(
    candidate: Candidate | None, timed: Mapping[str, Timed], what_if: WhatIf, choices: Callable[[Timed], ServiceChoices]
) -> Step:
    if candidate is None or candidate.id not in timed:
        return Step(what_if=what_if, candidate_id="" if candidate is None else candidate.id, finding="not timed")
    one = timed[candidate.id]
    return _step(what_if, one, choices(one))


def _step(what_if: WhatIf, one: Timed, choices: ServiceChoices) -> Step:
    return _result(what_if, one, one.card.asked(None, on_its_curve(choices, one.card.service)))


def _result(what_if: WhatIf, one: Timed, found: ServiceResult, front_ends: int = 1) -> Step:
    evaluation = one.evaluation
    device = evaluation.measurement.device
    figures = found.best
    return Step(
        what_if=what_if,
        candidate_id=evaluation.candidate.id,
        settings=(figures or found.closest).settings,
        rate_per_s=None if figures is None else rate_of(figures),
        front_ends=front_ends,
        quantized=evaluation.candidate.quantization.scheme != "none",
        finding="keeps no limit" if figures is None else "",
        evidence="modelled" if one.card.service.curve.clock == "modelled" else "predicted",
        power_w=None if device is None else device.power_w,
    )


def _nothing(what_if: WhatIf, candidate: Candidate | None) -> Step:
    return Step(what_if=what_if, candidate_id="" if candidate is None else candidate.id, finding="already so")


def _front_ends(goal: Timed) -> Step:
    candidate = goal.evaluation.candidate
    if not goal.card.host.front_end_ms:
        return Step(what_if="front ends", candidate_id=candidate.id, finding="not measured")
    found, count = goal.card.with_as_many_front_ends_as_pay(on_its_curve(goal.choices, goal.card.service))
    if count == 1:
        return _nothing("front ends", candidate)
    return _result("front ends", goal, found, count)


def fleet_plan(
    steps: Sequence[Step],
    fleet: Fleet,
    *,
    p99_ms: float,
    unit: Literal["card", "server process"],
    emulated: bool,
    rate_per_s: float | None = None,
    headroom: float = 0.0,
    classes: Sequence[PriorityClass] = (),
) -> FleetPlan:
    """Sizes for every step; pure arithmetic.

    With a rate, cards are `ceil(rate * (1 + headroom) / rate of one card)`. Without, they are in proportion to today's:
    `ceil(today's cards * today's rate of a card / its rate then)`.

    Raises:
        ConfigError: neither a rate nor today's cards are given; today's settings keep no limit, so that nothing is in
            proportion to them; or shares of classes do not add up to 1.
    """
    _check_classes(classes)
    first = steps[0].rate_per_s
    if rate_per_s is None:
        if fleet.cards is None:
            raise ConfigError("neither a rate nor today's cards are known.", key="--current-cards")
        if first is None:
            raise ConfigError(
                f"at today's settings ({steps[0].settings}) no rate keeps a P99 of {p99_ms:g} ms, so nothing can be "
                "said in proportion to today's fleet.",
                key="--p99-ms",
                hint="Raise the limit, or say the load: --qps, or --think-s with --streams-per-card.",
            )
    needed = rate_per_s if rate_per_s is not None else (fleet.cards or 0) * (first or 0.0)
    reserve = headroom if rate_per_s is not None else 0.0
    found: list[FleetStep] = []
    before: float | None = None
    for step in steps:
        found.append(_sized(step, fleet, needed, reserve, classes, before, unit, today=first))
        before = step.rate_per_s or before
    return FleetPlan(
        basis="today" if rate_per_s is None else "rate",
        fleet=fleet,
        p99_ms=p99_ms,
        headroom=None if rate_per_s is None else headroom,
        rate_per_s=rate_per_s,
        classes=tuple(classes),
        steps=tuple(found),
        unit=unit,
        emulated=emulated,
    )


def _sized(
    step: Step,
    fleet: Fleet,
    needed: float,
    reserve: float,
    classes: Sequence[PriorityClass],
    before: float | None,
    unit: str,
    *,
    today: float | None,
) -> FleetStep:
    if step.rate_per_s is None:
        return FleetStep(step=step, served_with_lost_server={})
    a_server = fleet.cards_per_server if unit == "card" else 1
    cards = _ceil(needed * (1 + reserve) / step.rate_per_s)
    left = max(0, cards - a_server) * step.rate_per_s
    streams = fleet.streams_per_card
    return FleetStep(
        step=step,
        gain=None if before is None else step.rate_per_s / before,
        streams_per_card=None if streams is None or today is None else streams * step.rate_per_s / today,
        cards=cards,
        servers=math.ceil(cards / a_server),
        cards_with_spare_server=max(cards, _ceil(needed / step.rate_per_s) + a_server),
        served_with_lost_server=_served(left, needed, classes),
    )


def _served(left: float, needed: float, classes: Sequence[PriorityClass]) -> dict[str, float]:
    found = {}
    for one in classes or (PriorityClass(name="all", share=1.0),):
        asked = needed * one.share
        found[one.name] = min(1.0, left / asked)
        left = max(0.0, left - asked)
    return found


def _ceil(cards: float) -> int:
    """Of a quotient that may miss a whole number by rounding."""
    return math.ceil(cards - 1e-9)


def _check_classes(classes: Sequence[PriorityClass]) -> None:
    if not classes:
        return
    names = [one.name for one in classes]
    if len(set(names)) != len(names):
        raise ConfigError(f"{', '.join(names)}: a class stands twice.", key="--priority")
    if any(not 0 < one.share <= 1 for one in classes) or abs(sum(one.share for one in classes) - 1) > 1e-6:
        shares = ", ".join(f"{one.name}={one.share:.0%}" for one in classes)
        raise ConfigError(
            f"{shares} do not add up to 100 %.", key="--priority", hint="--priority live=70% --priority batch=30%"
        )
