"""Cells and numbers of written reports: one way to write a figure, an interval, and what nobody measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

from workbench.report.written.document import (
    Block,
    Cell,
    Heading,
    Paragraph,
    ParagraphKind,
    Section,
    Table,
)
from workbench.report.written.texts import chinese, say
from workbench.values.evidence import Evidence
from workbench.values.measurement import Estimate

_UNITS = {"/s": "samples/s"}
"""What a unit is called in English, where that is not the unit itself."""


def unit_words(unit: str) -> str:
    name = _UNITS.get(unit, unit)
    return say(name) if name in chinese()["texts"] else name


def number(value: float) -> str:
    """Four digits or so: '6,400', '176.3', '12.34', '0.9433', '3.1e-05'."""
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size >= 1000 or value == int(value):
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    if size >= 10:
        return f"{value:.2f}"
    return f"{value:.3f}" if size >= 1 else f"{value:.4g}"


def cosine(value: float) -> str:
    """Six digits: limits on it lie at 0.999 and above."""
    return f"{value:.6f}"


def estimate_words(found: Estimate, *, signed: bool = False, digits: int | None = None) -> str:
    """'12.34 [12.01, 12.70]'; a figure without an interval stands alone."""

    def one(value: float) -> str:
        text = number(value) if digits is None else f"{value:,.{digits}f}"
        return f"+{text}" if signed and value > 0 else text

    if found.low == found.high:
        return one(found.value)
    return f"{one(found.value)} [{one(found.low)}, {one(found.high)}]"


def heading(english: str) -> Heading:
    return Heading(text=say(english))


def paragraph(english: str, *, kind: ParagraphKind = "plain", **values: object) -> Paragraph:
    return Paragraph(text=say(english, **values), kind=kind)


def section(title: str, blocks: Iterable[Block]) -> Section:
    return Section(title=say(title), blocks=tuple(blocks))


def table(
    caption: str,
    heads: str,
    rows: Iterable[tuple[Cell, ...]],
    *,
    strong: Iterable[int] = (),
    note: str = "",
    **values: object,
) -> Table:
    """Heads stand in one text, with '|' in between; `values` are filled into them and into the caption."""
    return Table(
        caption=say(caption, **values),
        heads=tuple(say(heads, **values).split("|")),
        rows=tuple(rows),
        strong=tuple(strong),
        note=note,
    )


def text(value: str) -> Cell:
    return Cell(text=value)


def label(english: str, **values: object) -> Cell:
    return Cell(text=say(english, **values))


def as_figure(words: str, evidence: Evidence | None = None) -> Cell:
    return Cell(text=words, evidence=evidence, figure=True)


def counted(value: float) -> Cell:
    return as_figure(number(value))


DASH = as_figure("–")


def figure(
    value: float | Estimate | None,
    evidence: Evidence | None = None,
    *,
    signed: bool = False,
    digits: int | None = None,
    unit: str = "",
) -> Cell:
    """A figure with how well it is known; 'not measured' for None."""
    if value is None:
        return not_measured()
    known = value if isinstance(value, Estimate) else Estimate(value=value, low=value, high=value)
    words = estimate_words(known, signed=signed, digits=digits)
    return as_figure(f"{words} {unit_words(unit)}".rstrip(), evidence)


def not_measured(*, figure: bool = True) -> Cell:
    return Cell(text=say("not measured"), state="open", figure=figure)


def moment(at: str) -> str:
    """'2026-03-01 14:05 UTC' of ISO 8601; another text as it is."""
    try:
        read = datetime.fromisoformat(at)
    except ValueError:
        return at
    zone = read.tzname() or ""
    return f"{read:%Y-%m-%d %H:%M} {zone}".rstrip()
