"""Pictures: drawn without a browser, alike each time, and in words that the machine has letters for."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import matplotlib
import pytest
from fontTools.ttLib import TTFont

from tests.report.written.materials import most
from workbench.report.written import compose, drawing, wording
from workbench.report.written.document import Bar, Figure
from workbench.report.written.drawing import bars_figure, png, points, svg

BARS = (
    Bar(label="old", value=1803.0),
    Bar(label="new", value=1659.0, low=1647.0, high=1671.0, strong=True),
    Bar(label="modelled", value=2000.0, evidence="modelled"),
)
POINTS = partial(
    points,
    x_axis="throughput",
    y_axis="accuracy",
    found=(("baseline", 100.0, 0.95), ("front", 200.0, 0.94), ("chosen", 200.0, 0.94)),
    names={"other": "others", "front": "front", "baseline": "baseline", "chosen": "what ships"},
)


def test_a_chart_is_a_picture_the_same_each_time_whatever_letters_its_names_have() -> None:
    bars = bars_figure("", "requests/s", BARS, limit=("limit 1,442", 1442.0))
    for figure in (bars, Figure(caption="", draw=POINTS), bars_figure("", "nothing", ())):
        first = svg(figure)
        assert ET.fromstring(first).tag.endswith("svg")
        assert first == svg(figure)
        assert png(figure).startswith(b"\x89PNG")
    svg(bars_figure("", "a $b_c$ \N{ETHIOPIC SYLLABLE HA}", (Bar(label="$", value=1.0),)))


def test_without_chinese_letters_the_words_in_pictures_are_english_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wording, "chinese_font", lambda: None)  # a machine without such a font cannot be made here
    found = compose.written_report(most(), "zh")
    charts = [b for s in found.sections for b in s.blocks if isinstance(b, Figure)]

    assert charts
    for figure in charts:
        assert isinstance(figure.draw, partial)
        assert all(figure.draw.keywords[name].isascii() for name in ("axis", "x_axis") if name in figure.draw.keywords)
        assert not figure.caption.isascii()
    assert drawing.chinese_font() is None or isinstance(drawing.chinese_font(), str)


def test_a_font_that_came_after_matplotlib_listed_them_is_found_and_one_that_went_is_not(tmp_path: Path) -> None:
    asked = "from workbench.report.written import drawing; drawing._CHINESE = ('Ours',); print(drawing.chinese_font())"
    folders = {"XDG_DATA_HOME": str(tmp_path / "data"), "MPLCONFIGDIR": str(tmp_path / "listed")}

    def found() -> str:
        done = subprocess.run(
            [sys.executable, "-c", asked], env=os.environ | folders, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert found() == "None"
    file = tmp_path / "data" / "fonts" / "ours.ttf"
    file.parent.mkdir(parents=True)
    font = TTFont(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    for number in (1, 16):
        font["name"].setName("Ours", number, 3, 1, 0x409)
        font["name"].setName("Ours", number, 1, 0, 0)
    font.save(file)
    assert found() == "Ours"
    for listed in (tmp_path / "listed").glob("fontlist*"):
        listed.unlink()
    assert found() == "Ours"  # now it is listed
    file.unlink()
    assert found() == "None"
