"""One fact about the machine with what to do about it, and how many of them are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from workbench.values.documents.canonical import encode

if TYPE_CHECKING:
    from rich.table import Table

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about the machine.

    Attributes:
        group: heading it is shown under.
        status: 'fail' when the workbench cannot work because of it; 'warn' when something optional is missing, or
            something will disturb.
        value: what was found.
        remedy: what to do about it; empty when all is well.
    """

    group: str
    name: str
    status: Status
    value: str
    remedy: str = ""


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
