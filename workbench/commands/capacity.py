"""`workbench plan-capacity`: how many cards, servers and watts a demand takes, for each candidate worth shipping.

`cli` registers it; heavy libraries are imported inside the command.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from workbench.commands.console import out, print_json, say, tell
from workbench.commands.options import AsJson, command_line, share, tell_damage
from workbench.values.errors import ConfigError

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.prediction.capacity import CapacityPlan

_PLURAL = {"card": "cards", "server process": "server processes"}


def plan_capacity(
    experiment: Annotated[Path, typer.Argument(help="experiment file (YAML) that was swept")],
    qps: Annotated[float, typer.Option(help="requests per second in all")],
    p99_ms: Annotated[
        float | None,
        typer.Option(help="limit: what 99 of 100 requests take at most; default: the experiment's"),
    ] = None,
    headroom: Annotated[str, typer.Option(help="share added to the rate for bursts: 30% or 0.3")] = "30%",
    cards_per_server: Annotated[int, typer.Option(min=1, help="cards in one server")] = 8,
    price_per_hour: Annotated[
        float | None, typer.Option(help="what a card (on a CPU target, a server process) costs an hour")
    ] = None,
    candidate: Annotated[str | None, typer.Option(help="id (or its first digits): this one and the baseline")] = None,
    workspace: Annotated[Path | None, typer.Option(help="folder of .workbench/; default: beside experiments/")] = None,
    as_json: AsJson = False,
) -> None:
    """Size a fleet for a demand: cards, servers and cost."""
    from workbench.api.capacity import plan_capacity as run
    from workbench.api.opening import journal_of, summary_of
    from workbench.inputs.experiment import read_experiment
    from workbench.prediction.capacity import Demand

    question = read_experiment(experiment, workspace)
    limit_ms = p99_ms if p99_ms is not None or question.service is None else question.service.p99_ms
    if limit_ms is None and question.service is not None:
        raise ConfigError(
            "the experiment sets no limit on P99, so one must be said.", key="--p99-ms", hint="Such as --p99-ms 100"
        )
    demand = Demand(
        rate_per_s=qps,
        p99_ms=1.0 if limit_ms is None else limit_ms,
        headroom=share(headroom, "--headroom"),
        cards_per_server=cards_per_server,
        price_per_hour=price_per_hour,
    )
    journal = journal_of(question)
    tell_damage(journal)
    plan = run(question, journal, summary_of(question, journal), demand, candidate)
    if as_json:
        print_json(replace(plan, command=command_line()).to_json())
        return
    if plan.emulated:
        tell("EMULATED: modelled times, not measured on a real device.", style="bold red")
    _print_plan(plan)


def _print_plan(plan: CapacityPlan) -> None:
    demand = plan.demand
    asked = f"{demand.rate_per_s:,.0f} requests/s, P99 <= {demand.p99_ms:g} ms, {demand.headroom:.0%} headroom"
    say(f"PREDICTED for {asked}")
    out.print(_fleet_table(plan))
    if any(m.highest is None for m in plan.members):
        say(
            f"No number of {_PLURAL[plan.unit]} keeps {demand.p99_ms:g} ms where the highest rate is none: its "
            "P99 is larger at any rate. Choose shorter bins or a faster candidate, or raise the limit."
        )
    say("\n".join(["\nThis rests on", *(f"  - {sentence}" for sentence in plan.assumptions)]))


def _fleet_table(plan: CapacityPlan) -> Table:
    on_cards = plan.unit == "card"
    columns = ["candidate", "what", "accuracy", "service settings", f"highest rate of a {plan.unit}", "limited by"]
    columns += ["cards", "servers", "N+1"] if on_cards else ["processes", "N+1"]
    priced = plan.demand.price_per_hour is not None
    table = Table(*columns, "P50 / P99 ms", *(["cost a month"] if priced else []), title="The fleet")
    for member in plan.members:
        row = [member.candidate_id[:12], member.what, "-" if member.accuracy is None else f"{member.accuracy:.4f}"]
        row.append(str(member.settings))
        highest = member.highest
        if highest is None:
            table.add_row(*map(Text, [*row, f"none: P99 is {member.lowest_p99_ms:.1f} ms at least", ""]))
            continue
        row += [f"{highest.load.rate_per_s or highest.throughput_per_s.value:,.0f}/s", member.limited_by or ""]
        row += [f"{member.cards:,}", *([f"{member.servers:,}"] if on_cards else []), f"{member.cards_to_lose_one:,}"]
        if (now := member.planned) is not None:
            p99 = now.p99_ms
            row.append(f"{now.p50_ms.value:.1f} / {p99.value:.1f} [{p99.low:.1f}, {p99.high:.1f}]")
        if (cost := plan.cost_a_month(member)) is not None:
            row.append(f"{cost:,.0f}")
        table.add_row(*map(Text, row))
    return table
