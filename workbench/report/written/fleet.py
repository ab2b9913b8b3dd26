"""Capacity and cost: what each change leaves of a fleet, what that costs, who is served with a server lost, and on what
all of it rests."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.prediction.capacity import CapacityPlan, MemberPlan
from workbench.prediction.fleet_cost import Capacity, StepCost
from workbench.prediction.what_if import Finding, FleetPlan, FleetStep, Step, WhatIf
from workbench.report.written.cells import (
    DASH,
    as_figure,
    counted,
    figure,
    heading,
    in_pictures,
    not_measured,
    number,
    paragraph,
    say,
    section,
    table,
    text,
)
from workbench.report.written.document import (
    Bar,
    BarChart,
    Block,
    Bullets,
    Cell,
    Figure,
    Paragraph,
    Section,
    Table,
)
from workbench.report.written.material import Material
from workbench.report.written.naming import GROUP, settings_name
from workbench.values.evidence import Evidence

_TITLE = "Capacity and cost"

_WHAT_IFS = "What each change brings"
_WHAT_IF: dict[WhatIf | str, str] = {
    "as run": "as it runs, by its owner's word",
    "today": "today's settings",
    "bins": "length bins",
    "batching": "batching and workers",
    "model": "INT8",
    "front ends": "front ends",
}
_FINDING: dict[Finding, str] = {
    "": "",
    "not timed": "not measured: not timed; what it brings is in the next step",
    "keeps no limit": "no rate keeps the limit on P99",
    "already so": "so already: nothing changes",
    "not chosen": "what ships is the float baseline",
    "not measured": "not measured: what several front ends cost the host",
}


_CARD = "card"
_CARDS = "cards"
_PROCESS = "process"
_PROCESSES = "processes"
_COSTS = "Power and cost a month"
_LOST = "One server lost"
_LOST_PROCESS = "One server process lost"

_SERVED = "{name} ({share}) still served"
_MEMBERS = "Capacity by candidate"

_LIMITED: dict[str, str] = {
    "the model": "the model",
    "the front end": "the front end",
    "the limit on P99": "the limit on P99",
}


def fleet(m: Material) -> Section:
    if m.capacity is None:
        return section(
            _TITLE,
            (
                paragraph(
                    "No plan of capacity was given (workbench plan-capacity … --json, --capacity): cards and cost "
                    "are not known."
                ),
            ),
        )
    blocks: list[Block] = []
    plan = m.capacity.fleet
    if plan is not None:
        blocks += _steps(m.capacity, plan)
    if m.capacity.plan is not None:
        blocks += [heading(_MEMBERS), _members(m.capacity.plan)]
    blocks += [heading("What this rests on"), Bullets(items=tuple(_assumptions(m.capacity)))]
    return section(_TITLE, blocks)


def _steps(found: Capacity, plan: FleetPlan) -> Iterator[Block]:
    yield Paragraph(text=_demand(plan))
    yield heading(_WHAT_IFS)
    yield _step_table(plan)
    bars = [each for each in plan.steps if each.cards is not None]
    if len(bars) > 1:
        yield _chart(plan, bars)
    yield heading(_COSTS)
    if found.prices is None:
        yield paragraph("No prices were given (--prices): no cost was worked out.")
    if found.costs:
        yield _costs(found)
    yield heading(_LOST if plan.unit == "card" else _LOST_PROCESS)
    yield _lost(plan)


def _demand(plan: FleetPlan) -> str:
    p99 = f"{plan.p99_ms:g}"
    if plan.rate_per_s is not None:
        headroom = f"{plan.headroom or 0:.0%}"
        return say(
            "Demand: {rate} requests/s, P99 <= {p99} ms, {headroom} headroom.",
            rate=number(plan.rate_per_s),
            p99=p99,
            headroom=headroom,
        )
    streams = ""
    if plan.fleet.streams is not None and plan.fleet.streams_per_card is not None:
        streams = say(
            " ({each} streams a card, {all} in all)",
            each=number(plan.fleet.streams_per_card),
            all=number(plan.fleet.streams),
        )
    return say(
        "Demand: what {cards} cards carry today{streams}, P99 <= {p99} ms; cards are in proportion to the "
        "highest rate of one, and today's reserve stays as it is.",
        cards=number(plan.fleet.cards or 0),
        streams=streams,
        p99=p99,
    )


def what_if_name(step: Step) -> str:
    names = [*(say(_WHAT_IF[what_if]) for what_if in step.held), *_changes(step)]
    return ("" if step.what_if == "today" else say("+ ")) + say(" and ").join(names)


def _changes(step: Step) -> list[str]:
    if step.what_if != "model" or not step.groups:
        return [say(_WHAT_IF[step.what_if])]
    first = [say(_WHAT_IF["model"])] if step.quantized else [say(GROUP["precision"])]
    rest = [say(GROUP[group]) for group in step.groups if group != "precision"]
    return [*(first if "precision" in step.groups else []), *rest]


def _step_table(plan: FleetPlan) -> Table:
    with_streams = plan.fleet.streams_per_card is not None and plan.unit == "card"
    card = plan.unit == "card"
    heads = say(
        "step (on top of those before)|highest rate of a {unit}, requests/s|gain|service "
        "settings|{streams}{unit_count}|servers",
        unit=say(_CARD if card else _PROCESS),
        unit_count=say(_CARDS if card else _PROCESSES),
        streams=say("streams a card|") if with_streams else "",
    ).split("|")
    rows = [_step_row(each, plan, with_streams) for each in plan.steps]
    return Table(caption=say(_WHAT_IFS), heads=tuple(heads), rows=tuple(rows))


def _step_row(each: FleetStep, plan: FleetPlan, with_streams: bool) -> tuple[Cell, ...]:
    step = each.step
    name = text(what_if_name(step))
    if step.rate_per_s is None:
        found = Cell(text=say(_FINDING[step.finding]), state="open" if "not " in step.finding else "plain")
        return (name, DASH, DASH, found, *((DASH,) if with_streams else ()), DASH, DASH)
    settings = "" if step.settings is None else settings_name(step.settings)
    settings += say(", {n} front ends", n=step.front_ends) if step.front_ends > 1 else ""
    streams = (figure(each.streams_per_card, digits=1),) if with_streams else ()
    return (
        name,
        figure(step.rate_per_s, step.evidence),
        DASH if each.gain is None else as_figure(f"{each.gain:.2f}"),
        text(settings),
        *streams,
        counted(each.cards or 0),
        counted(each.servers or 0),
    )


def _chart(plan: FleetPlan, steps: list[FleetStep]) -> Figure:
    level: Evidence = "modelled" if plan.emulated else "predicted"
    what = _CARDS if plan.unit == "card" else _PROCESSES
    caption = say("{what} after each step", what=say(what))
    with in_pictures():
        bars = [
            Bar(label=what_if_name(each.step), value=each.cards or 0, evidence=level, strong=True) for each in steps
        ]
        return Figure(caption=caption, chart=BarChart(axis=say(what), bars=tuple(bars)))


def _costs(found: Capacity) -> Table:
    plan = found.fleet
    assert plan is not None, "there are costs of a fleet alone"
    names: dict[str, str] = {each.step.what_if: what_if_name(each.step) for each in plan.steps}
    money = found.prices.currency if found.prices is not None else ""
    heads = say(
        "step|cards|servers|kW"
        if found.prices is None
        else "step|cards|servers|kW|cards, {c}|servers, {c}|energy, {c}|a month, {c}",
        c=money,
    ).split("|")
    rows = [_cost_row(cost, names.get(cost.what_if, say(_WHAT_IF["as run"]))) for cost in found.costs]
    return Table(caption=say(_COSTS), heads=tuple(heads), rows=tuple(rows))


def _cost_row(cost: StepCost, name: str) -> tuple[Cell, ...]:
    kw = not_measured()
    if cost.kw is not None:
        assumed = say(" (assumed)") if cost.power_basis == "assumed" else ""
        kw = as_figure(f"≤ {cost.kw:,.1f}{assumed}")
    row = (text(name), counted(cost.cards), counted(cost.servers), kw)
    if cost.monthly is None:
        return row
    month = cost.monthly
    energy = not_measured() if month.energy is None else figure(month.energy, digits=0)
    total = f"{month.total:,.0f}" + (say(" (without energy)") if month.energy is None else "")
    amounts = (figure(amount, digits=0) for amount in (month.cards, month.servers))
    return (*row, *amounts, energy, as_figure(total))


def _lost(plan: FleetPlan) -> Table:
    classes = [(one.name, one.name, f"{one.share:.0%}") for one in plan.classes]
    heads = [say(_SERVED, name=name, share=share) for _, name, share in classes]
    heads = heads or [say(_SERVED, name=say("all requests"), share="100%")]
    names = [key for key, _, _ in classes] or ["all"]
    rows = [
        (
            text(what_if_name(each.step)),
            counted(each.cards_with_spare_server or 0),
            *(_served(each, name) for name in names),
        )
        for each in plan.steps
        if each.cards is not None
    ]
    return Table(
        caption=say(_LOST if plan.unit == "card" else _LOST_PROCESS),
        heads=(*say("step|with one to spare").split("|"), *heads),
        rows=tuple(rows),
    )


def _served(each: FleetStep, name: str) -> Cell:
    share = each.served_with_lost_server.get(name)
    return not_measured() if share is None else as_figure(f"{share:.0%}")


def _members(plan: CapacityPlan) -> Table:
    card = plan.unit == "card"
    unit, count = say(_CARD if card else _PROCESS), say(_CARDS if card else _PROCESSES)
    return table(
        _MEMBERS,
        "id|what|highest rate of a {unit}|limited by|{count}|servers|N+1|P99 with one {unit} lost, ms",
        [_member_row(each, plan) for each in plan.members],
        unit=unit,
        count=count,
    )


def _member_row(each: MemberPlan, plan: CapacityPlan) -> tuple[Cell, ...]:
    head = (text(each.candidate_id[:12]), text(each.what))
    level: Evidence = "modelled" if each.emulated else "predicted"
    if each.highest is None:
        none = Cell(text=say(_FINDING["keeps no limit"]), state="missed")
        return (*head, none, *(DASH for _ in range(5)))
    rate = each.highest.load.rate_per_s or each.highest.throughput_per_s.value
    lost = each.one_lost
    after = DASH if lost is None else Cell(text=say("overloaded"), state="missed", figure=True)
    if lost is not None and lost.reliable:
        after = Cell(
            text=number(lost.p99_ms.value), figure=True, state="plain" if lost.keeps else "missed", evidence=level
        )
    return (
        *head,
        figure(rate, level),
        text(say(_LIMITED[each.limited_by]) if each.limited_by is not None else "–"),
        figure(each.cards),
        figure(each.servers) if plan.unit == "card" else DASH,
        figure(each.cards_to_lose_one),
        after,
    )


def _assumptions(found: Capacity) -> Iterator[str]:
    if found.emulated:
        yield say("Times come from a model of the chip, not from a device; sizes are a rehearsal.")
    yield say(
        "The highest rate of one card (process) is simulated from its batch curve, arrivals are Poisson; "
        "no load was put on a fleet."
    )
    yield say("Cards scale linearly behind a balancer that spreads requests at random; its own time is not counted.")
    if found.fleet is not None:
        yield say("Steps are on top of each other; in another order each would bring something else.")
        if found.fleet.classes:
            yield say(
                "The service has no priorities: whoever spreads the requests holds classes apart, and serves the "
                "first ones whole before the next."
            )
    if found.prices is not None:
        yield say("Prices: {source}; spread evenly over months, no interest.", source=found.prices.source)
    bases = {cost.power_basis for cost in found.costs}
    said = {
        "not known": "The power of a card is not known: kW and energy are in no figure.",
        "device": "A card's power is that of calls back to back, so at most.",
        "assumed": "The power of a card is assumed, not measured.",
    }
    for basis, sentence in said.items():
        if basis in bases:
            yield say(sentence)
