"""How every writer says how well a figure is known: in words, beside it, since a printed page has no colours."""

from __future__ import annotations

import re

from workbench.report.written.document import Cell, Table
from workbench.report.written.texts import say, spoken
from workbench.values.evidence import Evidence

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


_PAGE_EM, _PADDING_EM, _WORD_EM, _LINE_EM = 54.0, 1.6, 14.0, 38.0
"""Of the text of a table: the width of a page, what a cell leaves free at its sides; the longest word that a column
is widened for where there is no room for all of them, and the longest text."""
_WORDS = re.compile(r"[\u2e80-\uffef]|[^\s\u2e80-\uffef]+")
"""What no program breaks: characters of Chinese one by one, others up to a blank."""
_NARROW, _WIDE = frozenset("iljtfrI.,:;|!'()[]-/"), frozenset("mwMW%@")


def column_shares(table: Table) -> tuple[float, ...]:
    """Of the page, for each column: between its longest word and its longest text, as browsers share it."""
    columns = [*zip(table.heads, *([marked(cell) for cell in row] for row in table.rows), strict=True)]
    words = [max(_em(word) for text in column for word in _WORDS.findall(text) or [""]) for column in columns]
    lines = [max(_em(line) for text in column for line in text.split("\n")) for column in columns]
    for longest in (_LINE_EM, _WORD_EM):
        least = [_PADDING_EM + min(word, longest) for word in words]
        if (spare := _PAGE_EM - sum(least)) >= 0:
            break
    more = [_PADDING_EM + min(line, _LINE_EM) - need for line, need in zip(lines, least, strict=True)]
    part = min(1.0, max(0.0, spare) / (sum(more) or 1.0))
    found = [need + part * max(0.0, wish) for need, wish in zip(least, more, strict=True)]
    return tuple(width / sum(found) for width in found)


def fits(text: str, share: float) -> bool:
    """Whether a cell of so wide a column holds it in one line."""
    return _em(text) <= share * _PAGE_EM - _PADDING_EM


def _em(text: str) -> float:
    """Roughly, by the widths of Arial's letters."""
    by_kind = (0.3 if c in _NARROW else 1.0 if c in _WIDE or c >= "\u2e80" else 0.58 + 0.12 * c.isupper() for c in text)
    return sum(by_kind)
