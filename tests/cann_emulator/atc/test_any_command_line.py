"""Command lines: recorded ones with their codes, and any other ends with a verdict."""

import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.cann_emulator.atc import checks
from workbench.cann_emulator.atc.__main__ import main
from workbench.cann_emulator.atc.boundary import parse_output_type
from workbench.cann_emulator.atc.conversion import read_requests
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.flags import FLAGS, HelpAsked, Malformed, parse, value_of


@pytest.fixture(autouse=True)
def _strict(own_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
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

OK, LATER = "passes", "later:"
LINES = [
    (line.partition(" ")[2].strip(), line.partition(" ")[0])
    for line in (Path(__file__).parent / "command_lines.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def outcome(line: str) -> str:
    """`passes`, the code of the headline, ERROR for what goes to stderr, or help; `later:` and a code where the flags
    pass and only what is read behind the start of the engines is refused."""
    words = shlex.split(line)
    try:
        options = parse(words)
        for flag in FILES:
            name = options.get(flag, "")
            if name and not name.startswith("missing"):
                Path(name).write_text("x")
        checks.check_framework(options)
        assert value_of(options, "mode") in ("0", "3", "30")
        checks.check_conversion(options, lambda text: None)
    except Malformed:
        return "ERROR"
    except HelpAsked:
        return "help"
    except AtcFailure as error:
        return headline(error)
    if options["framework"] != "5":
        return OK
    given = {flag: value for flag, value in options.items() if value}
    try:
        _, nodes = read_requests(given)
        if given.get("output_type") and (nodes or ":" not in given["output_type"]):
            parse_output_type(given["output_type"], nodes)  # type: ignore[arg-type]  # no line names tensors here
    except AtcFailure as error:
        return f"{LATER}{headline(error)}"
    return OK


def headline(error: AtcFailure) -> str:
    return next(record.code for record in error.records if record.code != "E19999")


@pytest.mark.parametrize(("line", "expected"), LINES, ids=range(len(LINES)))
def test_a_line_as_people_write_it(line: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    assert outcome(line) == expected, line
