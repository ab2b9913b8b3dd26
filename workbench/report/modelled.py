"""What modelled times rest on: whose error weighs most in the recommended candidate, and what would narrow it."""

from __future__ import annotations

import shlex

from workbench.report.summary import Summary
from workbench.report.table import Line, wrapped
from workbench.values.modelled_times.figures import ErrorShare, error_shares

MOST = 10
"""Errors that are named: what measurements on a card would narrow intervals most."""
_HEAD = "Modelled, not measured"


def modelled_errors(summary: Summary) -> tuple[ErrorShare, ...]:
    """Of the recommended candidate, else of the first on the front; none where times were measured."""
    chosen = None if summary.recommended is None else summary.find(summary.recommended.candidate_id)
    found = chosen or next((member.evaluation for member in summary.front), None)
    if found is None or not summary.emulated or found.measurement.latency is None:
        return ()
    return error_shares(found.measurement.latency)[:MOST]


def error_lines(summary: Summary) -> list[Line]:
    """For a terminal; nothing where times were measured."""
    found = modelled_errors(summary)
    if not found:
        return []
    lines: list[Line] = [(f"{_HEAD}; what its time rests on, by what that may be off by:", "bold")]
    for number, one in enumerate(found, 1):
        lines += wrapped(f"  {number}. {one.about}: {one.words()}", indent=" " * 5)
        lines.append((f"     {one.command}", "dim"))
    return [*lines, (f"     {again(summary.experiment_file)}", "dim")]


def again(source: str) -> str:
    """The command that shows the same sweep with what was measured."""
    return f"workbench show {shlex.quote(source)} --clock clock.json"
