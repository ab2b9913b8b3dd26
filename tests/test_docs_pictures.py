"""The pictures of the pages: docs/pictures.py makes them, and they load nothing from elsewhere."""

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.evaluations import evaluation
from tests.report.summaries import judge
from workbench.report import Summary

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def summary() -> Summary:
    return judge(evaluation(scheme="static", accuracy=0.949, p50_ms=2.0, speedup=2.0), limits={})


def test_the_table_becomes_a_picture_that_needs_no_network(summary: Summary) -> None:
    spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)

    svg = pictures.table_svg(summary, Path("experiments/loans.yaml"))

    assert "Recommended:" in "".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ")
    assert "workbench show experiments/loans.yaml" in svg.replace("&#160;", " ")
    assert "@font-face" not in svg
    assert "url(http" not in svg


@pytest.mark.parametrize("picture", ["table.svg", "pareto.png"])
def test_every_picture_is_shown_by_readme_and_tour_and_is_small(picture: str) -> None:
    for page in (DOCS.parent / "README.md", DOCS / "tour.md"):
        assert re.search(rf"images/{re.escape(picture)}\)", page.read_text(encoding="utf-8"))
    assert (DOCS / "images" / picture).stat().st_size < 400_000
    assert "url(http" not in (DOCS / "images" / picture).read_bytes().decode("latin-1")
