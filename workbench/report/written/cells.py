"""Cells and numbers of written reports: one way to write a figure, an interval, and what nobody measured."""

from __future__ import annotations

import math
from datetime import datetime

from workbench.report.written.document import Cell, Language, State
from workbench.report.written.marks import NOT_MEASURED
from workbench.report.written.texts import Text
from workbench.values.evidence import Evidence
from workbench.values.measurement import Estimate

_UNITS = {
    "requests/s": Text(zh="请求/s", en="requests/s"),
    "/s": Text(zh="样本/s", en="samples/s"),
    "pp": Text(zh="个百分点", en="pp"),
    "x": Text(zh="倍", en="x"),
    "s": Text(zh="s", en="s"),
}


def unit_words(unit: str, language: Language) -> str:
    known = _UNITS.get(unit)
    return unit if known is None else known(language)


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


def text(value: str) -> Cell:
    return Cell(text=value)


def label(of: Text, language: Language) -> Cell:
    return Cell(text=of(language))


def figure(
    value: float | Estimate | None,
    language: Language,
    evidence: Evidence | None = None,
    *,
    signed: bool = False,
    digits: int | None = None,
    unit: str = "",
) -> Cell:
    """A figure with how well it is known; 'not measured' for None."""
    if value is None:
        return not_measured(language)
    if isinstance(value, Estimate):
        words = estimate_words(value, signed=signed, digits=digits)
    else:
        words = estimate_words(Estimate(value=value, low=value, high=value), signed=signed, digits=digits)
    unit = unit_words(unit, language)
    return Cell(text=f"{words} {unit}".rstrip(), evidence=evidence, figure=True)


def not_measured(language: Language, *, figure: bool = True) -> Cell:
    return Cell(text=NOT_MEASURED(language), state="open", figure=figure)


def judged(words: str, state: State) -> Cell:
    return Cell(text=words, state=state)


def moment(at: str) -> str:
    """'2026-03-01 14:05 UTC' of ISO 8601; another text as it is."""
    try:
        read = datetime.fromisoformat(at)
    except ValueError:
        return at
    zone = read.tzname() or ""
    return f"{read:%Y-%m-%d %H:%M} {zone}".rstrip()
