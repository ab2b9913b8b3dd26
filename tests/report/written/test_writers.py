"""The two writers: what they write is read back by other programs."""

import io
import shutil
import subprocess
import zipfile
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import docx
import pytest

from tests.report.written.materials import HOSTILE, least, most
from workbench.report.written.compose import written_report
from workbench.report.written.document import (
    Bar,
    Bullets,
    Cell,
    Commands,
    Document,
    Heading,
    Paragraph,
    Section,
    Table,
    numbered,
)
from workbench.report.written.docx_writer import docx_bytes
from workbench.report.written.drawing import bars_figure
from workbench.report.written.files import html_text

AT = datetime(2026, 3, 1, 14, 5, tzinfo=UTC)
BARS = (Bar(label="a $b$", value=3.0, low=2.5, high=3.4), Bar(label="c", value=1.0))


def small(text: str = "a text") -> Document:
    return numbered(
        Document(
            language="en",
            title="Title",
            subtitle=text,
            mark="EMULATED",
            facts=(("fact", text),),
            sections=(
                Section(
                    title="One",
                    blocks=(
                        Heading(text="Part"),
                        Paragraph(text=text),
                        Bullets(items=(text, "second")),
                        Commands(lines=("workbench show x", "workbench load y")),
                        Table(
                            caption="figures",
                            heads=("what", "how much"),
                            rows=(
                                (Cell(text=text), Cell(text="12", figure=True, evidence="modelled")),
                                (Cell(text="kept"), Cell(text="yes", state="met")),
                            ),
                            note="a note",
                        ),
                        bars_figure("picture", "cards", BARS),
                    ),
                ),
                Section(title="Two", blocks=(Paragraph(text="end"),)),
            ),
        )
    )


class Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.said += data


def test_word_reads_back_what_was_written_with_the_mark_on_every_page_and_no_row_torn() -> None:
    found = docx.Document(io.BytesIO(docx_bytes(small(), created=AT)))
    headings = [p.text for p in found.paragraphs if p.style is not None and p.style.name.startswith("Heading")]
    assert headings == ["1 One", "1.1 Part", "2 Two"]
    table = found.tables[-1]
    cells = [[c.text for c in row.cells] for row in table.rows]
    assert cells == [["what", "how much"], ["a text", "12 (modelled)"], ["kept", "yes"]]
    assert "Table 1. figures" in [p.text for p in found.paragraphs]
    assert len(found.inline_shapes) == 1
    assert found.core_properties.created == AT.replace(tzinfo=None) or found.core_properties.created == AT
    assert [s.header.paragraphs[0].text for s in found.sections] == ["EMULATED"]
    assert "PAGE" in found.sections[0].footer.paragraphs[0]._p.xml
    assert "w:tblHeader" in table.rows[0]._tr.xml
    assert all("w:cantSplit" in row._tr.xml for row in table.rows)


def test_html_is_one_file_that_loads_nothing_and_says_the_same() -> None:
    text = html_text(small())
    page = Texts()
    page.feed(text)

    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "http" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "https://matplotlib.org", ""
    ).replace("http://creativecommons.org", "")
    assert page.tags.count("svg") == 1
    for said in ("EMULATED", "1.1 Part", "12 (modelled)", "workbench show x", "Figure 1. picture", "a note"):
        assert said in page.said


def test_hostile_names_command_nothing_in_any_form() -> None:
    document = small(HOSTILE)
    page = Texts()
    page.feed(html_text(document))
    cells = docx.Document(io.BytesIO(docx_bytes(document))).tables[-1].rows[1].cells

    assert "script" not in page.tags
    assert cells[0].text.startswith("<script>alert(1)</script> | `x` $a_b$ *")


def test_the_same_document_is_the_same_file() -> None:
    first, second = (docx_bytes(small(), created=AT) for _ in range(2))
    contents = [
        {name: z.read(name) for name in z.namelist()} for z in (zipfile.ZipFile(io.BytesIO(f)) for f in (first, second))
    ]

    assert contents[0] == contents[1]
    assert html_text(small()) == html_text(small())


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_another_program_opens_a_whole_report_and_prints_it(tmp_path: Path) -> None:
    for name, material in (("least", least(is_emulated=True)), ("most", most())):
        (tmp_path / f"{name}.docx").write_bytes(docx_bytes(written_report(material, "zh"), created=AT))
    home = f"-env:UserInstallation=file://{tmp_path}/home"
    command = ["soffice", home, "--headless", "--convert-to", "pdf", "--outdir", str(tmp_path)]
    files = [str(tmp_path / f"{name}.docx") for name in ("least", "most")]
    subprocess.run([*command, *files], capture_output=True, timeout=240, check=True)

    for name in ("least", "most"):
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
