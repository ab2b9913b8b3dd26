"""The timeline page: one file, offline, with everything in it."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

from tests.profiled import profile
from workbench.report.profile import profile_html
from workbench.study.profile_tries import Try
from workbench.values.device_profile import Lever

REFUSED = Try(
    lever=Lever(finding="40% <copies>", changes={"serving.batch": 8}, at_most=0.4),
    candidate=None,
    missing={},
    refused="the device is full",
)


def test_the_page_loads_nothing_and_holds_every_task() -> None:
    page = profile_html(profile(), "bert", [REFUSED])

    assert "http" not in page
    assert "src=" not in page
    (data,) = re.findall(r'<script type="application/json" id="profile">(.*?)</script>', page, re.DOTALL)
    body = json.loads(data)
    tasks = [(body["names"][t[4]], t[2], t[3]) for t in body["tasks"]]
    assert tasks == [(task.name, task.start_us, task.duration_us) for task in profile().tasks]
    assert body["bubbles"][0][:2] == [30.0, 40.0]
    assert "7 are left out" in page


def test_names_from_a_table_are_text_and_never_markup() -> None:
    page = profile_html(profile(), "<bert>", [REFUSED])

    assert "mm</script><b>" not in page
    assert "<bert>" not in page
    assert "<copies>" not in page


def test_the_bar_of_idle_time_holds_all_of_it() -> None:
    found = replace(profile(), idle_us=60.0, edges_us=15.0, short_gaps_us=5.0)

    page = profile_html(found, "bert")

    assert "before the first operator and after the last 12.5%" in page
    assert "gaps below half a microsecond 4.2%" in page


def test_modelled_times_are_marked_and_measured_ones_are_not() -> None:
    assert "nothing was measured" in profile_html(profile(), "bert")
    assert "nothing was measured" not in profile_html(profile(modelled=False), "bert")


def test_every_file_of_data_is_installed_with_the_package() -> None:
    root = Path(__file__).parents[2]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["workbench"]
    installed = {file for pattern in patterns for file in (root / "workbench").glob(pattern)}

    held = {file for file in (root / "workbench").rglob("*.*") if file.is_file() and "__pycache__" not in file.parts}
    assert {file for file in held if file.suffix != ".py"} == installed
