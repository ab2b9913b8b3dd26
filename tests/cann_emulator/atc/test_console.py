"""atc.md §5.1 and §5.3: what is printed, in both layouts."""

import os
import re

import pytest

from workbench.cann_emulator.atc.console import Console, error_lines
from workbench.cann_emulator.atc.failure import Record

STAMP = rf"\[PID: {os.getpid()}\] \d{{4}}-\d\d-\d\d-\d\d:\d\d:\d\d\.\d{{3}}\.\d{{3}}"
SHAPE = Record(code="E10016", arguments={"opname": "ids", "parameter": "input_shape"})
EMPTY = Record(code="E10004", arguments={"parameter": "om"})
INNER = Record(code="E19999", arguments={"message": "GE GenerateOfflineModel execute failed"})


@pytest.fixture(params=["8.5.0", "8.2.RC1", "9.0.0"])
def _new_layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANN_EMULATOR_VERSION", request.param)


@pytest.fixture(params=["8.1.RC1", "8.0.0", "7.0.RC1"])
def _old_layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANN_EMULATOR_VERSION", request.param)


@pytest.mark.usefixtures("_new_layout")
def test_the_headline_has_title_and_code_and_then_cause_and_solution() -> None:
    first, solution = error_lines([SHAPE])

    assert re.fullmatch(rf"{STAMP} Invalid_Argument_Operator_Name\(E10016\): The node ids of --input_shape .*", first)
    assert solution.startswith("        Solution: ")


@pytest.mark.usefixtures("_old_layout")
def test_releases_up_to_8_1_begin_with_the_code() -> None:
    first, solution = error_lines([SHAPE])

    assert re.fullmatch(rf"E10016: {STAMP} The node ids of --input_shape .*", first)
    assert solution.startswith("        Solution: ")


@pytest.mark.usefixtures("_new_layout")
def test_further_records_stand_below_without_their_codes() -> None:
    lines = error_lines([SHAPE, EMPTY, INNER])

    assert lines[2:] == [
        "        TraceBack (most recent call last):",
        "        The value of --om is empty.",
        "        GE GenerateOfflineModel execute failed",
    ]


@pytest.mark.usefixtures("_new_layout")
def test_inner_errors_alone_have_a_headline_of_their_own() -> None:
    """runtime v8.5.0 error_manager.cc:549-565: the code before and behind the stamp, then always the traceback."""
    first, second, *rest = error_lines([INNER, Record(code="E19999", arguments={"message": "why"})])

    assert first == "E19999: Inner Error!"
    assert re.fullmatch(rf"E19999{STAMP} \(E19999\):  GE GenerateOfflineModel execute failed", second)
    assert rest == ["        TraceBack (most recent call last):", "       why"]
    assert error_lines([INNER])[2:] == ["        TraceBack (most recent call last):"]


@pytest.mark.usefixtures("_old_layout")
def test_inner_errors_of_older_releases_have_the_code_once() -> None:
    assert re.fullmatch(rf"E19999: {STAMP} GE GenerateOfflineModel execute failed", error_lines([INNER])[1])


def test_warnings_follow_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    Console().success([Record(code="W11001", arguments={"opname": "a"})])

    verdict, warning, *rest = capsys.readouterr().out.split("\n")
    assert verdict == "ATC run success, welcome to the next use."
    assert "(W11001)" in warning
    assert rest == ["", ""]
