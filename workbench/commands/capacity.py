"""`workbench plan-capacity`: how many cards, servers and watts a demand takes, for each candidate worth shipping."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from workbench.commands.console import out, print_json, say, tell
from workbench.commands.options import AsJson, command_line, share, tell_damage_of_last
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
    """Size a fleet for a demand: cards, servers and cost, for the front, or the candidate named, and the baseline."""
    import numpy as np

    from workbench.api.opening import find_candidate, journal_of, refuse_language_model, summary_of
    from workbench.inputs.experiment import read_experiment
    from workbench.prediction.capacity import Demand
    from workbench.prediction.capacity import plan_capacity as plan_members
    from workbench.prediction.stage import service_choices, serving_lengths

    question = read_experiment(experiment, workspace)
    refuse_language_model(question, "plan of capacity")
    if question.service is None or question.space.service is None:
        raise ConfigError(
            "has no `service:` section, so its sweep measured no batch curves.",
            file=question.path,
            hint="Add service: {concurrency: 100, p99_ms: 50} to it and service: {max_batch_size: [1, 8, 32], "
            "batch_timeout_ms: [0, 2], workers: [1, 2]} to its space, then sweep; compiles come from the store.",
        )
    limit_ms = question.service.p99_ms if p99_ms is None else p99_ms
    if limit_ms is None:
        raise ConfigError(
            "the experiment sets no limit on P99, so one must be said.", key="--p99-ms", hint="Such as --p99-ms 100"
        )
    demand = Demand(
        rate_per_s=qps,
        p99_ms=limit_ms,
        headroom=share(headroom, "--headroom"),
        cards_per_server=cards_per_server,
        price_per_hour=price_per_hour,
    )
    journal = journal_of(question)
    tell_damage_of_last(question.workspace, question.name)
    summary, evaluations = summary_of(question, journal), journal.evaluations()
    named = None if candidate is None else find_candidate(candidate, journal)
    planned = [m.evaluation for m in summary.front] if named is None else [evaluations[named.id]]
    baseline = evaluations.get(question.baseline.id)
    if baseline is not None and baseline.measurement.service is not None and baseline not in planned:
        planned.append(baseline)
    # a confirmation's batch curve and load test are fresh, and nobody was chosen for them
    fresh = {i: e for i, e in journal.evaluations("holdout").items() if e.measurement.service is not None}
    chosen = [fresh.get(e.candidate.id, e) for e in planned]
    lengths = question.dataset.lengths("validation")
    plan = plan_members(
        chosen,
        demand,
        choices={e.candidate.id: service_choices(question, e.candidate) for e in chosen},
        lengths=np.zeros(1, dtype=np.int64) if lengths is None else lengths,
        bins={e.candidate.id: () if lengths is None else serving_lengths(question, e.candidate) for e in chosen},
        titles={e.candidate.id: summary.title(e.candidate) for e in chosen},
        baseline_id=question.baseline.id,
        host=question.service.host,
        seed=question.seed,
    )
    if as_json:
        print_json(replace(plan, command=command_line()).to_json())
        return
    if plan.emulated:
        tell("EMULATED: modelled times, not measured on a real device.", style="bold red")
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
