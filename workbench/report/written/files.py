"""A document as a file, HTML with everything inside or Word (`docx_writer`); and on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.report.written.document import Block, Bullets, Commands, Document, Heading, Paragraph, State, Table
from workbench.report.written.drawing import svg
from workbench.report.written.wording import marked, speaking
from workbench.values.documents.templates import rendered
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import write_bytes_atomically, write_text_atomically
from workbench.values.versions import install_command

if TYPE_CHECKING:  # who writes a file needs no terminal
    from rich.console import Group

_PAGE = Path(__file__).parent.with_name("templates") / "written.html.j2"
_FORMS = (".docx", ".html")


def html_text(document: Document) -> str:
    """The page; `document` is `numbered` already. It loads nothing from anywhere."""
    language = {"zh": "zh-CN", "en": "en"}[document.language]
    with speaking(document.language):
        return rendered(_PAGE, document=document, language=language, marked=marked, svg=svg)


_STYLES: dict[State, str] = {"plain": "", "met": "green", "missed": "red", "open": "yellow"}


def on_terminal(blocks: Iterable[Block]) -> Group:
    """Blocks for a terminal, without pictures; names in the first column of a table are never cut."""
    from rich.console import Group, RenderableType
    from rich.table import Table as Columns
    from rich.text import Text

    found: list[RenderableType] = []
    for block in blocks:
        if isinstance(block, Table):
            table = Columns(title=block.caption, caption=block.note, title_justify="left", caption_justify="left")
            for at, head in enumerate(block.heads):
                right = block.all_figures(at)
                fold = {"ratio": 1, "overflow": "fold"} if not at else {"no_wrap": right}
                table.add_column(head, justify="right" if right else "left", **fold)
            for at, row in enumerate(block.rows):
                style = "bold" if at in block.strong else ""
                table.add_row(*(Text(marked(cell), style=f"{style} {_STYLES[cell.state]}".strip()) for cell in row))
            found.append(table)
        elif isinstance(block, Heading):
            found.append(Text(f"\n{block.text}", style="bold"))
        elif isinstance(block, Paragraph):
            found.append(Text(block.text, style="bold red" if block.kind == "warning" else _STYLES[block.state]))
        elif isinstance(block, Bullets | Commands):
            found += map(Text, block.lines if isinstance(block, Commands) else block.items)
    return Group(*found)


def check_form(to: Path) -> None:
    """Raises:
    ConfigError: no writer for such a name.
    ToolchainError: the writer's package is not installed.
    """
    if to.suffix.lower() not in _FORMS:
        raise ConfigError(f"{to.name!r} is none of {', '.join(_FORMS)}.", key="--to", hint="Such as --to report.docx")
    if to.suffix.lower() == ".docx":
        try:
            import docx  # noqa: F401  # whether it is there
        except ModuleNotFoundError as error:
            raise ToolchainError(
                f"Word files need python-docx. Write .html, or run: {install_command('report')}"
            ) from error


def write_report(document: Document, to: Path, *, created: datetime) -> None:
    """Write it; what stands there is replaced.

    Raises:
        ConfigError: see `check_form`.
        ToolchainError: the same, or the file cannot be written.
    """
    check_form(to)
    to.parent.mkdir(parents=True, exist_ok=True)
    if to.suffix.lower() == ".html":
        write_text_atomically(to, html_text(document))
        return
    from workbench.report.written.docx_writer import docx_bytes

    write_bytes_atomically(to, docx_bytes(document, created=created))
