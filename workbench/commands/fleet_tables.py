"""What each change leaves of a fleet, as tables of a terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from workbench.commands.console import out, say
from workbench.prediction.fleet_cost import Capacity, PowerBasis, StepCost
from workbench.prediction.levers import Finding, FleetPlan, FleetStep, Lever, Step

_BASES: dict[PowerBasis, str] = {"device": "", "assumed": ", ASSUMED", "not known": ""}
_FINDINGS: dict[Finding, str] = {
    "": "",
    "not timed": "not measured: its candidate has no batch curve; what it brings is in the next step",
    "not chosen": "nothing: the chosen candidate is the float baseline",
    "keeps no limit": "no rate keeps the limit on P99",
    "already so": "changes nothing",
    "not measured": "not measured: what several front ends cost this host",
}


def print_fleet(found: Capacity) -> None:
    """Needs `found.fleet`."""
    plan = found.fleet
    assert plan is not None
    out.print(_fleet_table(found, plan))
    if plan.classes:
        out.print(_class_table(plan))
    say("\nThe steps rest on")
    for sentence in assumptions(found):
        say(f"  - {sentence}")


_LEVERS: dict[Lever, str] = {
    "today": "today's settings",
    "bins": "length bins",
    "batching": "batching",
    "model": "INT8",
    "front ends": "front ends",
}


def lever_words(step: Step) -> str:
    """'+ length bins and INT8'."""
    names = [*(_LEVERS[lever] for lever in step.held), *_changes(step)]
    return ("" if step.lever == "today" else "+ ") + " and ".join(names)


def _changes(step: Step) -> list[str]:
    if step.lever != "model" or not step.groups:
        return [_LEVERS[step.lever]]
    precise = ["INT8"] if step.quantized else ["precision"] if "precision" in step.groups else []
    return [*precise, *(group for group in step.groups if group != "precision")]


def _fleet_table(found: Capacity, plan: FleetPlan) -> Table:
    costs = {cost.lever: cost for cost in found.costs}
    columns = ["step", f"highest rate of a {plan.unit}", "gain", "evidence", "service settings"]
    columns += ["streams a card"] if plan.fleet.streams_per_card is not None else []
    columns += ["cards", "servers", "with a spare server"] if plan.unit == "card" else ["processes"]
    columns += ["kW"] + ([f"{found.prices.currency} a month"] if found.prices is not None else [])
    load = (
        f"{plan.rate_per_s:,.0f} requests/s"
        if plan.rate_per_s is not None
        else f"what {plan.fleet.cards:,} cards carry today"
    )
    table = Table(*columns, title=f"What each change leaves of the fleet: {load}, P99 <= {plan.p99_ms:g} ms")
    if (run := costs.get("as run")) is not None:
        table.add_row(*map(Text, _row_as_run(run, plan, len(columns), found)))
    for each in plan.steps:
        table.add_row(*map(Text, _row(each, costs.get(each.step.lever), plan, found)))
    return table


def _row_as_run(run: StepCost, plan: FleetPlan, columns: int, found: Capacity) -> list[str]:
    streams = [f"{plan.fleet.streams_per_card:.1f}"] if plan.fleet.streams_per_card is not None else []
    row = ["as it runs, by your word", "", "", "", "", *streams, f"{run.cards:,}"]
    row += [f"{run.servers:,}", ""] if plan.unit == "card" else []
    row += [_kw(run), *([_money(run)] if found.prices is not None else [])]
    return row + [""] * (columns - len(row))


def _row(each: FleetStep, cost: StepCost | None, plan: FleetPlan, found: Capacity) -> list[str]:
    step = each.step
    if step.rate_per_s is None:
        return [lever_words(step), "–", "", "", _FINDINGS[step.finding]]
    row = [lever_words(step), f"{step.rate_per_s:,.0f}/s", "" if each.gain is None else f"{each.gain:.2f}x"]
    row += [
        step.evidence or "",
        f"{step.settings}" + (f", {step.front_ends} front ends" if step.front_ends > 1 else ""),
    ]
    if plan.fleet.streams_per_card is not None:
        row.append("" if each.streams_per_card is None else f"{each.streams_per_card:.1f}")
    row.append(f"{each.cards:,}")
    row += [f"{each.servers:,}", f"{each.cards_with_spare_server:,}"] if plan.unit == "card" else []
    row.append("" if cost is None else _kw(cost))
    return [*row, *([_money(cost)] if found.prices is not None and cost is not None else [])]


def _class_table(plan: FleetPlan) -> Table:
    names = [one.name for one in plan.classes]
    heads = [f"{one.name} ({one.share:.0%})" for one in plan.classes]
    table = Table("step", *heads, title=f"Served while one {'server' if plan.unit == 'card' else 'process'} is lost")
    for each in plan.steps:
        if each.cards is not None:
            table.add_row(lever_words(each.step), *(f"{each.served_with_lost_server[name]:.0%}" for name in names))
    return table


def assumptions(found: Capacity) -> list[str]:
    """What the sizes of the steps rest on, in sentences."""
    plan = found.fleet
    assert plan is not None
    said = ["PREDICTED: one card is simulated from its batch curve at its highest rate; no load was put on a fleet"]
    if plan.emulated:
        said.insert(0, "EMULATED: times come from a model of the chip, not from a device; sizes are a rehearsal")
    if plan.basis == "today":
        said.append(
            f"cards are in proportion to the {plan.fleet.cards:,} that run today, whose reserve for bursts stays as it "
            "is; the rate of requests is not known"
        )
    else:
        said.append(f"{plan.rate_per_s:,.0f} requests/s in the mean, and {plan.headroom:.0%} headroom for bursts")
    said.append("a step is on top of those before it; in another order each would bring something else")
    if plan.classes:
        said.append(
            "classes are held apart before the service, by whoever spreads the requests: the service itself has no "
            "priorities. With a server lost, the first classes are served whole before the next"
        )
    if found.prices is not None:
        said.append(f"prices: {found.prices.source}; spread evenly, no interest")
    if any(cost.kw is None for cost in found.costs):
        said.append("the power of a card is not known, so energy is in no figure (--card-power-w assumes one)")
    elif any(cost.power_basis == "device" for cost in found.costs):
        said.append("a card's power is that of calls back to back, so at most")
    return said


def _kw(cost: StepCost) -> str:
    return "not known" if cost.kw is None else f"<= {cost.kw:,.1f}{_BASES[cost.power_basis]}"


def _money(cost: StepCost) -> str:
    if cost.monthly is None:
        return ""
    return f"{cost.monthly.total:,.0f}" + ("" if cost.monthly.energy is not None else ", without energy")
