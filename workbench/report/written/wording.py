"""What written reports say, in the language that is spoken: English where it is used, Chinese in `chinese.json`.

There is one way to write a figure, an interval, how well it is known, what nobody measured, and what something is
called. A verdict's notes are sentences in English; `chinese.json` has each in Chinese. One that is not known there
stands as it is written, in quotation marks: better those words than none.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

from workbench.load.result import LoadResult
from workbench.report.written.document import (
    Block,
    Cell,
    Heading,
    Language,
    Paragraph,
    ParagraphKind,
    Section,
    State,
    Table,
)
from workbench.report.written.drawing import chinese_font
from workbench.shipping.acceptance.verdict import Criterion, Key
from workbench.values.candidate import Candidate
from workbench.values.evidence import Evidence
from workbench.values.measurement import Estimate, Split
from workbench.values.metrics import declared
from workbench.values.setting_groups import describe

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
    text = str(chinese()["texts"][english]) if spoken() == "zh" else english.partition("¦")[0]
    return text.format(**values) if values else text


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


# --- blocks and cells ----------------------------------------------------------------------------------------------


def heading(english: str) -> Heading:
    return Heading(text=say(english))


def paragraph(english: str, *, kind: ParagraphKind = "plain", **values: object) -> Paragraph:
    return Paragraph(text=say(english, **values), kind=kind)


def section(title: str, blocks: Iterable[Block]) -> Section:
    return Section(title=say(title), blocks=tuple(blocks))


Row = Sequence[Cell | str]
"""Of a table: a text is a cell that is no figure."""


def table(
    caption: str,
    heads: str,
    rows: Iterable[Row],
    *,
    strong: Iterable[int] = (),
    note: str = "",
    **values: object,
) -> Table:
    """Heads stand in one text, with '|' in between; `values` are filled into them and into the caption."""
    return Table(
        caption=say(caption, **values),
        heads=tuple(say(heads, **values).split("|")),
        rows=tuple(tuple(Cell(text=cell) if isinstance(cell, str) else cell for cell in row) for row in rows),
        strong=tuple(strong),
        note=note,
    )


def figure(
    value: float | Estimate | str | None,
    evidence: Evidence | None = None,
    *,
    signed: bool = False,
    digits: int | None = None,
    unit: str = "",
) -> Cell:
    """A figure, or its words, with how well it is known; 'not measured' for None."""
    if value is None:
        return Cell(text=say("not measured"), state="open", figure=True)
    if not isinstance(value, str):
        known = value if isinstance(value, Estimate) else Estimate(value=value, low=value, high=value)
        value = f"{estimate_words(known, signed=signed, digits=digits)} {unit_words(unit)}".rstrip()
    return Cell(text=value, evidence=evidence, figure=True)


DASH = figure("–")


_MARKED: dict[Evidence, str] = {
    "modelled": "by a model of the device (an emulator), measured on no device",
    "predicted": "simulated from measurements, under no real load",
    "shared": "measured on another candidate whose files behave alike",
}
"""What was not measured on the thing itself, with what that means; other figures are plain."""


def key() -> str:
    """What the marks mean, in a sentence."""
    said = [say("({mark}) {meaning}", mark=say(level), meaning=say(meaning)) for level, meaning in _MARKED.items()]
    return say("Marks of figures: {marks}; unmarked: measured.", marks=say("; ").join(said))


def marked(cell: Cell) -> str:
    """A cell's text with its mark: '1659/s (modelled)', '1659 次/s〔推算〕'."""
    if cell.evidence not in _MARKED:
        return cell.text
    return f"{cell.text}〔{say(cell.evidence)}〕" if spoken() == "zh" else f"{cell.text} ({cell.evidence})"


def level_words(level: Evidence) -> str:
    return say("measured on held-out data" if level == "measured held-out" else level)


def unit_words(unit: str) -> str:
    name = "samples/s" if unit == "/s" else unit
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


def estimate_words(found: Estimate, *, signed: bool = False, digits: int | None = None) -> str:
    """'12.3 [12.0, 12.7]': as many decimals as give the interval two digits; a figure without one stands alone."""
    spread = found.high - found.low
    if digits is None and 0 < spread < math.inf:
        digits = max(0, 1 - math.floor(math.log10(spread)))

    def one(value: float) -> str:
        text = number(value) if digits is None else f"{value:,.{digits}f}"
        return f"+{text}" if signed and value > 0 else text

    return one(found.value) + (f" [{one(found.low)}, {one(found.high)}]" if spread else "")


def moment(at: str) -> str:
    """'2026-03-01 14:05 UTC' of ISO 8601; another text as it is."""
    try:
        read = datetime.fromisoformat(at)
    except ValueError:
        return at
    return f"{read:%Y-%m-%d %H:%M} {read.tzname() or ''}".rstrip()


# --- what things are called ----------------------------------------------------------------------------------------


SPLIT: dict[Split, str] = {"calibration": "calibration", "validation": "validation", "holdout": "held-out"}


def metric_name(metric: str) -> str:
    """One of the model's own outputs goes by its own name."""
    known = declared(metric)
    if known is None or not known.label:
        return metric
    return known.label_zh if spoken() == "zh" else known.label


def candidate_name(candidate: Candidate) -> str:
    """One phrase: 'INT8 静态量化，ifmr，激活对称，注意力矩阵乘一并量化，分桶 32 80 128 256'."""
    return translated(describe(candidate))


def translated(words: str) -> str:
    """Words of settings, loads and length bins: 'batch 至多 16，等待 10 ms，2 个工作进程，分桶 32 64'. What is not
    known in Chinese, such as the name of an algorithm, stands as it is."""
    return "，".join(_chinese(part) or part for part in words.split(", ")) if spoken() == "zh" else words


def loaded_name(one: LoadResult) -> str:
    """The load with what each request was: 'closed loop' alone compares nothing."""
    words = [translated(str(one.load))]
    if one.length is not None:
        words.append(say("length {n}", n=one.length))
    if one.batch > 1:
        words.append(f"batch {one.batch}")
    return say(", ").join(words)


_NAMES: dict[Key, str] = {
    "throughput": "throughput",
    "p50": "P50 latency",
    "p95": "P95 latency",
    "p99": "P99 latency",
    "accuracy drop": "accuracy loss",
    "top-1 change": "top-1 change",
    "cosine": "cosine of the float path",
    "served cosine": "cosine of what ships",
    "max abs": "max abs error of the float path",
    "mae": "MAE of the float path",
    "int8 throughput": "INT8 throughput over float's",
    "memory": "memory",
    "power": "power",
}


def criterion_name(criterion: Criterion) -> str:
    """With the load, where there are several."""
    _, _, load = criterion.name.partition(" at ")
    return say(_NAMES[criterion.key]) + (say(" at {load}", load=note_words(load)) if load else "")


def about_words(criterion: Criterion) -> str:
    """Under what conditions it was measured or why it was not, and how much data would decide it."""
    return say("; ").join(note_words(part) for part in (criterion.note, criterion.needed) if part)


_OUTCOMES: dict[str, tuple[str, State]] = {
    "passed": ("met", "met"),
    "failed": ("MISSED", "missed"),
    "not measured": ("not measured", "open"),
    "no limit": ("no limit", "plain"),
    "not provable": ("not provable with this much data", "open"),
    "does not apply": ("does not apply", "plain"),
    "predicted, within": ("not measured (predicted within)", "open"),
    "predicted, beyond": ("not measured (predicted beyond)", "open"),
}


def state_of(outcome: str) -> State:
    """An outcome that is not known here is no met goal."""
    return _OUTCOMES.get(outcome, ("", "open"))[1]


def outcome_cell(outcome: str, *, limited: bool, emulated: bool) -> Cell:
    """Args: limited: there is a limit to judge by; emulated: what is kept there is kept in a rehearsal."""
    words = say(_OUTCOMES[outcome][0]) if outcome in _OUTCOMES else outcome
    state = state_of(outcome) if limited else "plain"
    if emulated and outcome in ("passed", "failed"):
        words = say("met (emulated)") if outcome == "passed" else say("MISSED (emulated)")
        state = "open" if state == "met" else state
    return Cell(text=words, state=state)


def note_words(note: str) -> str:
    if spoken() == "en" or not note:
        return note
    return "；".join(_chinese(part) or f"“{part}”" for part in map(str.strip, re.split(r"[;,] ", note)))


def _chinese(part: str) -> str:
    for pattern, form in chinese()["notes"]:
        if found := re.fullmatch(pattern, part):
            said: str = found.expand(form)
            for english, word in chinese()["words"]:
                said = said.replace(english, word)
            return said
    return ""
