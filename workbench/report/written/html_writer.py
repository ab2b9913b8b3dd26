"""A written report as one HTML file with everything inside; printed, its mark stands on every page."""

from __future__ import annotations

import html

from workbench.report.written.document import (
    Block,
    Bullets,
    Commands,
    Document,
    Figure,
    Heading,
    Paragraph,
    Section,
    Table,
)
from workbench.report.written.drawing import svg
from workbench.report.written.marks import column_shares, marked
from workbench.report.written.texts import speaking

_STYLE = """
:root { --ink: #1c1f24; --line: #d0d6de; --soft: #f3f5f8; --met: #0a7d43; --missed: #b3261e; --open: #8a4b00; }
body { font: 15px/1.6 "Segoe UI", "Microsoft YaHei", "Noto Sans CJK SC", "PingFang SC", system-ui, sans-serif;
       color: var(--ink); background: #fff; margin: 1.5rem auto 4rem; max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin: 1rem 0 .2rem; } .subtitle { color: #5b6470; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-bottom: .2rem; border-bottom: 2px solid var(--ink); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .4rem; }
.mark { background: var(--missed); color: #fff; padding: .35rem 1rem; font-weight: 600; }
.frame, .frame > thead > tr > th, .frame > tbody > tr > td { border: 0; padding: 0; background: none;
        font-size: inherit; }
.frame > thead { position: sticky; top: 0; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.2rem; margin: 0 0 1rem; }
.facts dt { color: #5b6470; } .facts dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; table-layout: fixed; }
th, td { border: 1px solid var(--line); padding: .3rem .55rem; text-align: left; vertical-align: top;
         overflow-wrap: break-word; } th { background: var(--soft); } td.n, th.n { text-align: right; }
tr.strong td { font-weight: 600; background: #eef4fd; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
td.met { color: var(--met); font-weight: 600; } td.missed { color: var(--missed); font-weight: 600; }
td.open { color: var(--open); } .marked { font-style: italic; color: var(--open);
        white-space: nowrap; }
.note { color: #5b6470; font-size: 13px; } .verdict { border-left: 5px solid var(--open); background: #fdf6ec;
        padding: .6rem 1rem; } .verdict.met { border-color: var(--met); background: #f1f8f4; }
.verdict.missed { border-color: var(--missed); background: #fcf1f0; }
.warning { color: var(--missed); font-weight: 600; }
pre { background: var(--soft); padding: .7rem .9rem; font-size: 12.5px; white-space: pre-wrap;
      overflow-wrap: anywhere; } figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption { font-weight: 600; font-size: 13px; }
@page { size: A4; margin: 20mm 16mm 16mm; }
@media print {
  body { font-size: 12px; margin: 0; max-width: none; padding: 0; } .wide { overflow: visible; }
  .mark { margin-bottom: 4mm; } .frame > thead { display: table-header-group; }
  h2, h3, caption { break-after: avoid; } tr, figure { break-inside: avoid; }
}
"""


def html_text(document: Document) -> str:
    """The page; `document` is `numbered` already. It loads nothing from anywhere."""
    with speaking(document.language):
        return _page(document)


def _page(document: Document) -> str:
    language = {"zh": "zh-CN", "en": "en"}[document.language]
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in document.facts)
    body = (
        f'<h1>{_text(document.title)}</h1><p class="subtitle">{_text(document.subtitle)}</p>'
        f'<dl class="facts">{facts}</dl>\n' + "\n".join(_section(section) for section in document.sections)
    )
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8"><title>{_text(document.title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n<body>\n'
        f"{_marked(body, document.mark)}\n</body></html>\n"
    )


def _marked(body: str, mark: str) -> str:
    """The head of a table is printed on every page that the table goes on to, in every browser."""
    if not mark:
        return body
    head = f'<thead><tr><th><div class="mark">{_text(mark)}</div></th></tr></thead>'
    return f'<table class="frame" role="presentation">{head}<tbody><tr><td>\n{body}\n</td></tr></tbody></table>'


def _section(section: Section) -> str:
    return f"<h2>{_text(section.title)}</h2>\n" + "\n".join(_block(b) for b in section.blocks)


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h3>{_text(block.text)}</h3>"
    if isinstance(block, Paragraph):
        kinds = " ".join(kind for kind in (block.kind, block.state) if kind != "plain")
        return f'<p class="{kinds}">{_text(block.text)}</p>' if kinds else f"<p>{_text(block.text)}</p>"
    if isinstance(block, Bullets):
        return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in block.items) + "</ul>"
    if isinstance(block, Commands):
        return f"<pre>{_text(chr(10).join(block.lines))}</pre>"
    if isinstance(block, Figure):
        return f"<figure>{svg(block.chart)}<figcaption>{_text(block.caption)}</figcaption>{_note(block.note)}</figure>"
    return _table(block)


def _table(table: Table) -> str:
    heads = "".join(
        f"<th{_right(all(row[i].figure for row in table.rows) and bool(table.rows))}>{_text(head)}</th>"
        for i, head in enumerate(table.heads)
    )
    body = ""
    for index, row in enumerate(table.rows):
        cells = ""
        for cell in row:
            kinds = [*(["n"] if cell.figure else []), *([cell.state] if cell.state != "plain" else [])]
            shown = marked(cell)
            word = shown[len(cell.text) :]
            text = _text(cell.text) + (f'<span class="marked">{_text(word)}</span>' if word else "")
            cells += f'<td class="{" ".join(kinds)}">{text}</td>' if kinds else f"<td>{text}</td>"
        body += f'<tr class="strong">{cells}</tr>' if index in table.strong else f"<tr>{cells}</tr>"
    top = f"<caption>{_text(table.caption)}</caption>{_columns(table)}<thead><tr>{heads}</tr></thead>"
    return f'<div class="wide"><table>{top}<tbody>{body}</tbody></table></div>{_note(table.note)}'


def _columns(table: Table) -> str:
    return "".join(f'<col style="width:{100 * share:.1f}%">' for share in column_shares(table))


def _right(figures: bool) -> str:
    return ' class="n"' if figures else ""


def _note(text: str) -> str:
    return f'<p class="note">{_text(text)}</p>' if text else ""


def _text(value: str) -> str:
    return html.escape(value).replace("\n", "<br>")
