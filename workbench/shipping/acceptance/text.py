"""The verdict against another platform's figures as lines of a terminal."""

from __future__ import annotations

from workbench.load.text import short
from workbench.shipping.acceptance.verdict import Criterion, Verdict
from workbench.values.measurement import Estimate

_REHEARSAL = "a rehearsal: figures of the device are modelled, and prove nothing of one"


def verdict_lines(verdict: Verdict) -> list[str]:
    """One line for each criterion, then the outcome."""
    rows = [("criterion", "ours", "level", "theirs", "limit", "", "")]
    for c in verdict.criteria:
        unit = f" {c.unit}" if c.unit else ""
        ours = "–" if c.figure is None else _interval(c.figure) + unit
        if c.share_percent is not None and c.limit is not None:
            ours += f" = {_interval(c.share_percent)} %"
        published = "–" if c.published is None else f"{short(c.published)}{unit}"
        limit = "–" if c.limit is None else f"{c.bound} {_number(c.limit)}"
        rows.append((c.name, ours, c.level or "–", published, limit, c.outcome, _note(c)))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    answers = f"; its answers: {verdict.answers}" if verdict.answers else ""
    lines = [f"against {verdict.baseline} ({verdict.theirs}; {verdict.source}{answers})"]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:6], widths, strict=True)]
        lines.append(("  " + "  ".join([*cells, row[6]])).rstrip())
    mark = f" ({_REHEARSAL})" if verdict.level == "modelled" else ""
    lines.append(f"verdict: {verdict.outcome}{mark}")
    return lines


def _note(criterion: Criterion) -> str:
    return "; ".join(part for part in (criterion.note, criterion.needed) if part)


def _interval(value: Estimate) -> str:
    if value.low == value.high:
        return _number(value.value)
    return f"{_number(value.value)} ({_number(value.low)} to {_number(value.high)})"


def _number(value: float) -> str:
    """Enough digits to see on which side of a limit it is: a cosine near 1 needs more than three."""
    if 0.99 < value < 1:
        return f"{value:.6f}"
    return f"{value:.3g}" if 0 < abs(value) < 0.01 else short(value)
