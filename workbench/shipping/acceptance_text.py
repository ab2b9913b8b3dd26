"""The verdict against another platform's figures as lines of a terminal."""

from __future__ import annotations

from workbench.load.text import estimate_words, short
from workbench.shipping.acceptance import Verdict


def verdict_lines(verdict: Verdict) -> list[str]:
    """One line for each criterion, then the outcome."""
    rows = [("criterion", "measured", "published", "limit", "", "")]
    for c in verdict.criteria:
        unit = f" {c.unit}" if c.unit else ""
        measured = "–" if c.figure is None else estimate_words(c.figure) + unit
        published = "–" if c.published is None else f"{short(c.published)}{unit}"
        limit = "–" if c.limit is None else f"{c.bound} {short(c.limit)}"
        rows.append((c.name, measured, published, limit, c.outcome, c.note))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [f"against {verdict.baseline} ({verdict.source})"]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:5], widths, strict=True)]
        lines.append(("  " + "  ".join([*cells, row[5]])).rstrip())
    lines.append(f"verdict: {verdict.outcome}")
    return lines
