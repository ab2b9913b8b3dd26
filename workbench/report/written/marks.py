"""How every writer says how well a figure is known: in words, beside it, since a printed page has no colours."""

from __future__ import annotations

import re

from workbench.report.written.document import Cell, Language, Table
from workbench.report.written.texts import Text
from workbench.values.evidence import Evidence

LEVEL: dict[Evidence, Text] = {
    "measured held-out": Text(zh="留出集实测", en="measured on held-out data"),
    "measured": Text(zh="实测", en="measured"),
    "shared": Text(zh="共用实测", en="shared"),
    "predicted": Text(zh="预测", en="predicted"),
    "modelled": Text(zh="推算", en="modelled"),
}
MEANING: dict[Evidence, Text] = {
    "measured held-out": Text(
        zh="在搜索未使用过的留出集上重新测得", en="measured afresh on data that the search never saw"
    ),
    "measured": Text(zh="在搜索中测得", en="measured in the search"),
    "shared": Text(
        zh="取自产物内容等价的另一候选的实测值", en="measured on another candidate whose files behave alike"
    ),
    "predicted": Text(zh="由实测数据仿真得到，未经实际压测", en="simulated from measurements, under no real load"),
    "modelled": Text(
        zh="由设备模型（仿真器）推算，任何设备上都未测量过",
        en="by a model of the device (an emulator), measured on no device",
    ),
}
_MARKED: tuple[Evidence, ...] = ("shared", "predicted", "modelled")
"""What was not measured on the thing itself; the others are plain."""

NOT_MEASURED = Text(zh="未测", en="not measured")


_KEY = Text(zh="数值标记：{marks}；无标记为实测。", en="Marks of figures: {marks}; unmarked: measured.")
_KEY_ITEM = Text(zh="〔{mark}〕{meaning}", en="({mark}) {meaning}")


def key(language: Language) -> str:
    """What the marks mean, in a sentence."""
    said = [
        _KEY_ITEM(language, mark=LEVEL[level](language), meaning=MEANING[level](language))
        for level in reversed(_MARKED)
    ]
    return _KEY(language, marks=("；" if language == "zh" else "; ").join(said))


def marked(cell: Cell, language: Language) -> str:
    """A cell's text with its mark: '1659/s (modelled)', '1659 次/s〔推算〕'."""
    if cell.evidence not in _MARKED:
        return cell.text
    word = LEVEL[cell.evidence](language)
    return f"{cell.text}〔{word}〕" if language == "zh" else f"{cell.text} ({word})"


_PAGE_EM, _PADDING_EM, _LONGEST_EM = 54.0, 1.6, 14.0
"""Of the text of a table: the width of a page, what a cell leaves free at its sides, and the longest word that a column
is widened for, such as a path of a graph's nodes."""
_WORDS = re.compile(r"[\u2e80-\uffef]|[^\s\u2e80-\uffef]+?(?:-|(?=[\s\u2e80-\uffef]|$))")
"""What no program breaks: characters of Chinese one by one, others up to a blank or a hyphen."""
_NARROW, _WIDE = frozenset("iljtfrI.,:;|!'()[]-/"), frozenset("mwMW%@\N{EM DASH}")


def column_shares(table: Table, language: Language) -> tuple[float, ...]:
    """Of the page, for each column: `Table.widths`, but none is narrower than its longest word as far as others have
    room to give."""
    wanted = [width / sum(table.widths) for width in table.widths] or [1 / len(table.heads)] * len(table.heads)
    columns = zip(table.heads, *([marked(cell, language) for cell in row] for row in table.rows), strict=True)
    least = [(_PADDING_EM + max(map(_longest_em, texts))) / _PAGE_EM for texts in columns]
    spare = [max(0.0, width - need) for width, need in zip(wanted, least, strict=True)]
    short = sum(max(0.0, need - width) for width, need in zip(wanted, least, strict=True))
    if short >= sum(spare):
        return tuple(need / sum(least) for need in least)
    return tuple(
        max(width, need) - free * short / sum(spare) for width, need, free in zip(wanted, least, spare, strict=True)
    )


def fits(text: str, share: float) -> bool:
    """Whether a cell of so wide a column holds it in one line."""
    return sum(map(_em, text)) <= share * _PAGE_EM - _PADDING_EM


def _longest_em(text: str) -> float:
    """Roughly, by the widths of Arial's letters."""
    return min(_LONGEST_EM, max((sum(map(_em, word)) for word in _WORDS.findall(text)), default=0.0))


def _em(letter: str) -> float:
    if letter >= "\u2e80":
        return 1.0
    return 0.3 if letter in _NARROW else 0.88 if letter in _WIDE else 0.7 if letter.isupper() else 0.58
