"""Capacity plan: how many cards carry a rate of requests within a limit on P99, from the batch curves of a sweep.

One card (on a CPU target: one server process that has a machine to itself) is simulated under Poisson arrivals; the
highest rate that keeps the limit is found with the service settings that suit it. A fleet is so many of them behind a
balancer:

    cards = ceil(rate * (1 + headroom) / highest rate of one card)

Each card has one front end, as `serve --front-ends auto` gives it. Then one card is simulated again at its share of the
demand. Nothing here was measured under load; `CapacityPlan.assumptions` says in words what the figures rest on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from workbench.inputs.dataset.batch import IntArray
from workbench.prediction.search import best_settings
from workbench.targets import described
from workbench.values.documents.canonical import added_later, encode
from workbench.values.documents.json_reader import read_document
from workbench.values.errors import ConfigError
from workbench.values.measurement import Clock, ServiceFigures, ServiceResult
from workbench.values.results import Evaluation
from workbench.values.service import HostCosts, ServiceChoices, ServiceLoad, ServiceQuestion, ServiceSettings

_VERSION = 1
_HOURS_A_MONTH = 365.25 * 24 / 12
_BUSY = 0.6
"""Share of its time above which the busiest part of a service counts as what limits it: by queueing in front of it a
request waits as long as it is served. Below it, a limit on P99 leaves little room beyond a lone request's time."""

LimitedBy = Literal["the model", "the front end", "the limit on P99"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """What one candidate needs for the demand.

    Attributes:
        highest: a card at the highest rate that keeps the limit; None where no rate does, and then all of the fleet
            is None.
        lowest_p99_ms: the least P99 that was seen at any rate.
        planned: a card at its share of the demand.
        cards_to_lose_one: cards with which the demand, without headroom, is carried by one card fewer.
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
    planned: ServiceFigures | None = None
    cards_to_lose_one: int | None = None
    clock: Clock = "host"
    emulated: bool = False


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
    hint = "Write one: workbench plan-capacity … --json"
    return read_document(CapacityPlan, path, "plan of capacity", version=_VERSION, hint=hint)


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
    services = {e.candidate.id: _service_of(e) for e in evaluations}
    on_cards = {not described(e.candidate.target).on_host for e in evaluations}
    if len(on_cards) > 1:
        raise ConfigError(
            "candidates on cards and on processors cannot stand in one plan.", hint="Name one with --candidate."
        )
    members = []
    for one in evaluations:
        known = one.candidate.id
        members.append(
            _plan_member(
                one,
                demand,
                replace(host or _predicted_with(services[known]), client_ms=0.0),  # a fleet's clients compute elsewhere
                _on_its_curve(choices[known], services[known]),
                lengths,
                bins[known],
                what=titles[known],
                baseline_id=baseline_id,
                seed=seed,
            )
        )
    emulated = any(m.emulated for m in members)
    unit: Literal["card", "server process"] = "card" if on_cards.pop() else "server process"
    fleet = host or _predicted_with(services[evaluations[0].candidate.id])
    return CapacityPlan(
        demand=demand,
        unit=unit,
        members=tuple(sorted(members, key=lambda m: (m.cards is None, m.cards or 0, -(m.accuracy or 0.0)))),
        assumptions=_assumptions(unit, fleet, lengths, emulated),
        emulated=emulated,
    )


def _plan_member(
    evaluation: Evaluation,
    demand: Demand,
    host: HostCosts,
    choices: ServiceChoices,
    lengths: IntArray,
    bins: tuple[int, ...],
    *,
    what: str,
    baseline_id: str,
    seed: int,
) -> MemberPlan:
    service, measurement = _service_of(evaluation), evaluation.measurement

    def asked(load: ServiceLoad | None, among: ServiceChoices) -> ServiceResult:
        question = ServiceQuestion(load=load, p99_ms=demand.p99_ms)
        return best_settings(service.curve, among, question, host, lengths, bins, seed=seed)

    found = asked(None, choices)
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
    rate_per_card = highest.load.rate_per_s or highest.throughput_per_s.value
    cards = cards_needed(demand, rate_per_card)
    load = ServiceLoad(arrivals="poisson", rate_per_s=demand.rate_per_s / cards)
    planned = asked(load, ServiceChoices.only(chosen))
    return replace(
        plan,
        limited_by=_limited_by(highest, rate_per_card, host),
        cards=cards,
        servers=math.ceil(cards / demand.cards_per_server),
        planned=planned.best or planned.closest,
        cards_to_lose_one=max(cards, math.ceil(demand.rate_per_s / rate_per_card) + 1),
    )


def _on_its_curve(choices: ServiceChoices, service: ServiceResult) -> ServiceChoices:
    """Of the bins those that its curve tells of: a confirmation's was timed at the chosen and untuned ones alone."""
    if service.curve.checks:
        return choices
    exact = tuple(bins for bins in choices.sequence_bins if set(bins) <= set(service.curve.lengths))
    return replace(choices, sequence_bins=exact)


def _limited_by(highest: ServiceFigures, rate_per_s: float, host: HostCosts) -> LimitedBy:
    busy: dict[LimitedBy, float] = {
        "the model": highest.worker_busy or 0.0,
        "the front end": host.front_end_busy(rate_per_s, highest.mean_batch),
    }
    busiest = max(busy, key=lambda part: busy[part])
    return busiest if busy[busiest] >= _BUSY else "the limit on P99"


def _service_of(evaluation: Evaluation) -> ServiceResult:
    """Raises: ConfigError: it has no batch curve."""
    service = evaluation.measurement.service
    if service is None or not service.curve.points:
        raise ConfigError(
            f"candidate {evaluation.candidate.short_id} has no batch curve, so nothing says what a card of it carries.",
            hint="Give the experiment and its search space a `service:` section and sweep again.",
        )
    return service


def _predicted_with(service: ServiceResult) -> HostCosts:
    """Raises: ConfigError: the result does not say."""
    host = (service.best or service.closest).host
    if host is None:
        raise ConfigError("the sweep does not say what serving costs its host.", hint="Sweep again.")
    return host


def _assumptions(unit: str, host: HostCosts, lengths: IntArray, emulated: bool) -> tuple[str, ...]:
    sharing = (
        "each card has one front end; cards of a server share queues (serve --devices all), and it has processors "
        "enough for all of them"
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
        f"host costs: {host.origin} ({host.request_ms:.3g} ms a request, {host.batch_ms + host.batch_after_ms:.3g} ms "
        f"a batch in the front end); clients compute elsewhere",
    ]
    if emulated:
        found.insert(0, "EMULATED: times come from a model of the chip, not from a device; sizes are a rehearsal")
    return tuple(found)
