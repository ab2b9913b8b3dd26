"""A document as a file: HTML with everything inside, Markdown with its pictures beside it, or Word (`docx_writer`)."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from workbench.report.written.cells import column_shares, marked, speaking
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
from workbench.values.documents.templates import rendered
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import write_bytes_atomically, write_text_atomically
from workbench.values.versions import install_command

_PAGE = Path(__file__).parent.with_name("templates") / "written.html.j2"


def html_text(document: Document) -> str:
    """The page; `document` is `numbered` already. It loads nothing from anywhere."""
    language = {"zh": "zh-CN", "en": "en"}[document.language]
    with speaking(document.language):
        return rendered(_PAGE, document=document, language=language, shares=column_shares, marked=marked, svg=svg)


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


FORMS = (".docx", ".html", ".md")


def check_form(to: Path) -> None:
    """Raises:
    ConfigError: no writer for such a name.
    ToolchainError: the writer's package is not installed.
    """
    if to.suffix.lower() not in FORMS:
        raise ConfigError(f"{to.name!r} is none of {', '.join(FORMS)}.", key="--to", hint="Such as --to report.docx")
    if to.suffix.lower() == ".docx":
        try:
            import docx  # noqa: F401  # whether it is there
        except ModuleNotFoundError as error:
            raise ToolchainError(
                f"Word files need python-docx. Write .html or .md, or run: {install_command('report')}"
            ) from error


def write_report(document: Document, to: Path, *, created: datetime) -> list[Path]:
    """Write it, and the pictures of Markdown into a folder beside it; what stands there under these names is replaced.

    Raises:
        ConfigError: see `check_form`.
        ToolchainError: the same, or the file cannot be written.
    """
    check_form(to)
    to.parent.mkdir(parents=True, exist_ok=True)
    form = to.suffix.lower()
    if form == ".docx":
        from workbench.report.written.docx_writer import docx_bytes

        write_bytes_atomically(to, docx_bytes(document, created=created))
        return [to]
    if form == ".html":
        write_text_atomically(to, html_text(document))
        return [to]
    folder = to.with_name(f"{to.stem}-pictures")
    text, pictures = markdown(document, folder.name)
    if pictures:
        folder.mkdir(exist_ok=True)
    for name, drawn in pictures.items():
        write_text_atomically(folder / name, drawn)
    write_text_atomically(to, text)  # last: it names the pictures
    return [to, *(folder / name for name in pictures)]
