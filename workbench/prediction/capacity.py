"""Capacity plan: how many cards carry a rate of requests within a limit on P99, from the batch curves of a sweep.

One card (on a CPU target: one server process that has a machine to itself) is simulated under Poisson arrivals; the
highest rate that keeps the limit is found with the service settings that suit it. A fleet is so many of them behind a
balancer:

    cards = ceil(rate * (1 + headroom) / highest rate of one card)

Where the front end is what limits a card, and the sweep measured what several cost, the card is simulated with as many
as let its own time limit it (`highest_rate`).
Then one card is simulated again at its share of the demand, with all cards and with one of them lost. Nothing here was
measured under load; `CapacityPlan.assumptions` says in words what the figures rest on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from workbench.inputs.dataset.batch import IntArray
from workbench.prediction.highest_rate import (
    LimitedBy,
    OneCard,
    limited_by,
    on_its_curve,
    one_card,
    predicted_with,
    rate_of,
    service_of,
    with_front_ends,
)
from workbench.targets import described
from workbench.values.documents.canonical import DecodeError, added_later, decode, encode
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError
from workbench.values.measurement import Clock, Estimate, ServiceFigures
from workbench.values.results import Evaluation
from workbench.values.service import HostCosts, ServiceChoices, ServiceLoad, ServiceSettings

_VERSION = 1
_HOURS_A_MONTH = 365.25 * 24 / 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a fleet must carry.

    Attributes:
        rate_per_s: requests per second in all, in the mean.
        p99_ms: what 99 of 100 requests take at most.
        headroom: share of the rate that is added before cards are counted.
        price_per_hour: of a card (on a CPU target, of a server process), in any currency; None where nobody said it.
    """

    rate_per_s: float
    p99_ms: float
    headroom: float = 0.3
    cards_per_server: int = 8
    price_per_hour: float | None = added_later(None)

    def __post_init__(self) -> None:
        for name in ("rate_per_s", "p99_ms", "cards_per_server", "price_per_hour"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{value} is not positive.", key=f"demand.{name}")
        if not 0 <= self.headroom < math.inf:
            raise ConfigError(f"{self.headroom} is negative.", key="demand.headroom", hint="Write 30% or 0.3.")

    @staticmethod
    def from_earlier(data: Mapping[str, Any]) -> Mapping[str, Any]:
        """A plan once held an assumed power, and users whose rate it was."""
        return {key: value for key, value in data.items() if key not in ("card_power_w", "users", "think_s")}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLoad:
    """One card at its share of the demand, simulated.

    Attributes:
        cards: how many share the demand.
        share: the card's rate over the highest that keeps the limit; above 1 the limit breaks.
        keeps: whether P99 stays within the limit.
        reliable: False where the card is overloaded, so that its times grow for as long as one waits.
    """

    cards: int
    rate_per_s: float
    share: float
    p50_ms: Estimate
    p99_ms: Estimate
    keeps: bool
    reliable: bool

    @staticmethod
    def from_earlier(data: Mapping[str, Any]) -> Mapping[str, Any]:
        """A load once told more of the host."""
        gone = ("mean_batch", "workers_busy", "front_end_busy", "host_cores")
        return {key: value for key, value in data.items() if key not in gone}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """What one candidate needs for the demand.

    Attributes:
        highest: a card at the highest rate that keeps the limit; None where no rate does, and then all of the fleet
            is None.
        lowest_p99_ms: the least P99 that was seen at any rate.
        planned, one_lost: None where no card is left.
        front_ends: processes that take requests in for one card, as simulated.
        cards_to_lose_one: cards with which the demand, without headroom, is carried by one card fewer.
        power_w: of all planned cards, each as busy as when it was measured, so at most; None where nobody knows.
    """

    candidate_id: str
    what: str
    baseline: bool
    accuracy: float | None
    settings: ServiceSettings
    highest: ServiceFigures | None
    lowest_p99_ms: float
    limited_by: LimitedBy | None = None
    cards: int | None = None
    servers: int | None = None
    planned: CardLoad | None = None
    one_lost: CardLoad | None = None
    cards_to_lose_one: int | None = None
    front_ends: int = 1
    power_w: float | None = None
    power_basis: str = "not measured"
    clock: Clock = "host"
    emulated: bool = False

    @staticmethod
    def from_earlier(data: Mapping[str, Any]) -> Mapping[str, Any]:
        """A plan once told more of servers, of memory and of confirmations."""
        gone = ("server_front_ends", "real_time_factor", "server_lost", "memory_per_card_bytes", "confirmed")
        return {key: value for key, value in data.items() if key not in gone}


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """Fewest cards first; candidates that cannot keep the limit last.

    Attributes:
        command: the command line that asked for it; '' where there was none.
    """

    demand: Demand
    unit: Literal["card", "server process"]
    members: tuple[MemberPlan, ...]
    assumptions: tuple[str, ...]
    emulated: bool
    command: str = added_later("")

    def to_json(self) -> dict[str, Any]:
        return {"version": _VERSION, **encode(self)}

    def cost_a_month(self, member: MemberPlan) -> float | None:
        """Of the member's cards; None without a price, and where no number of cards suffices."""
        price = self.demand.price_per_hour
        return None if price is None or member.cards is None else price * member.cards * _HOURS_A_MONTH


def read_capacity(path: Path) -> CapacityPlan:
    """Read what `workbench plan-capacity --json` wrote.

    Raises:
        ConfigError: no such document, or of another version.
    """
    body = read_json(path)
    if not isinstance(body, dict) or body.pop("version", None) != _VERSION:
        raise ConfigError(
            "is no plan of capacity of this workbench.", file=path, hint="Write one: workbench plan-capacity … --json"
        )
    # what earlier plans said of changes to today's fleet and of a file of prices
    kept = {key: value for key, value in body.items() if key not in ("fleet", "prices", "costs")}
    try:
        return decode(CapacityPlan, kept, "plan")
    except DecodeError as error:
        raise ConfigError(f"is no plan of capacity of this workbench: {error}.", file=path) from error


def cards_needed(demand: Demand, highest_rate_per_s: float) -> int:
    """Cards that carry the demand with its headroom when each carries at most `highest_rate_per_s`."""
    return math.ceil(demand.rate_per_s * (1 + demand.headroom) / highest_rate_per_s)


def plan_capacity(
    evaluations: Sequence[Evaluation],
    demand: Demand,
    *,
    choices: Mapping[str, ServiceChoices],
    lengths: IntArray,
    bins: Mapping[str, tuple[int, ...]],
    titles: Mapping[str, str],
    baseline_id: str,
    host: HostCosts | None = None,
    seed: int = 0,
) -> CapacityPlan:
    """What each candidate would need; deterministic.

    Args:
        evaluations: of one sweep, on one target family, each with a batch curve.
        choices: by candidate id, service settings to choose from; what suits 100 patient clients need not suit a limit
            on P99.
        lengths: tokens of the requests that come, drawn from with replacement; one 0, with bins
            (), where samples are no sequences.
        bins, titles: by candidate id: its padded lengths, and what to call it.
        host: what serving costs the fleet's hosts; None for what the sweep predicted with.

    Raises:
        ConfigError: a candidate has no batch curve, or cards and host processes are mixed.
    """
    if not evaluations:
        raise ConfigError("there is no candidate to plan for.")
    for evaluation in evaluations:
        service_of(evaluation)
    on_cards = {not described(e.candidate.target).on_host for e in evaluations}
    if len(on_cards) > 1:
        raise ConfigError(
            "candidates on cards and on processors cannot stand in one plan.", hint="Name one with --candidate."
        )
    members = [
        _plan_member(
            e,
            demand,
            one_card(e, demand.p99_ms, lengths, bins[e.candidate.id], seed, host),
            choices=on_its_curve(choices[e.candidate.id], service_of(e)),
            what=titles[e.candidate.id],
            baseline_id=baseline_id,
        )
        for e in evaluations
    ]
    emulated = any(m.emulated for m in members)
    unit: Literal["card", "server process"] = "card" if on_cards.pop() else "server process"
    fleet = host or predicted_with(service_of(evaluations[0]))
    return CapacityPlan(
        demand=demand,
        unit=unit,
        members=tuple(sorted(members, key=lambda m: (m.cards is None, m.cards or 0, -(m.accuracy or 0.0)))),
        assumptions=_assumptions(demand, unit, fleet, lengths, emulated),
        emulated=emulated,
    )


def _plan_member(
    evaluation: Evaluation,
    demand: Demand,
    card: OneCard,
    *,
    choices: ServiceChoices,
    what: str,
    baseline_id: str,
) -> MemberPlan:
    service, measurement = card.service, evaluation.measurement
    on_card = not described(evaluation.candidate.target).on_host
    found, front_ends = card.with_as_many_front_ends_as_pay(choices) if on_card else (card.asked(None, choices), 1)
    host = with_front_ends(card.host, front_ends)
    highest = found.best
    chosen = (highest or found.closest).settings
    plan = MemberPlan(
        candidate_id=evaluation.candidate.id,
        what=what,
        baseline=evaluation.candidate.id == baseline_id,
        accuracy=measurement.accuracy.values[measurement.accuracy.primary] if measurement.accuracy else None,
        settings=chosen,
        highest=highest,
        lowest_p99_ms=found.closest.p99_ms.value,
        clock=service.curve.clock,
        emulated=evaluation.toolchain.emulated,
    )
    if highest is None:
        return plan
    rate_per_card = rate_of(highest)
    cards = cards_needed(demand, rate_per_card)
    only = ServiceChoices.only(chosen)

    def loaded(left: int) -> CardLoad | None:
        if left < 1:
            return None
        rate = demand.rate_per_s / left
        result = card.asked(ServiceLoad(arrivals="poisson", rate_per_s=rate), only, front_ends)
        figures = result.best or result.closest
        return CardLoad(
            cards=left,
            rate_per_s=rate,
            share=rate / rate_per_card,
            p50_ms=figures.p50_ms,
            p99_ms=figures.p99_ms,
            keeps=figures.reliable and figures.p99_ms.value <= demand.p99_ms,
            reliable=figures.reliable,
        )

    power_w, basis = _power(evaluation, cards)
    return replace(
        plan,
        limited_by=limited_by(highest, host),
        cards=cards,
        servers=math.ceil(cards / demand.cards_per_server),
        planned=loaded(cards),
        one_lost=loaded(cards - 1),
        front_ends=front_ends,
        cards_to_lose_one=max(cards, math.ceil(demand.rate_per_s / rate_per_card) + 1),
        power_w=power_w,
        power_basis=basis,
    )


def _power(evaluation: Evaluation, cards: int) -> tuple[float | None, str]:
    device = evaluation.measurement.device
    if device is not None and device.power_w is not None:
        emulated = ", EMULATED" if evaluation.toolchain.emulated else ""
        return cards * device.power_w, f"{device.power_w:.0f} W each, measured while calls ran back to back{emulated}"
    return None, "not measured"


def _about_front_ends(host: HostCosts) -> str:
    one = f"one front end answers {1000 / host.request_ms:,.0f} requests/s at most" if host.request_ms else ""
    if not host.front_end_ms:
        return f"{one or 'front ends cost nothing'}; what several cost was not measured, so each card has one"
    queue_ms = host.passed_row_ms
    return (
        f"{one}; of several each {1000 / host.front_end_ms:,.0f}"
        + (f", and the process with their queues hands on {1000 / queue_ms:,.0f}" if queue_ms else "")
        + " beside its batches"
    )


def _assumptions(demand: Demand, unit: str, host: HostCosts, lengths: IntArray, emulated: bool) -> tuple[str, ...]:
    sharing = (
        "cards of a server share its front ends and queues (serve --devices all), and it has processors enough for "
        "all of them"
        if unit == "card"
        else "each server process has a machine to itself, as fast as the one that measured"
    )
    found = [
        "PREDICTED: one card is simulated from its batch curve; no load was put on a fleet"
        if unit == "card"
        else "PREDICTED: one server process is simulated from its batch curve; no load was put on a fleet",
        "requests come independently of each other (Poisson); bursts, retries and daily peaks are for the headroom",
        f"request lengths are those of the experiment's {len(lengths)} validation samples"
        if lengths.any()
        else "samples have one shape",
        f"{unit}{'s' if unit == 'card' else 'es'} scale linearly behind a balancer that spreads requests at random",
        sharing,
        f"time in the balancer and the network beyond {host.network_ms:g} ms a request is not counted",
        f"host costs: {host.origin} ({host.request_ms:.3g} ms a request, {host.batch_ms:.3g} ms a batch in the front "
        f"end); clients compute elsewhere",
    ]
    if unit == "card":
        found.append(_about_front_ends(host))
    if emulated:
        found.insert(0, "EMULATED: times come from a model of the chip, not from a device; sizes are a rehearsal")
    return tuple(found)
