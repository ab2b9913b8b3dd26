"""How findings are shown, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from workbench.values.documents.canonical import encode
from workbench.values.finding import Finding

if TYPE_CHECKING:
    from rich.table import Table


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when the workbench can work here, 1 when something it requires fails."""
    return int(any(finding.status == "fail" for finding in findings))


def findings_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """`{"version": 1, "usable": true, "findings": [{"group", "name", "status", "value", "remedy"}, …]}`."""
    return {"version": 1, "usable": exit_code(findings) == 0, "findings": [encode(finding) for finding in findings]}


def findings_table(findings: Iterable[Finding]) -> Table:
    """A table for the terminal: groups as headings, a remedy below what was found."""
    from rich.table import Table  # not at the top: a required package, so a missing one is to be a finding
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    group = None
    for finding in findings:
        # Text, not str: a path or pip's `[export]` would be taken for markup
        if finding.group != group:
            if group is not None:
                table.add_row()
            group = finding.group
            table.add_row("", "", Text(group, "bold", overflow="fold"))
        remedy = f"\n→ {finding.remedy}" if finding.remedy else ""
        table.add_row(
            Text(finding.status, colours[finding.status]),
            Text(finding.name),
            Text(finding.value + remedy, overflow="fold"),
        )
    return table
