"""What written reports say, in the language that is spoken: English where it is used, Chinese in `chinese.json`.

There is one way to write a figure, an interval, how well it is known, and what nobody measured.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

from workbench.report.written.document import (
    Block,
    Cell,
    Heading,
    Language,
    Paragraph,
    ParagraphKind,
    Section,
    Table,
)
from workbench.report.written.drawing import chinese_font
from workbench.values.evidence import Evidence
from workbench.values.measurement import Estimate

_SPOKEN: ContextVar[Language] = ContextVar("spoken", default="en")


@functools.cache
def chinese() -> dict[str, Any]:
    """`texts`: English → Chinese. `notes`: patterns of what verdicts say in English, each with its Chinese; `words` in
    them, the longer first. `clock`: what a target calls open of its clock."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("chinese.json").read_text(encoding="utf-8"))
    return found


def say(english: str, /, **values: object) -> str:
    """The text in the language that is spoken; `{name}` is filled in. What follows a '¦' is not said: it tells two
    meanings of one English text apart."""
    text = chinese()["texts"][english] if spoken() == "zh" else english.partition("¦")[0]
    return str(text).format(**values)


def spoken() -> Language:
    return _SPOKEN.get()


@contextlib.contextmanager
def speaking(language: Language) -> Iterator[None]:
    before = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


@contextlib.contextmanager
def in_pictures() -> Iterator[None]:
    """English where this machine has no letters for the language that is spoken."""
    with speaking("en" if chinese_font() is None else spoken()):
        yield


LEVEL: dict[Evidence, str] = {
    "measured held-out": "measured on held-out data",
    "measured": "measured",
    "shared": "shared",
    "predicted": "predicted",
    "modelled": "modelled",
}
MEANING: dict[Evidence, str] = {
    "measured held-out": "measured afresh on data that the search never saw",
    "measured": "measured in the search",
    "shared": "measured on another candidate whose files behave alike",
    "predicted": "simulated from measurements, under no real load",
    "modelled": "by a model of the device (an emulator), measured on no device",
}
_MARKED: tuple[Evidence, ...] = ("shared", "predicted", "modelled")
"""What was not measured on the thing itself; the others are plain."""


def key() -> str:
    """What the marks mean, in a sentence."""
    said = [
        say("({mark}) {meaning}", mark=say(LEVEL[level]), meaning=say(MEANING[level])) for level in reversed(_MARKED)
    ]
    return say("Marks of figures: {marks}; unmarked: measured.", marks=say("; ").join(said))


def marked(cell: Cell) -> str:
    """A cell's text with its mark: '1659/s (modelled)', '1659 次/s〔推算〕'."""
    if cell.evidence not in _MARKED:
        return cell.text
    word = say(LEVEL[cell.evidence])
    return f"{cell.text}〔{word}〕" if spoken() == "zh" else f"{cell.text} ({word})"


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
    """'12.3 [12.0, 12.7]': as many decimals as give the interval two digits; a figure without one stands alone."""
    spread = found.high - found.low
    if digits is None and 0 < spread < math.inf:
        digits = max(0, 1 - math.floor(math.log10(spread)))

    def one(value: float) -> str:
        text = number(value) if digits is None else f"{value:,.{digits}f}"
        return f"+{text}" if signed and value > 0 else text

    if not spread:
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
