"""Command lines: recorded ones with their codes, and any other ends with a verdict."""

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.cann_emulator.atc.__main__ import main
from workbench.cann_emulator.atc.flags import FLAGS


@pytest.fixture(autouse=True)
def _strict(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the emulator does not foresee is raised, and not told as an inner error."""
    monkeypatch.setenv("CANN_EMULATOR_STRICT", "1")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.one_of(st.text(max_size=12), st.sampled_from([f"--{flag}" for flag in FLAGS])), max_size=5))
def test_any_words_end_with_a_verdict(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    status = main([word.replace("\0", "") for word in words])
    out, err = capsys.readouterr()
    if status == 0:
        assert "ATC run success" in out or "usage: atc" in out
    else:
        assert status == 255
        assert "ATC run failed" in out
        assert "Traceback (most recent call last)" not in out + err


FILES = ("model", "insert_op_conf", "op_precision_mode", "keep_dtype", "weight", "op_name_map", "om", "cal_conf")
"""Flags whose files exist when the line is run, unless their name begins with `missing`."""

BEHIND = {"E13005", "EE1001", "E20101", "E21001", "E10055"}
"""Of a model that is none, a chip that 8.5.0 does not know, files that are not there, and what is not emulated: a line
that passes every check of its flags ends with one of these."""
LINES = [
    (line.partition(" ")[2].strip(), line.partition(" ")[0])
    for line in (Path(__file__).parent / "command_lines.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=range(len(LINES)))
def test_a_line_as_people_write_it(
    line: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for flag, name in re.findall(r"--?(\w+)[= ]+(\S+)", line):
        if any(file.startswith(flag) for file in FILES) and not name.startswith("missing"):
            Path(name).write_text("x")

    status = main(shlex.split(line))

    out, err = capsys.readouterr()
    if expected == "help":
        assert (status, "usage: atc" in out) == (0, True)
        return
    code = re.search(r"\(([EW]\w{5})\): ", out)
    told = code[1] if code else err.partition(":")[0]
    later = expected.removeprefix("later:")  # what is read behind the start of the engines
    allowed = {later} if later == expected != "passes" else BEHIND | {later}
    assert status == 255
    assert told in allowed, line
