"""A written report as values: sections of paragraphs, lists, tables, pictures and commands, in one language.

    document = numbered(Document(language="en", title=…, sections=(…)))

Sections say what is in it, writers (`files`, `docx_writer`) how it looks; neither knows the other.
Every text is plain: writers escape it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from workbench.values.evidence import Evidence

Language = Literal["zh", "en"]
State = Literal["plain", "met", "missed", "open"]
"""Of a cell: nothing to judge; a goal that is kept; one that is not; one of which that cannot be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table.

    Attributes:
        evidence: how well its figure is known; what was not measured on the thing itself is marked in the cell.
        figure: numbers stand at the right.
    """

    text: str
    evidence: Evidence | None = None
    state: State = "plain"
    figure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Attributes:
    caption: what it shows; `numbered` puts its number before it.
    strong: rows, from 0, that are set in bold.
    note: what must be known to read it; empty for nothing.
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    strong: tuple[int, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.heads):
                raise ValueError(f"{self.caption}: a row of {len(row)} cells below {len(self.heads)} heads")

    def all_figures(self, column: int) -> bool:
        """Whether every cell of a column is one, so that its head stands at the right too."""
        return bool(self.rows) and all(row[column].figure for row in self.rows)


ParagraphKind = Literal["plain", "verdict", "note", "warning"]
"""A verdict is framed, a note small, a warning must not be overlooked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    text: str
    kind: ParagraphKind = "plain"
    state: State = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Of a part of a section."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Lines to be typed, kept as they are."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Attributes: low, high: the interval, or None where the figure has none."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    evidence: Evidence | None = None
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Attributes: draw: one of `drawing`'s charts, which draws on matplotlib's axes."""

    caption: str
    draw: Callable[[Any], None]
    height_inches: float = 3.4
    note: str = ""


Block = Paragraph | Heading | Bullets | Commands | Table | Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report in one language.

    Attributes:
        mark: what every page must say, such as that nothing was measured on a device; empty for nothing.
        facts: (name, value) below the title.
    """

    language: Language
    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    mark: str = ""


_NUMBERED = {"zh": ("表 {}　{}", "图 {}　{}"), "en": ("Table {}. {}", "Figure {}. {}")}


def numbered(document: Document) -> Document:
    """The same with numbers before the titles of sections and their parts, and before captions."""
    table_form, figure_form = _NUMBERED[document.language]
    tables = figures = 0
    sections = []
    for index, section in enumerate(document.sections, 1):
        blocks: list[Block] = []
        parts = 0
        for block in section.blocks:
            if isinstance(block, Heading):
                parts += 1
                block = replace(block, text=f"{index}.{parts} {block.text}")
            elif isinstance(block, Table):
                tables += 1
                block = replace(block, caption=table_form.format(tables, block.caption))
            elif isinstance(block, Figure):
                figures += 1
                block = replace(block, caption=figure_form.format(figures, block.caption))
            blocks.append(block)
        sections.append(replace(section, title=f"{index} {section.title}", blocks=tuple(blocks)))
    return replace(document, sections=tuple(sections))
