"""`workbench plan-capacity`: how many cards, servers and watts a demand takes, for each candidate worth shipping.

`cli` registers it; heavy libraries are imported inside the command.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from workbench.commands.console import out, print_json, say, tell
from workbench.commands.options import AsJson, command_line, pairs, share, tell_damage
from workbench.values.errors import ConfigError

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.prediction.capacity import CapacityPlan, CardLoad, MemberPlan
    from workbench.prediction.fleet_cost import Capacity, PowerBasis, StepCost
    from workbench.prediction.what_if import Finding, FleetPlan, FleetStep, Step, WhatIf

_PLURAL = {"card": "cards", "server process": "server processes"}


def plan_capacity(
    experiment: Annotated[Path, typer.Argument(help="experiment file (YAML) that was swept", show_default=False)],
    p99_ms: Annotated[
        float | None,
        typer.Option("--p99-ms", help="limit: what 99 of 100 requests take at most; default: the experiment's"),
    ] = None,
    qps: Annotated[float | None, typer.Option("--qps", help="requests per second in all")] = None,
    users: Annotated[
        int | None, typer.Option("--users", min=1, help="streaming users instead of --qps; needs --think-s")
    ] = None,
    think_s: Annotated[
        float | None, typer.Option("--think-s", help="each user (stream) sends one request every so many seconds")
    ] = None,
    current_cards: Annotated[
        int | None, typer.Option(min=1, help="cards that run today: what each change would leave of them")
    ] = None,
    streams_per_card: Annotated[
        float | None, typer.Option(help="streams that one card carries today; with --think-s they are the load")
    ] = None,
    headroom: Annotated[str, typer.Option(help="share added to the rate for bursts: 30% or 0.3")] = "30%",
    cards_per_server: Annotated[int, typer.Option(min=1, help="cards in one server")] = 8,
    card_power_w: Annotated[
        float | None, typer.Option(help="watts of a card that you assume, used where power was not measured")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="what cards, servers and electricity cost (YAML)")
    ] = None,
    priority: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=SHARE of the requests, those that go first first; repeat: who is served with a server lost"
        ),
    ] = None,
    candidate: Annotated[str | None, typer.Option(help="id (or its first digits): this one and the baseline")] = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", help="folder of .workbench/; default: beside experiments/")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Size a fleet: cards, servers, power and money, what each change brings, and what a lost server means."""
    from workbench.api.capacity import plan_capacity as run
    from workbench.api.opening import journal_of, summary_of
    from workbench.inputs.experiment import read_experiment
    from workbench.prediction.capacity import Demand, users_rate_per_s
    from workbench.prediction.prices import read_prices
    from workbench.prediction.what_if import Fleet, PriorityClass

    if streams_per_card is not None and current_cards is None:
        raise ConfigError(
            "is of today's cards, whose number must be said.", key="--streams-per-card", hint="Add --current-cards."
        )
    fleet = Fleet(cards=current_cards, streams_per_card=streams_per_card, cards_per_server=cards_per_server)
    known = current_cards is not None
    wanted = known or prices is not None or bool(priority)
    money = None if prices is None else read_prices(prices)
    question = read_experiment(experiment, workspace)
    own_ms = None if question.service is None else question.service.p99_ms
    limit_ms = p99_ms if p99_ms is not None else own_ms
    if limit_ms is None and question.service is not None:
        raise ConfigError(
            "the experiment sets no limit on P99, so one must be said.", key="--p99-ms", hint="Such as --p99-ms 100"
        )
    if qps is None and users is None and think_s is not None and fleet.streams is not None:
        users = round(fleet.streams)
    demand = None
    if qps is not None or users is not None or not known:
        if (qps is None) == (users is None):
            raise ConfigError(
                "say either --qps or --users, or what runs today.",
                key="--qps",
                hint="--users 20000 --think-s 0.5 is 40000/s; --current-cards 450 --streams-per-card 6 is what runs "
                "today.",
            )
        if (users is None) != (think_s is None):
            raise ConfigError("--users and --think-s belong together.", key="--think-s")
        if think_s is not None and not 0 < think_s < math.inf:
            raise ConfigError(f"{think_s} is not positive.", key="--think-s")
        demand = Demand(
            rate_per_s=qps if qps is not None else users_rate_per_s(users or 0, think_s or 1.0),
            p99_ms=1.0 if limit_ms is None else limit_ms,
            headroom=share(headroom, "--headroom"),
            users=users,
            think_s=think_s,
            cards_per_server=cards_per_server,
            card_power_w=card_power_w,
        )
    classes = [
        PriorityClass(name=n, share=share(s, "--priority")) for n, s in pairs(priority or (), "--priority").items()
    ]
    journal = journal_of(question)
    tell_damage(journal)
    found = run(
        question,
        journal,
        summary_of(question, journal),
        demand=demand,
        p99_ms=1.0 if limit_ms is None else limit_ms,
        candidate=candidate,
        fleet=fleet if wanted else None,
        classes=classes,
        prices=money,
        card_power_w=card_power_w,
    )
    if as_json:
        print_json(replace(found, command=command_line()).to_json())
        return
    if found.emulated:
        tell("EMULATED: modelled times, not measured on a real device.", style="bold red")
    if found.plan is not None:
        _print_plan(found.plan)
    if found.fleet is not None:
        print_fleet(found)


def _print_plan(plan: CapacityPlan) -> None:
    say(_title(plan))
    out.print(_fleet_table(plan))
    out.print(_card_table(plan))
    if any(m.highest is None for m in plan.members):
        say(
            f"No number of {_PLURAL[plan.unit]} keeps {plan.demand.p99_ms:g} ms where the highest rate is none: its "
            "P99 is larger at any rate. Choose shorter bins or a faster candidate, or raise the limit."
        )
    say("\nThis rests on")
    for sentence in plan.assumptions:
        say(f"  - {sentence}")


def _title(plan: CapacityPlan) -> str:
    demand = plan.demand
    users = f" ({demand.users} users, one request every {demand.think_s:g} s)" if demand.users else ""
    return (
        f"PREDICTED for {demand.rate_per_s:,.0f} requests/s{users}, P99 <= {demand.p99_ms:g} ms, "
        f"{demand.headroom:.0%} headroom"
    )


def _fleet_table(plan: CapacityPlan) -> Table:
    on_cards = plan.unit == "card"
    columns = ["candidate", "what", "accuracy", "service settings", f"highest rate of a {plan.unit}", "limited by"]
    columns += ["cards", "servers", "front ends a server", "N+1"] if on_cards else ["processes", "N+1"]
    table = Table(*columns, "power", title="The fleet")
    for member in plan.members:
        row = [member.candidate_id[:12], member.what, _or_dash(member.accuracy, 4)]
        highest = member.highest
        if highest is None:
            row += [str(member.settings), f"none: P99 is {member.lowest_p99_ms:.1f} ms at least", ""]
            table.add_row(*map(Text, row))
            continue
        rate_per_s = highest.load.rate_per_s or highest.throughput_per_s.value
        row += [str(member.settings), f"{rate_per_s:,.0f}/s"]
        row += [member.limited_by or "", f"{member.cards:,}"]
        row += [f"{member.servers:,}", _front_ends(member)] if on_cards else []
        row += [f"{member.cards_to_lose_one:,}"]
        row += [
            member.power_basis
            if member.power_w is None
            else f"<= {member.power_w / 1000:,.1f} kW ({member.power_basis})"
        ]
        table.add_row(*map(Text, row))
    return table


def _front_ends(member: MemberPlan) -> str:
    needed = member.server_front_ends
    if needed is None:
        return "one is not enough; several not measured"
    services = f" in {needed.services} services: the queues' process is full" if needed.services > 1 else ""
    return f"{needed.count}{services}"


def _card_table(plan: CapacityPlan) -> Table:
    columns = ["candidate", "load", "P50 / P99 ms", "mean batch", "workers busy", "front end busy", "host cores"]
    columns += ["memory", f"one {plan.unit} lost"]
    columns += ["one server lost"] if plan.unit == "card" else []
    columns += ["P99 / interval"] if plan.demand.think_s else []
    columns += ["measured / predicted"] if any(m.confirmed for m in plan.members) else []
    table = Table(*columns, title=f"One {plan.unit} of it")
    for member in plan.members:
        now = member.planned
        if now is None:
            continue
        memory = member.memory_per_card_bytes
        row = [
            member.candidate_id[:12],
            f"{now.rate_per_s:,.0f}/s ({now.share:.0%})",
            f"{now.p50_ms.value:.1f} / {now.p99_ms.value:.1f} [{now.p99_ms.low:.1f}, {now.p99_ms.high:.1f}]",
            f"{now.mean_batch:.1f}",
            "" if now.workers_busy is None else f"{now.workers_busy:.0%}",
            f"{now.front_end_busy:.0%}",
            f"{now.host_cores:.2f}",
            "not measured" if memory is None else f"{memory / 1e6:,.0f} MB",
            _lost(member.one_lost),
        ]
        row += [_lost(member.server_lost)] if plan.unit == "card" else []
        row += [_or_dash(member.real_time_factor, 3)] if plan.demand.think_s else []
        row += [_ratio(member)] if any(m.confirmed for m in plan.members) else []
        table.add_row(*map(Text, row))
    return table


def _lost(left: CardLoad | None) -> str:
    if left is None:
        return "no service"
    if not left.reliable:
        return f"OVERLOADED ({left.share:.0%})"
    return f"P99 {left.p99_ms.value:.1f} ms{'' if left.keeps else ' OVER'} ({left.share:.0%})"


def _ratio(member: MemberPlan) -> str:
    if member.confirmed is None:
        return ""
    return f"throughput {member.confirmed[0]:.2f}, P99 {member.confirmed[1]:.2f}"


def _or_dash(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


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
    out.print(_steps_table(found, plan))
    if plan.classes:
        out.print(_class_table(plan))
    say("\nThe steps rest on")
    for sentence in assumptions(found):
        say(f"  - {sentence}")


_WHAT_IFS: dict[WhatIf, str] = {
    "today": "today's settings",
    "bins": "length bins",
    "batching": "batching",
    "model": "INT8",
    "front ends": "front ends",
}


def what_if_words(step: Step) -> str:
    """'+ length bins and INT8'."""
    names = [*(_WHAT_IFS[what_if] for what_if in step.held), *_changes(step)]
    return ("" if step.what_if == "today" else "+ ") + " and ".join(names)


def _changes(step: Step) -> list[str]:
    if step.what_if != "model" or not step.groups:
        return [_WHAT_IFS[step.what_if]]
    precise = ["INT8"] if step.quantized else ["precision"] if "precision" in step.groups else []
    return [*precise, *(group for group in step.groups if group != "precision")]


def _steps_table(found: Capacity, plan: FleetPlan) -> Table:
    costs = {cost.what_if: cost for cost in found.costs}
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
        table.add_row(*map(Text, _row(each, costs.get(each.step.what_if), plan, found)))
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
        return [what_if_words(step), "–", "", "", _FINDINGS[step.finding]]
    row = [what_if_words(step), f"{step.rate_per_s:,.0f}/s", "" if each.gain is None else f"{each.gain:.2f}x"]
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
            table.add_row(what_if_words(each.step), *(f"{each.served_with_lost_server[name]:.0%}" for name in names))
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
