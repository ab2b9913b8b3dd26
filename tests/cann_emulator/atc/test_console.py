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


def test_both_layouts_tell_code_cause_and_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases up to 8.1 begin with the code. Further records stand below without theirs; inner errors alone have a
    headline of their own (runtime v8.5.0 error_manager.cc:549-565)."""
    for version in ("8.5.0", "8.2.RC1", "9.0.0", "8.1.RC1", "8.0.0", "7.0.RC1"):
        monkeypatch.setenv("CANN_EMULATOR_VERSION", version)
        old = version in ("8.1.RC1", "8.0.0", "7.0.RC1")
        begin = rf"E10016: {STAMP}" if old else rf"{STAMP} Invalid_Argument_Operator_Name\(E10016\):"

        first, solution, *below = error_lines([SHAPE, EMPTY, INNER])

        assert re.fullmatch(rf"{begin} The node ids of --input_shape .*", first)
        assert solution.startswith("        Solution: ")
        assert below == [
            "        TraceBack (most recent call last):",
            "        The value of --om is empty.",
            "        GE GenerateOfflineModel execute failed",
        ]
        headline, inner, *rest = error_lines([INNER, Record(code="E19999", arguments={"message": "why"})])
        assert headline == "E19999: Inner Error!"
        begin = rf"E19999: {STAMP}" if old else rf"E19999{STAMP} \(E19999\): "
        assert re.fullmatch(rf"{begin} GE GenerateOfflineModel execute failed", inner)
        assert rest[0] == "        TraceBack (most recent call last):"
        assert rest[1].strip() == "why"


def test_warnings_follow_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    Console().success([Record(code="W11001", arguments={"opname": "a"})])

    verdict, warning, *rest = capsys.readouterr().out.split("\n")
    assert verdict == "ATC run success, welcome to the next use."
    assert "(W11001)" in warning
    assert rest == ["", ""]
