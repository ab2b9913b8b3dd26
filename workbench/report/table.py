"""The tables of a report: columns of numbers that never touch, and the baseline and the front in them.

The search's numbers stand above those of the held-out data.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Sequence

from workbench.report.summary import Summary
from workbench.report.words import SERVICE, drop_cell, interval, p50_words, scored
from workbench.values.candidate import Candidate
from workbench.values.evidence import cell, level_for
from workbench.values.measurement import Estimate, Latency
from workbench.values.metrics import METRICS, asked_beside, intervals, metrics, shown_in
from workbench.values.results import Evaluation

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
        first += [_joined({i: raised[i][k] for i in part}, widths) for k in range(deep)]
    return [first, *([_joined({i: row[i] for i in part}, widths) for part in parts] for row in rows[1:])]


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


def _joined(cells: dict[int, str], widths: Sequence[int]) -> str:
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


_LANGUAGE_LEGEND = (
    "Same letters: cannot be told apart in speed, accuracy and objectives. Intervals are 95 %. prefill, decode: "
    "modelled, measured nowhere, with what such times may be off by. int8/float counts linears. "
    "held-out: text the search never saw."
)
_LEGEND = (
    "Same letters: cannot be told apart in speed, accuracy and objectives. Intervals are 95 %. int8/float counts "
    "operators in integer kernels and matrix products left in float. held-out: data the search never saw, all anew."
)
_FIRST, _LEAST = 13, 8
"""Width of the column of evidence, and of any other, where there is room."""
_HARD_SPACE = "\N{NO-BREAK SPACE}"
"""Where a line must not break; printed as an ordinary space."""

Line = tuple[str, str]
"""(text, rich style)."""
_Cells = tuple[list[str], str]


def wrapped(text: str, style: str = "", indent: str = "  ") -> list[Line]:
    """A sentence in lines of at most `WIDTH`."""
    parts: Sequence[str] = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return [(part.replace(_HARD_SPACE, " "), style) for part in parts]


def table_lines(summary: Summary, width: int) -> list[Line]:
    """Heads, rows and legend."""
    chosen = summary.recommended.candidate_id if summary.recommended is not None else None
    rows: list[tuple[list[Line], list[_Cells]]] = []
    heads, baseline = _heads(summary), summary.baseline
    if baseline is not None and summary.member(summary.baseline_id) is None and baseline.status == "complete":
        rows.append(_row(summary, baseline, heads, "", marked=summary.baseline_id == chosen))
    for member in summary.front:
        rows.append(_row(summary, member.evaluation, heads, member.letters, marked=member.id == chosen))
    for member in summary.fallen:
        rows.append(_row(summary, member.evaluation, heads, "", marked=False, note=f"off the front: {member.against}"))
    every = [["", *heads.values()], *(cells for _, numbers in rows for cells, _ in numbers)]
    broken = iter(laid_out(every, [_FIRST, *(_LEAST for _ in heads)], width))
    found: list[Line] = [(line, "bold") for line in next(broken)]
    for name, numbers in rows:
        found += name
        for _, style in numbers:
            found += [(line, style) for line in next(broken)]
    language = baseline is not None and baseline.measurement.language is not None
    legend = _LANGUAGE_LEGEND if language else _LEGEND
    return [*found, *((text, "dim") for text in textwrap.wrap(legend, WIDTH, break_on_hyphens=False))]


def _row(
    summary: Summary, evaluation: Evaluation, heads: Iterable[str], marks: str, *, marked: bool, note: str = ""
) -> tuple[list[Line], list[_Cells]]:
    m = evaluation.measurement
    ops = f"int8/float{_HARD_SPACE}{m.int8_ops}/{m.float_matmuls_left}" if m.int8_ops is not None else ""
    mark = summary.recommended.mark if marked and summary.recommended is not None else ""
    facts = [mark, summary.title(evaluation.candidate), ops, note]
    if marks:
        facts.append(f"same: {marks}")
    style = "bold green" if marked else ""
    name = _name(evaluation.candidate, facts, style or "bold", marked=marked)
    numbers = [(_cells(evaluation, heads), style)]
    confirmed = summary.confirmations.get(evaluation.candidate.id)
    if confirmed is not None and confirmed.status == "complete":
        numbers.append((_cells(confirmed, heads), style or "dim"))
    elif confirmed is not None:
        name.append((f"    holdout: {confirmed.status} at {confirmed.stage_reached}", "red"))
    return name, numbers


def _name(candidate: Candidate, facts: Sequence[str], style: str, *, marked: bool) -> list[Line]:
    words = f"{'>' if marked else ' '} {candidate.short_id}  " + "  ".join(fact for fact in facts if fact)
    return wrapped(words, style, indent=" " * 16)


def _heads(summary: Summary) -> dict[str, str]:
    """Metric → head of its column: those of every report, and what else the experiment asks for."""
    by, baseline = scored(summary.evaluations), summary.baseline
    language = baseline is not None and baseline.measurement.language is not None
    own = {"accuracy": by.column, "accuracy_drop_pp": f"drop {by.drop_unit}"} | (
        {"speedup": "decode x"} if language else {}
    )
    usual = shown_in("language table" if language else "table")
    asked = [o.metric for o in summary.objectives] + [c.metric for c in summary.constraints]
    further = asked_beside(asked, (*usual, *SERVICE, by.drop_metric))
    heads = {name: own.get(name) or METRICS[name].head or name for name in (*usual, *further)}
    return {by.drop_metric if name == "accuracy_drop_pp" else name: head for name, head in heads.items()}


def _cells(evaluation: Evaluation, heads: Iterable[str]) -> list[str]:
    m = evaluation.measurement
    level = level_for(evaluation, ("accuracy",) if m.language is not None else ("accuracy", "latency_p50_ms"))
    known = "" if level is None else cell(level, held_out=evaluation.split == "holdout")
    values: dict[str, float | Estimate] = metrics(evaluation) | intervals(evaluation)
    if m.accuracy is not None:
        values["accuracy"] = m.accuracy.values[m.accuracy.primary]
    return [known, *(_written(name, values.get(name), m.latency) for name in heads)]


def _written(name: str, value: float | Estimate | None, latency: Latency | None) -> str:
    if value is None:
        return ""
    if name == "latency_p50_ms" and latency is not None:
        return p50_words(latency)
    if isinstance(value, Estimate):
        digits = int(METRICS[name].form[1:-1])
        unit = "x" if METRICS[name].unit == "x" else ""
        return drop_cell(value) if name.startswith("accuracy_drop") else interval(value, unit, digits)
    return f"{value:{METRICS[name].form}}"
