"""Columns of numbers that never touch: as wide as what stands in them, and in several lines where one is too narrow."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 112
"""Of a report where no terminal is narrower."""
INDENT = 2


def laid_out(rows: Sequence[Sequence[str]], least: Sequence[int], width: int) -> list[list[str]]:
    """The lines of each row, cells aligned to the right and every line as long as the width allows.

    All rows are broken at the same columns, so that a number stands below its head whatever the width; the lines after
    the first are indented by the first column.

    Args:
        rows: the heads first; all with as many cells.
        least: width of each column where nothing longer stands in it.
    """
    widths = [max(least[i], *(len(row[i]) + 1 for row in rows)) for i in range(len(least))]
    parts: list[list[int]] = [[]]
    used = INDENT
    for column, wide in enumerate(widths):
        if parts[-1] and used + wide > width:
            parts.append([])
            used = INDENT + widths[0]
        parts[-1].append(column)
        used += wide
    lead = " " * INDENT
    return [
        [
            (lead + " " * (widths[0] * (number > 0)) + "".join(f"{row[i]:>{widths[i]}}" for i in part)).rstrip()
            for number, part in enumerate(parts)
        ]
        for row in rows
    ]
