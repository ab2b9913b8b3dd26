"""A written report as one HTML file with everything inside; printed, its mark stands on every page."""

from __future__ import annotations

from pathlib import Path

from workbench.report.written.document import Document
from workbench.report.written.drawing import svg
from workbench.report.written.marks import column_shares, marked
from workbench.report.written.texts import speaking
from workbench.values.documents.templates import rendered

_PAGE = Path(__file__).parent.with_name("templates") / "written.html.j2"


def html_text(document: Document) -> str:
    """The page; `document` is `numbered` already. It loads nothing from anywhere."""
    language = {"zh": "zh-CN", "en": "en"}[document.language]
    with speaking(document.language):
        return rendered(_PAGE, document=document, language=language, shares=column_shares, marked=marked, svg=svg)
