"""`workbench cache`: what the store holds, and making room."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from workbench.api.opening import open_store
from workbench.commands.console import out
from workbench.commands.options import seconds


def cache(
    workspace: Annotated[Path, typer.Option(help="folder of .workbench/")] = Path(),
    prune: Annotated[bool, typer.Option("--prune", help="delete entries, least recently used first")] = False,
    keep: Annotated[float, typer.Option(min=0, help="with --prune: keep at most so many GB")] = 0.0,
    older_than: Annotated[str | None, typer.Option(help="with --prune: only what was unused for 12h, 90m")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="with --prune: only this kind; repeat for several")] = None,
) -> None:
    """Show what the store holds, and prune it. Sweeps (journals) are never touched."""
    with open_store(workspace) as store:
        if prune:
            age = None if older_than is None else seconds(older_than, "--older-than")
            done = store.prune(keep_bytes=int(keep * 1e9), older_than_s=age, kinds=kind)
            busy = f"; {done.in_use} in use were left" if done.in_use else ""
            out.print(f"removed {done.removed} entries, {done.freed_bytes / 1e6:.1f} MB{busy}", highlight=False)
        table = Table("kind", "entries", "MB")
        for usage in store.usage():
            table.add_row(usage.kind, str(usage.entries), f"{usage.size_bytes / 1e6:.1f}")
    out.print(table)
