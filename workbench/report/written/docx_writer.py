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
from docx.enum.table import WD_TABLE_ALIGNMENT
from docx.enum.text import WD_ALIGN_PARAGRAPH
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import Inches, Mm, Pt, RGBColor

from workbench.report.written.cells import column_shares, fits, marked, say, speaking, spoken
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

_INK, _GREY, _RED = RGBColor(0x1C, 0x1F, 0x24), RGBColor(0x5B, 0x64, 0x70), RGBColor(0xB3, 0x26, 0x1E)
_STATES: dict[State, tuple[RGBColor, str]] = {
    "plain": (_INK, ""),
    "met": (RGBColor(0x0A, 0x7D, 0x43), "E8F5EE"),
    "missed": (_RED, "FBE9E7"),
    "open": (RGBColor(0x8A, 0x4B, 0x00), "FDF3E4"),
}
_FONTS = {"latin": "Arial", "body": "SimSun", "heads": "SimHei"}
_MARGIN_MM, _PAGE_MM = 20, (210, 297)
_MANY = 7
"""Columns from which a table is set smaller."""

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def docx_bytes(document: Document, *, created: datetime | None = None) -> bytes:
    """The file; `document` is `numbered` already. The same document and time give the same content."""
    with speaking(document.language):
        return _saved(document, created or datetime.now(UTC))


def _saved(document: Document, created: datetime) -> bytes:
    file = new_document()
    _page(file)
    _styles(file)
    _frame(file, document)
    properties = file.core_properties
    properties.title, properties.author, properties.comments = _clean(document.title), "INT8 workbench", ""
    properties.language = {"zh": "zh-CN", "en": "en-US"}[document.language]
    properties.created = properties.modified = created
    title = file.add_paragraph(style="Title")
    title.add_run(_clean(document.title))
    file.add_paragraph(style="Subtitle").add_run(_clean(document.subtitle))
    _facts(file, document.facts)
    for section in document.sections:
        file.add_heading(_clean(section.title), level=1)
        for block in section.blocks:
            _block(file, block)
    held = io.BytesIO()
    file.save(held)
    return held.getvalue()


def _page(file: Any) -> None:
    page = file.sections[0]
    page.page_width, page.page_height = (Mm(side) for side in _PAGE_MM)
    for side in ("left_margin", "right_margin", "top_margin", "bottom_margin"):
        setattr(page, side, Mm(_MARGIN_MM))
    page.header_distance = page.footer_distance = Mm(10)


def _styles(file: Any) -> None:
    sizes = {"Normal": 10.5, "Title": 18, "Subtitle": 10.5, "Heading 1": 15, "Heading 2": 12, "List Bullet": 10.5}
    for name, size in sizes.items():
        style = file.styles[name]
        style.font.size, style.font.name = Pt(size), _FONTS["latin"]
        style.font.color.rgb = _GREY if name == "Subtitle" else _INK
        heads = name.startswith(("Heading", "Title"))
        style.font.italic, style.font.bold = False, heads
        fonts = style.element.get_or_add_rPr().get_or_add_rFonts()
        for attribute in list(fonts.attrib):  # those of a theme would win over the names below
            if "heme" in attribute:
                del fonts.attrib[attribute]
        fonts.set(qn("w:eastAsia"), _FONTS["heads"] if heads else _FONTS["body"])
        fonts.set(qn("w:hAnsi"), _FONTS["latin"])
        fonts.set(qn("w:cs"), _FONTS["latin"])
        for spacing in style.element.rPr.findall(qn("w:spacing")):  # the template spreads a subtitle's letters
            style.element.rPr.remove(spacing)
    _chinese_forms(file)
    file.styles["Normal"].paragraph_format.space_after = Pt(5)
    file.styles["Title"].paragraph_format.space_after = Pt(2)
    _without_border(file.styles["Title"])
    for name, before, after in (("Heading 1", 16, 6), ("Heading 2", 11, 4)):
        form = file.styles[name].paragraph_format
        form.space_before, form.space_after, form.keep_with_next = Pt(before), Pt(after), True


def _chinese_forms(file: Any) -> None:
    """East Asian text is Chinese: its punctuation and characters have other forms in Japanese."""
    properties = file.styles["Normal"].element.get_or_add_rPr()
    language = OxmlElement("w:lang")
    for name, value in (("val", "en-US"), ("eastAsia", "zh-CN")):
        language.set(qn(f"w:{name}"), value)
    properties.append(language)


def _without_border(style: Any) -> None:
    properties = style.element.get_or_add_pPr()
    for border in properties.findall(qn("w:pBdr")):
        properties.remove(border)


def _frame(file: Any, document: Document) -> None:
    """Header with the mark or the title, footer with the number of the page."""
    page = file.sections[0]
    head = page.header.paragraphs[0]
    run = head.add_run(_clean(document.mark or document.title))
    run.font.size, run.font.bold = Pt(9), bool(document.mark)
    run.font.color.rgb = _RED if document.mark else _GREY
    foot = page.footer.paragraphs[0]
    foot.alignment = WD_ALIGN_PARAGRAPH.CENTER
    before, between, after = say("Page {page} of {all}", page="\0", all="\0").split("\0")
    for text, field in ((before, "PAGE"), (between, "NUMPAGES"), (after, "")):
        for run in (foot.add_run(text), *([_field(foot, field)] if field else [])):
            run.font.size, run.font.color.rgb = Pt(9), _GREY


def _field(paragraph: Any, instruction: str) -> Any:
    run = paragraph.add_run()
    for kind in ("begin", "", "end"):
        if kind:
            part = OxmlElement("w:fldChar")
            part.set(qn("w:fldCharType"), kind)
        else:
            part = OxmlElement("w:instrText")
            part.set(qn("xml:space"), "preserve")
            part.text = instruction
        run._r.append(part)
    return run


def _facts(file: Any, facts: Sequence[tuple[str, str]]) -> None:
    table = file.add_table(rows=0, cols=2)
    table.alignment = WD_TABLE_ALIGNMENT.LEFT
    _set_widths(table, (0.2, 0.8))
    for name, value in facts:
        row = table.add_row()
        _keep_whole(row)
        for cell, text, colour in zip(row.cells, (name, value), (_GREY, _INK), strict=True):
            run = _only_paragraph(cell).add_run(_clean(text))
            run.font.size, run.font.color.rgb = Pt(9.5), colour
        _row_widths(row, (0.2, 0.8))
    _gap(file)


def _block(file: Any, block: Block) -> None:
    if isinstance(block, Heading):
        file.add_heading(_clean(block.text), level=2)
    elif isinstance(block, Paragraph):
        _paragraph(file, block)
    elif isinstance(block, Bullets):
        for item in block.items:
            paragraph = file.add_paragraph(style="List Bullet")
            paragraph.paragraph_format.space_after = Pt(2)
            paragraph.add_run(_clean(item))
    elif isinstance(block, Commands):
        _commands(file, block)
    elif isinstance(block, Figure):
        place = file.add_paragraph()
        place.paragraph_format.keep_with_next = True
        place.add_run().add_picture(io.BytesIO(png(block.chart)), width=Inches(WIDTH_INCHES))
        _described(place, block.caption)
        _caption(file, block.caption, before_table=False)
        _note(file, block.note)
    else:
        _table(file, block)


def _described(place: Any, text: str) -> None:
    """The words that a reader of the screen hears for a picture."""
    for found in place._p.iter(qn("wp:docPr")):
        found.set("descr", _clean(text))


def _paragraph(file: Any, block: Paragraph) -> None:
    paragraph = file.add_paragraph()
    run = paragraph.add_run(_clean(block.text))
    if block.kind == "note":
        run.font.size, run.font.color.rgb = Pt(9), _GREY
        paragraph.paragraph_format.keep_with_next = True  # it speaks of what comes next
    elif block.kind == "warning":
        run.font.bold, run.font.color.rgb = True, _RED
    elif block.kind == "verdict":
        colour, fill = _STATES[block.state]
        run.font.bold = True
        _shade_paragraph(paragraph, fill or "F3F5F8")
        _left_border(paragraph, str(colour))


def _commands(file: Any, block: Commands) -> None:
    for index, line in enumerate(block.lines):
        paragraph = file.add_paragraph()
        run = paragraph.add_run(_clean(line))
        run.font.name, run.font.size = "Consolas", Pt(8.5)
        form = paragraph.paragraph_format
        form.space_after = Pt(6 if index == len(block.lines) - 1 else 1)
        form.left_indent = Mm(8)
        form.first_line_indent = Mm(-6)  # the rest of a long line stands further in: one sees where the next begins
        _shade_paragraph(paragraph, "F3F5F8")


def _table(file: Any, block: Table) -> None:
    _caption(file, block.caption, before_table=True)
    table = file.add_table(rows=1, cols=len(block.heads))
    table.style = "Table Grid"
    table.alignment = WD_TABLE_ALIGNMENT.CENTER
    size = 8.5 if len(block.heads) < _MANY else 8.0
    widths = column_shares(block)
    _set_widths(table, widths)
    head = table.rows[0]
    for cell, text in zip(head.cells, block.heads, strict=True):
        run = _only_paragraph(cell).add_run(_clean(text))
        run.font.size, run.font.bold = Pt(size), True
        cell._tc.get_or_add_tcPr().append(_shading("E7ECF3"))
    _repeat(head)
    _row_widths(head, widths)
    _keep_whole(head)
    for index, row in enumerate(block.rows):
        added = table.add_row()
        _keep_whole(added)
        _row_widths(added, widths)
        for place, cell, share in zip(added.cells, row, widths, strict=True):
            _cell(place, cell, size, share, strong=index in block.strong)
    if block.rows:  # a head alone at the foot of a page says nothing; more kept together moves whole tables
        head.cells[-1].paragraphs[0].paragraph_format.keep_with_next = True
    if block.note:
        _note(file, block.note)
    else:
        _gap(file)


def _cell(place: Any, cell: Cell, size: float, share: float, *, strong: bool) -> None:
    paragraph = _only_paragraph(place)
    colour, fill = _STATES[cell.state]
    shown = marked(cell)
    run = paragraph.add_run(_clean(cell.text))
    run.font.size, run.font.bold, run.font.color.rgb = Pt(size), strong or cell.state in ("met", "missed"), colour
    if len(shown) > len(cell.text):
        mark = paragraph.add_run()
        if not fits(shown, share):  # or a mark in Chinese breaks between its two characters
            mark.add_break()
        mark.add_text(shown[len(cell.text) :])
        mark.font.size, mark.font.color.rgb, mark.font.italic = (
            Pt(size - 1.5),
            _STATES["open"][0],
            spoken() == "en",
        )
    if cell.figure:
        paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT
    if fill:
        place._tc.get_or_add_tcPr().append(_shading(fill))


def _caption(file: Any, text: str, *, before_table: bool) -> None:
    paragraph = file.add_paragraph()
    run = paragraph.add_run(_clean(text))
    run.font.size, run.font.bold = Pt(9), True
    form = paragraph.paragraph_format
    form.keep_with_next, form.space_before = before_table, Pt(6 if before_table else 0)
    form.space_after = Pt(3 if before_table else 6)


def _note(file: Any, text: str) -> None:
    if not text:
        return
    paragraph = file.add_paragraph()
    paragraph.paragraph_format.space_before = Pt(3)
    paragraph.paragraph_format.space_after = Pt(8)
    run = paragraph.add_run(_clean(text))
    run.font.size, run.font.color.rgb = Pt(8.5), _GREY


def _gap(file: Any) -> None:
    paragraph = file.add_paragraph()
    paragraph.paragraph_format.space_after = Pt(2)
    paragraph.add_run().font.size = Pt(4)


def _only_paragraph(cell: Any) -> Any:
    paragraph = cell.paragraphs[0]
    paragraph.paragraph_format.space_after = Pt(1)
    paragraph.paragraph_format.space_before = Pt(1)
    return paragraph


def _inner_mm() -> float:
    return _PAGE_MM[0] - 2 * _MARGIN_MM


def _set_widths(table: Any, widths: Sequence[float]) -> None:
    """Fixed: programs measure the text of a table that they lay out themselves, and differ."""
    table.autofit = False
    total = sum(widths)
    for column, share in zip(table.columns, widths, strict=True):
        column.width = Mm(_inner_mm() * share / total)


def _row_widths(row: Any, widths: Sequence[float]) -> None:
    total = sum(widths)
    for cell, share in zip(row.cells, widths, strict=True):
        cell.width = Mm(_inner_mm() * share / total)


def _repeat(row: Any) -> None:
    """A head is shown again on every page that its table goes on to."""
    part = OxmlElement("w:tblHeader")
    part.set(qn("w:val"), "true")
    row._tr.get_or_add_trPr().append(part)


def _keep_whole(row: Any) -> None:
    row._tr.get_or_add_trPr().append(OxmlElement("w:cantSplit"))


def _shading(fill: str) -> Any:
    part = OxmlElement("w:shd")
    for name, value in (("val", "clear"), ("color", "auto"), ("fill", fill)):
        part.set(qn(f"w:{name}"), value)
    return part


_AFTER_SHADING = (
    *("w:tabs", "w:suppressAutoHyphens", "w:kinsoku", "w:wordWrap", "w:overflowPunct", "w:topLinePunct"),
    *("w:autoSpaceDE", "w:autoSpaceDN", "w:bidi", "w:adjustRightInd", "w:snapToGrid", "w:spacing", "w:ind"),
    *("w:contextualSpacing", "w:mirrorIndents", "w:suppressOverlap", "w:jc", "w:textDirection", "w:textAlignment"),
    *("w:textboxTightWrap", "w:outlineLvl", "w:divId", "w:cnfStyle", "w:rPr", "w:sectPr", "w:pPrChange"),
)
"""What follows a paragraph's shading in the order of ECMA-376 part 1, CT_PPrBase; Word refuses other orders."""


def _shade_paragraph(paragraph: Any, fill: str) -> None:
    paragraph._p.get_or_add_pPr().insert_element_before(_shading(fill), *_AFTER_SHADING)


def _left_border(paragraph: Any, colour: str) -> None:
    borders, left = OxmlElement("w:pBdr"), OxmlElement("w:left")
    for name, value in (("val", "single"), ("sz", "36"), ("space", "8"), ("color", colour)):
        left.set(qn(f"w:{name}"), value)
    borders.append(left)
    paragraph._p.get_or_add_pPr().insert_element_before(borders, "w:shd", *_AFTER_SHADING)


def _clean(text: str) -> str:
    """Without characters that no XML can hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
