"""A written report as Markdown: pipe tables, and its pictures as files beside it."""

from __future__ import annotations

import re

from workbench.report.written.document import (
    Block,
    Bullets,
    Commands,
    Document,
    Figure,
    Heading,
    Paragraph,
    Table,
)
from workbench.report.written.drawing import svg
from workbench.report.written.marks import marked
from workbench.report.written.texts import speaking

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def markdown(document: Document, pictures: str) -> tuple[str, dict[str, str]]:
    """The text, and name → SVG of its pictures.

    Args:
        document: `numbered` already.
        pictures: folder that the text expects them in, relative to itself.
    """
    drawn: dict[str, str] = {}
    lines = [f"# {_text(document.title)}", "", _text(document.subtitle), ""]
    if document.mark:
        lines += [f"> **{_text(document.mark)}**", ""]
    lines += ["| | |", "|---|---|", *(f"| {_cell(name)} | {_cell(value)} |" for name, value in document.facts), ""]
    for section in document.sections:
        lines += [f"## {_text(section.title)}", ""]
        for block in section.blocks:
            with speaking(document.language):
                lines += [*_block(block, pictures, drawn), ""]
    return "\n".join(lines).rstrip() + "\n", drawn


def _block(block: Block, pictures: str, drawn: dict[str, str]) -> list[str]:
    if isinstance(block, Heading):
        return [f"### {_text(block.text)}"]
    if isinstance(block, Paragraph):
        text = _text(block.text)
        return [f"> **{text}**" if block.kind == "warning" else f"> {text}" if block.kind == "verdict" else text]
    if isinstance(block, Bullets):
        return [f"- {_text(item)}" for item in block.items]
    if isinstance(block, Commands):
        return ["```", *block.lines, "```"]
    if isinstance(block, Figure):
        name = f"{len(drawn) + 1}.svg"
        drawn[name] = svg(block.chart)
        note = ["", _text(block.note)] if block.note else []
        return [f"![{_text(block.caption)}]({pictures}/{name})", "", f"**{_text(block.caption)}**", *note]
    return _table(block)


def _table(table: Table) -> list[str]:
    figures = map(table.all_figures, range(len(table.heads)))
    lines = [
        f"**{_text(table.caption)}**",
        "",
        "| " + " | ".join(map(_cell, table.heads)) + " |",
        "|" + "|".join("---:" if right else "---" for right in figures) + "|",
    ]
    for index, row in enumerate(table.rows):
        texts = [_cell(marked(cell)) for cell in row]
        strong = [f"**{text}**" if index in table.strong and text else text for text in texts]
        lines.append("| " + " | ".join(strong) + " |")
    return [*lines, "", _text(table.note)] if table.note else lines


def _cell(text: str) -> str:
    return _text(text).replace("\n", "<br>")


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
