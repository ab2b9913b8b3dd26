"""`workbench cluster`: what a cluster has, and who uses it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from workbench.commands.console import out, print_json, say, tell
from workbench.commands.options import AsJson


def cluster(
    address: Annotated[str, typer.Argument(help="HOST:PORT of its head, auto, or a cluster's YAML file")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Show the nodes and cards of a Ray cluster: free, busy, quarantined, and what waits for them."""
    from workbench.api.cluster import cluster_overview
    from workbench.values.documents.canonical import encode

    found = cluster_overview(address)
    counts = {state: found.counted(state) for state in ("busy", "quarantined")}
    free = found.cards - sum(counts.values())
    waiting = sum(sweep.waiting for sweep in found.sweeps)
    if as_json:
        totals = {"cards": found.cards, "free": free, **counts, "waiting": waiting}
        print_json({**encode(found), "totals": totals})
        return
    nodes = Table("node", "id", "processors", "cards")
    for node in found.nodes:
        cards = ", ".join(f"{count} {name}" for name, count in node.cards.items())
        nodes.add_row(node.host, node.identity[:6], str(node.processors), cards or "none")
    out.print(nodes)
    said = ", ".join(f"{count} {state}" for state, count in counts.items())
    say(f"{found.cards} cards: {free} free, {said}; {waiting} candidates wait for one")
    if not found.sweeps:
        say("No sweep uses it.")
        return
    held = Table("sweep", "experiment", "card", "state", "at")
    for sweep in found.sweeps:
        for card in sweep.cards:
            held.add_row(sweep.name, sweep.experiment, f"{card.host} {card.card}".strip(), card.state, card.what)
        if not sweep.cards:
            held.add_row(sweep.name, sweep.experiment, "none", f"wants {sweep.wants}", "")
    out.print(held)
    for sweep in found.sweeps:
        for identity, why in sweep.refused.items():
            tell(f"{sweep.name}: node {identity[:6]} is refused: {why}")
