"""atc.md §5.1 and §5.3: what is printed, in both layouts."""

import os
import re

import pytest

from workbench.cann_emulator.atc.console import Console, emulated_version, error_lines, warning_lines
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


@pytest.mark.usefixtures("_new_layout")
def test_a_cause_stands_before_the_solution_and_what_is_not_there_is_left_out() -> None:
    lines = error_lines([Record(code="E10031")])
    assert [line[:16] for line in lines[1:]] == ["        Possible", "        Solution"]
    assert len(error_lines([Record(code="E10003", arguments={"value": "", "parameter": "", "reason": ""})])) == 1


@pytest.mark.usefixtures("_old_layout")
def test_releases_up_to_8_1_begin_with_the_code() -> None:
    first, solution = error_lines([SHAPE])

    assert re.fullmatch(rf"E10016: {STAMP} The node ids of --input_shape .*", first)
    assert solution.startswith("        Solution: ")


@pytest.mark.parametrize(("version", "code"), [("8.5.0", "E13010"), ("8.1.RC1", "E19010")])
def test_an_unsupported_operator_had_another_code(version: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANN_EMULATOR_VERSION", version)
    (first, *_) = error_lines([Record(code="E13010", arguments={"opname": "a", "optype": "ai.onnx::20::Gelu"})])

    assert re.search(rf"\b{code}\b", first)


@pytest.mark.usefixtures("_new_layout")
def test_further_records_stand_below_without_their_codes() -> None:
    lines = error_lines([SHAPE, EMPTY, INNER])

    assert lines[2:] == [
        "        TraceBack (most recent call last):",
        "        The value of --om is empty.",
        "        GE GenerateOfflineModel execute failed",
    ]


def test_the_first_record_that_is_no_inner_error_is_the_headline() -> None:
    lines = error_lines([INNER, SHAPE])

    assert "E10016" in lines[0]
    # below the headline stands every other record, and the headline's own text again where it was not the first one
    inner, again = lines[-2:]
    assert inner == "        GE GenerateOfflineModel execute failed"
    assert again.startswith("        The node ids of --input_shape")


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


def test_the_same_record_is_told_once() -> None:
    assert error_lines([SHAPE, SHAPE, EMPTY, EMPTY])[2:] == [
        "        TraceBack (most recent call last):",
        "        The value of --om is empty.",
    ]


def test_nothing_recorded_and_nothing_registered_is_an_empty_block() -> None:
    assert error_lines([]) == []
    assert error_lines([Record(code="E11010")]) == []


def test_warnings_have_one_line_each() -> None:
    record = Record(code="W11001", arguments={"opname": "Gather_1"})
    (line,) = warning_lines([record, record])

    assert re.fullmatch(rf"{STAMP} Performance_Not_Optimal_Operator\(W11001\): The operator Gather_1 .*", line)


def test_the_version_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"8.5.0": (8, 5, 0), "8.1.RC1": (8, 1), "8.5.1": (8, 5, 1), "": (8, 5, 0), "dev": (8, 5, 0)}
    for text, version in versions.items():
        monkeypatch.setenv("CANN_EMULATOR_VERSION", text)
        assert emulated_version() == version


def test_dots_stay_on_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    for _ in range(3):
        console.dot()
    console.end_of_dots()
    console.success(())

    assert capsys.readouterr().out == "......\nATC run success, welcome to the next use.\n\n"


def test_warnings_follow_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    Console().success([Record(code="W11001", arguments={"opname": "a"})])

    verdict, warning, *rest = capsys.readouterr().out.split("\n")
    assert verdict == "ATC run success, welcome to the next use."
    assert "(W11001)" in warning
    assert rest == ["", ""]
