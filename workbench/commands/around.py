"""The commands around it: `cache`, what the store holds and what machines share; `cluster`, what a cluster has; and
`emulator`, which starts the CANN emulator's own program. Nothing of the workbench imports the emulator.

    eval "$(workbench emulator env)"
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from workbench.commands.console import out, print_json, say
from workbench.commands.options import AsJson, seconds
from workbench.values.system.lifeline import run_tied


def cache(
    workspace: Annotated[Path, typer.Option(help="folder of .workbench/")] = Path(),
    prune: Annotated[bool, typer.Option("--prune", help="delete entries, least recently used first")] = False,
    keep: Annotated[float, typer.Option(min=0, help="with --prune: keep at most so many GB")] = 0.0,
    older_than: Annotated[str | None, typer.Option(help="with --prune: only what was unused for 12h, 90m")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="with --prune: only this kind; repeat for several")] = None,
) -> None:
    """Show what the store holds, and prune it. Sweeps (journals) are never touched."""
    from workbench.evaluation.store import open_store

    with open_store(workspace) as opened:
        if prune:
            age = None if older_than is None else seconds(older_than, "--older-than")
            removed, freed_bytes, in_use = opened.prune(keep_bytes=int(keep * 1e9), older_than_s=age, kinds=kind)
            busy = f"; {in_use} in use were left" if in_use else ""
            say(f"removed {removed} entries, {freed_bytes / 1e6:.1f} MB{busy}")
        table = Table("kind", "entries", "MB")
        for kind_of, (entries, size_bytes) in opened.usage().items():
            table.add_row(kind_of, str(entries), f"{size_bytes / 1e6:.1f}")
        left, shared = opened.unpublished, opened.shared
    out.print(table)
    if left:
        where = f"{shared.url} does" if shared is not None else "a shared store does"
        say(f"{left} results are here that {where} not have yet")


def cluster(
    address: Annotated[str, typer.Argument(help="HOST:PORT of its head, auto, or a cluster's YAML file")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Show the nodes and cards of a Ray cluster, and how many are free."""
    from workbench.search.executors.ray.connection import cluster_settings
    from workbench.search.executors.ray.nodes import overview_of

    found = overview_of(cluster_settings(address))
    if as_json:
        print_json(found)
        return
    table = Table("node", "id", "processors", "cards")
    for node in found["nodes"]:
        cards = ", ".join(f"{n} {name}" for name, n in node["cards"].items()) or "none"
        table.add_row(node["host"], node["identity"][:6], str(node["processors"]), cards)
    out.print(table)
    say(f"{found['totals']['cards']} cards, {found['totals']['free']} of them free")


_RUN = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('workbench.cann_emulator', run_name='__main__', alter_sys=True)"
)
"""This very workbench, wherever it lies: its folder goes to the child by argument, and PYTHONPATH stays as it is."""

emulator = typer.Typer(
    name="emulator",
    help="Rehearse on an emulated CANN 8.5.0 with a 910B3; every result says that it is emulated.",
    no_args_is_help=True,
    add_completion=False,
)
_PROGRAMS = {
    "env": 'Print the lines that switch it on, for eval "$(…)". Options: --root --devices --hbm-mb.',
    "fit": "Fit the emulator's model of time to an msprof summary of a real device.",
    "remove": "Delete what `env` wrote: --root DIR, or all of it in the user's cache.",
}


def _start(context: typer.Context) -> None:
    """Its words go through as they are; so does its exit code."""
    package, words = Path(__file__).parents[2], [str(context.info_name), *context.args]
    code = run_tied([sys.executable, "-P", "-c", _RUN, str(package), *words])
    if code:
        raise typer.Exit(code if code > 0 else 1)


for _name, _text in _PROGRAMS.items():
    given = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    emulator.command(_name, help=_text, context_settings=given)(_start)
