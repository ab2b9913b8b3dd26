"""What is printed of a device's profile."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

from tests.profiled import profile
from workbench.report.profile import profile_lines


def test_the_text_says_where_the_time_goes_and_when_it_idles() -> None:
    lines = profile_lines(profile())

    assert lines[:4] == [
        "where the time goes (modelled): 0.060 ms of operators in 1 kind, 1 execution",
        "  MatMulV2  100.0%          60.0 us       2 calls  AI_CORE INT8",
        "casts, layouts and transposes 0.0%, quantize and dequantize 0.0%, matrix products 100.0%",
        "of the matrix products' time, 50.0% ran on INT8",
    ]
    assert "the cores compute 60.0% of 0.100 ms; 0.040 ms they have nothing to do" in lines
    assert "  stream 3 of device 0: idle 20.0% of 0.100 ms, 3 tasks" in lines
    assert any("mm</script><b> -> nn: 1 x" in line and "host copy 75%, scheduling 25%" in line for line in lines)
    assert lines[-1] == "note: a table ends within a row"


def test_idle_time_that_is_in_no_line_of_its_own_is_told_too() -> None:
    found = replace(profile(), idle_us=100.0, edges_us=10.0, short_gaps_us=5.0, causes={"host launch": 85.0})

    lines = profile_lines(found)

    assert "    6.2%  before the first operator and after the last" in lines
    assert "   28.1%  in further gaps" in lines
    assert "    3.1%  in gaps below half a microsecond" in lines
    assert not any("before the first operator" in line for line in profile_lines(profile()))


def test_every_file_of_data_is_installed_with_the_package() -> None:
    root = Path(__file__).parents[2]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["workbench"]
    installed = {file for pattern in patterns for file in (root / "workbench").glob(pattern)}

    held = {file for file in (root / "workbench").rglob("*.*") if file.is_file() and "__pycache__" not in file.parts}
    assert {file for file in held if file.suffix != ".py"} == installed


def test_modelled_times_are_marked_and_measured_ones_are_not() -> None:
    said = [profile_lines(profile(modelled=modelled))[0] for modelled in (True, False)]
    assert ["(modelled)" in line for line in said] == [True, False]
