"""A document as a file: which writer a name asks for, and everything in its place at once."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from workbench.report.written.document import Document
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import write_bytes_atomically, write_text_atomically
from workbench.values.versions import install_command

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
        from workbench.report.written.html_writer import html_text

        write_text_atomically(to, html_text(document))
        return [to]
    from workbench.report.written.markdown import markdown

    folder = to.with_name(f"{to.stem}-pictures")
    text, pictures = markdown(document, folder.name)
    if pictures:
        folder.mkdir(exist_ok=True)
    for name, drawn in pictures.items():
        write_text_atomically(folder / name, drawn)
    write_text_atomically(to, text)  # last: it names the pictures
    return [to, *(folder / name for name in pictures)]
