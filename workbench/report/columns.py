"""Columns of numbers that never touch: as wide as what stands in them, and in several lines where one is too narrow."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

WIDTH = 112
"""Of a report where no terminal is narrower."""
INDENT = 2
_LAST = 3
"""Columns that stand together on the last of several lines."""
_PIECES = re.compile(r"[^_. ]*[_. ]|[^_. ]+")
"""Of a head, which may be broken after a word."""


def laid_out(rows: Sequence[Sequence[str]], least: Sequence[int], width: int) -> list[list[str]]:
    """The lines of each row, cells aligned to the right and every line as long as the width allows.

    All rows are broken at the same columns, so that a number stands below its head whatever the width; the lines after
    the first are indented by the first column. Before a row is broken its columns move closer together, and a head
    that is longer than the numbers below it takes several lines.

    Args:
        rows: the heads first; all with as many cells.
        least: width of each column where nothing longer stands in it and there is room.
    """
    needed = [max((len(row[i]) for row in rows[1:]), default=0) + 1 for i in range(len(least))]
    heads = [_broken(head, max(*pair) - 1) for head, *pair in zip(rows[0], least, needed, strict=True)]
    closest = [max(need, *(len(part) + 1 for part in head)) for need, head in zip(needed, heads, strict=True)]
    widths = _spread(closest, [max(*pair) for pair in zip(closest, least, strict=True)], width - INDENT)
    parts = _parts(widths, width)
    first: list[str] = []
    for part in parts:
        deep = max(len(heads[i]) for i in part)
        raised = {i: [""] * (deep - len(heads[i])) + heads[i] for i in part}
        first += [_line({i: raised[i][k] for i in part}, widths) for k in range(deep)]
    return [first, *([_line({i: row[i] for i in part}, widths) for part in parts] for row in rows[1:])]


def _parts(widths: Sequence[int], width: int) -> list[list[int]]:
    """The columns of each line; a last line is not of one or two alone where it need not be."""
    parts: list[list[int]] = [[]]
    used = INDENT
    for column, wide in enumerate(widths):
        if parts[-1] and used + wide > width:
            parts.append([])
            used = INDENT + widths[0]
        parts[-1].append(column)
        used += wide
    while len(parts) > 1 and len(parts[-1]) < _LAST < len(parts[-2]):
        if used + widths[parts[-2][-1]] > width:
            break
        moved = parts[-2].pop()
        parts[-1].insert(0, moved)
        used += widths[moved]
    return parts


def _line(cells: dict[int, str], widths: Sequence[int]) -> str:
    lead = INDENT + (0 if 0 in cells else widths[0])
    return (" " * lead + "".join(f"{cell:>{widths[i]}}" for i, cell in cells.items())).rstrip()


def _broken(head: str, width: int) -> list[str]:
    """A head in lines that are no longer than this, as far as its words allow."""
    lines = [""]
    for piece in _PIECES.findall(head):
        if lines[-1] and len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.strip() for line in lines]


def _spread(closest: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Widths between the two, as wide as the room allows; the closest ones where even they are too wide for it."""
    widths = list(closest)
    spare = room - sum(widths)
    for i in itertools.cycle(range(len(widths))):
        if spare <= 0 or widths == list(wanted):
            return widths
        if widths[i] < wanted[i]:
            widths[i] += 1
            spare -= 1
    return widths
