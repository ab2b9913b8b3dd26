"""A written report as a Word file, A4, through python-docx (extra `[report]`); its mark is in the header of every page.

Chinese text names the fonts that Word has in China (SimSun, SimHei); other programs put theirs in their place.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from docx import Document as new_document
from docx.enum.style import WD_STYLE_TYPE
from docx.enum.text import WD_ALIGN_PARAGRAPH
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import Inches, Mm, Pt, RGBColor

from workbench.report.written.document import (
    Block,
    Bullets,
    Cell,
    Commands,
    Document,
    Figure,
    Heading,
    Paragraph,
    State,
    Table,
)
from workbench.report.written.drawing import WIDTH_INCHES, png
from workbench.report.written.wording import marked, say, speaking

_INK, _GREY, _RED = RGBColor(0x1C, 0x1F, 0x24), RGBColor(0x5B, 0x64, 0x70), RGBColor(0xB3, 0x26, 0x1E)
_STATES: dict[State, tuple[RGBColor, str]] = {
    "plain": (_INK, ""),
    "met": (RGBColor(0x0A, 0x7D, 0x43), "E8F5EE"),
    "missed": (_RED, "FBE9E7"),
    "open": (RGBColor(0x8A, 0x4B, 0x00), "FDF3E4"),
}
_STYLES: dict[str, tuple[float, RGBColor, float, float]] = {
    "Normal": (10.5, _INK, 0, 5),
    "Title": (18, _INK, 0, 2),
    "Subtitle": (10.5, _GREY, 0, 5),
    "Heading 1": (15, _INK, 16, 6),
    "Heading 2": (12, _INK, 11, 4),
    "List Bullet": (10.5, _INK, 0, 2),
    "Caption": (9, _INK, 6, 3),
    "Header": (9, _GREY, 0, 0),
    "Footer": (9, _GREY, 0, 0),
    "Note": (9, _GREY, 3, 8),
    "Warning": (10.5, _RED, 0, 5),
    "Command": (8.5, _INK, 0, 1),
    "Cell": (8.5, _INK, 1, 1),
}
"""Style → size in points, colour, space before and after it in points."""
_BOLD = ("Title", "Heading 1", "Heading 2", "Caption", "Warning")
_MARGIN_MM, _PAGE_MM = 20, (210, 297)
_WORD, _LINE, _PAGE = 18, 40, 100
"""Letters: of the longest word and of the longest text that a column is widened for, and of a page."""
_WORDS = re.compile(r"[\u2e80-\uffef]|[^\s\u2e80-\uffef]+")
"""What no program breaks: characters of Chinese one by one, others up to a blank."""
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def docx_bytes(document: Document, *, created: datetime | None = None) -> bytes:
    """The file; `document` is `numbered` already. The same document and time give the same content."""
    file = new_document()
    with speaking(document.language):
        _prepare(file, document, created or datetime.now(UTC))
        file.add_paragraph(_clean(document.title), style="Title")
        file.add_paragraph(_clean(document.subtitle), style="Subtitle")
        facts = [(Cell(text=name), Cell(text=value)) for name, value in document.facts]
        _rows(file, facts, (0.2, 0.8))
        for section in document.sections:
            file.add_heading(_clean(section.title), level=1)
            for block in section.blocks:
                _block(file, block)
    held = io.BytesIO()
    file.save(held)
    return held.getvalue()


def _prepare(file: Any, document: Document, created: datetime) -> None:
    """Styles, the page with the mark or the title in its header and its number in the footer, and properties."""
    for name, (size, colour, before, after) in _STYLES.items():
        known = name in [style.name for style in file.styles]
        style = file.styles[name] if known else file.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH)
        for tag in ("w:pBdr", "w:spacing"):  # the template underlines the title and spreads a subtitle's letters
            for part in list(style.element.iter(qn(tag))):
                part.getparent().remove(part)
        fonts = style.element.get_or_add_rPr().get_or_add_rFonts()
        fonts.attrib.clear()  # those of a theme would win over the names below
        latin = "Consolas" if name == "Command" else "Arial"
        chinese = "SimHei" if name in _BOLD else "SimSun"
        for kind, font in (("ascii", latin), ("hAnsi", latin), ("cs", latin), ("eastAsia", chinese)):
            fonts.set(qn(f"w:{kind}"), font)
        style.font.size, style.font.color.rgb = Pt(size), colour
        style.font.bold, style.font.italic = name in _BOLD, False
        form = style.paragraph_format
        form.space_before, form.space_after = Pt(before), Pt(after)
        form.keep_with_next = name in ("Heading 1", "Heading 2", "Caption")
    for language in file.styles.element.iter(qn("w:lang")):  # punctuation has other forms in Japanese
        language.set(qn("w:eastAsia"), "zh-CN")
    page = file.sections[0]
    page.page_width, page.page_height = (Mm(side) for side in _PAGE_MM)
    for side in ("left_margin", "right_margin", "top_margin", "bottom_margin"):
        setattr(page, side, Mm(_MARGIN_MM))
    page.header_distance = page.footer_distance = Mm(10)
    head, foot = page.header.paragraphs[0], page.footer.paragraphs[0]
    run = head.add_run(_clean(document.mark or document.title))
    run.font.bold, run.font.color.rgb = bool(document.mark), _RED if document.mark else _GREY
    foot.alignment = WD_ALIGN_PARAGRAPH.CENTER
    before_, between, after_ = say("Page {page} of {all}", page="\0", all="\0").split("\0")
    for text, field in ((before_, "PAGE"), (between, "NUMPAGES"), (after_, "")):
        foot.add_run(text)
        if field:
            foot._p.append(_element("w:fldSimple", instr=field))
    properties = file.core_properties
    properties.title, properties.author, properties.comments = _clean(document.title), "INT8 workbench", ""
    properties.language = {"zh": "zh-CN", "en": "en-US"}[document.language]
    properties.created = properties.modified = created


def _block(file: Any, block: Block) -> None:
    if isinstance(block, Heading):
        file.add_heading(_clean(block.text), level=2)
    elif isinstance(block, Paragraph):
        _paragraph(file, block)
    elif isinstance(block, Bullets):
        for item in block.items:
            file.add_paragraph(_clean(item), style="List Bullet")
    elif isinstance(block, Commands):
        for line in block.lines:
            form = file.add_paragraph(_clean(line), style="Command").paragraph_format
            form.left_indent = Mm(8)
            form.first_line_indent = Mm(-6)  # the rest of a long line stands further in: one sees where the next begins
    elif isinstance(block, Figure):
        place = file.add_paragraph()
        place.paragraph_format.keep_with_next = True
        place.add_run().add_picture(io.BytesIO(png(block)), width=Inches(WIDTH_INCHES))
        for found in place._p.iter(qn("wp:docPr")):  # what a reader of the screen hears for a picture
            found.set("descr", _clean(block.caption))
        file.add_paragraph(_clean(block.caption), style="Caption").paragraph_format.keep_with_next = False
    else:
        file.add_paragraph(_clean(block.caption), style="Caption")
        _rows(file, block.rows, _shares(block), heads=block.heads, strong=block.strong)
        if block.note:
            file.add_paragraph(_clean(block.note), style="Note")


def _paragraph(file: Any, block: Paragraph) -> None:
    if block.kind == "verdict":
        _rows(file, [(Cell(text=block.text, state=block.state),)], (1.0,), strong=(0,))
        return
    style = {"note": "Note", "warning": "Warning"}.get(block.kind, "Normal")
    paragraph = file.add_paragraph(_clean(block.text), style=style)
    if block.kind == "note":
        paragraph.paragraph_format.keep_with_next = True  # it speaks of what comes next


def _rows(
    file: Any,
    rows: Sequence[Sequence[Cell]],
    widths: Sequence[float],
    *,
    heads: Sequence[str] = (),
    strong: Sequence[int] = (),
) -> None:
    """A table without torn rows, whose heads are shown again on every page that it goes on to."""
    table = file.add_table(rows=0, cols=len(widths))
    table.style = "Table Grid" if heads else "Normal Table"
    table.autofit = False  # programs measure the text of a table that they lay out themselves, and differ
    sizes = [Mm((_PAGE_MM[0] - 2 * _MARGIN_MM) * share) for share in widths]
    for column, size in zip(table.columns, sizes, strict=True):
        column.width = size
    every = [([Cell(text=head) for head in heads], True)] if heads else []
    for index, (row, head) in enumerate([*every, *((row, False) for row in rows)], -len(every)):
        added = table.add_row()
        properties = added._tr.get_or_add_trPr()
        properties.append(_element("w:cantSplit"))
        if head:
            properties.append(_element("w:tblHeader", val="true"))
        for place, cell, size in zip(added.cells, row, sizes, strict=True):
            place.width = size
            _cell(place, cell, bold=head or index in strong, fill="E7ECF3" if head else _STATES[cell.state][1])
            # a head alone at the foot of a page says nothing
            place.paragraphs[0].paragraph_format.keep_with_next = head or None
    file.add_paragraph().paragraph_format.space_after = Pt(0)


def _cell(place: Any, cell: Cell, *, bold: bool, fill: str) -> None:
    paragraph, shown = place.paragraphs[0], marked(cell)
    paragraph.style = "Cell"
    run = paragraph.add_run(_clean(cell.text))
    run.font.bold, run.font.color.rgb = bold or cell.state in ("met", "missed"), _STATES[cell.state][0]
    if len(shown) > len(cell.text):
        mark = paragraph.add_run(shown[len(cell.text) :])
        mark.font.size, mark.font.color.rgb = Pt(7), _STATES["open"][0]
    if cell.figure:
        paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT
    if fill:
        place._tc.get_or_add_tcPr().append(_element("w:shd", val="clear", color="auto", fill=fill))


def _shares(table: Table) -> list[float]:
    """Of the page, for each column: between its longest word and its longest text, as browsers share it."""
    columns = [*zip(table.heads, *([marked(cell) for cell in row] for row in table.rows), strict=True)]
    least = [3 + min(_WORD, max(_letters(w) for text in column for w in _WORDS.findall(text))) for column in columns]
    lines = [3 + min(_LINE, max(_letters(line) for text in column for line in text.split("\n"))) for column in columns]
    more = [max(0, line - need) for line, need in zip(lines, least, strict=True)]
    part = min(1.0, max(0, _PAGE - sum(least)) / (sum(more) or 1))
    widths = [need + part * wish for need, wish in zip(least, more, strict=True)]
    return [width / sum(widths) for width in widths]


def _letters(text: str) -> int:
    """Those of Chinese are twice as wide."""
    return len(text) + sum(letter >= "\u2e80" for letter in text)


def _element(tag: str, **attributes: str) -> Any:
    part = OxmlElement(tag)
    for name, value in attributes.items():
        part.set(qn(f"w:{name}"), value)
    return part


def _clean(text: str) -> str:
    """Without characters that no XML can hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
