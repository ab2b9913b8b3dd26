"""Capacity and cost: what each candidate needs for a demand, what that costs, and on what all of it rests."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.prediction.capacity import CapacityPlan, MemberPlan
from workbench.report.written.cells import DASH, figure, heading, number, paragraph, say, section, table, text
from workbench.report.written.document import Bullets, Cell, Paragraph, Section
from workbench.report.written.material import Material
from workbench.values.evidence import Evidence

_TITLE, _MEMBERS = "Capacity and cost", "Capacity by candidate"
_UNITS = {"card": ("card", "cards"), "server process": ("process", "processes")}


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
    plan = m.capacity
    demand = say(
        "Demand: {rate} requests/s, P99 <= {p99} ms, {headroom} headroom.",
        rate=number(plan.demand.rate_per_s),
        p99=f"{plan.demand.p99_ms:g}",
        headroom=f"{plan.demand.headroom:.0%}",
    )
    members = table(
        _MEMBERS,
        "id|what|highest rate of a {unit}|limited by|{count}|servers|N+1|P99 ms|cost a month",
        [_member_row(each, plan) for each in plan.members],
        unit=say(_UNITS[plan.unit][0]),
        count=say(_UNITS[plan.unit][1]),
    )
    rests = (heading("What this rests on"), Bullets(items=tuple(_assumptions(plan))))
    return section(_TITLE, (Paragraph(text=demand), members, *rests))


def _member_row(each: MemberPlan, plan: CapacityPlan) -> tuple[Cell, ...]:
    head = (text(each.candidate_id[:12]), text(each.what))
    level: Evidence = "modelled" if each.emulated else "predicted"
    if each.highest is None:
        none = Cell(text=say("no rate keeps the limit on P99"), state="missed")
        return (*head, none, *(DASH for _ in range(6)))
    rate = each.highest.load.rate_per_s or each.highest.throughput_per_s.value
    cost = plan.cost_a_month(each)
    return (
        *head,
        figure(rate, level),
        text(say(each.limited_by) if each.limited_by is not None else "–"),
        figure(each.cards),
        figure(each.servers) if plan.unit == "card" else DASH,
        figure(each.cards_to_lose_one),
        DASH if each.planned is None else figure(each.planned.p99_ms.value, level),
        DASH if cost is None else figure(cost, digits=0),
    )


def _assumptions(plan: CapacityPlan) -> Iterator[str]:
    if plan.emulated:
        yield say("Times come from a model of the chip, not from a device; sizes are a rehearsal.")
    yield say(
        "The highest rate of one card (process) is simulated from its batch curve, arrivals are Poisson; "
        "no load was put on a fleet."
    )
    yield say("Cards scale linearly behind a balancer that spreads requests at random; its own time is not counted.")
    if plan.demand.price_per_hour is not None:
        yield say(
            "Cost: {price} an hour for each {unit}, which runs all the time.",
            price=f"{plan.demand.price_per_hour:g}",
            unit=say(_UNITS[plan.unit][0]),
        )
