"""Command lines as people write them (atc.md §10): forms seen in Ascend's model zoo and other public projects, in
`command_lines.txt`, each with what an 8.5.0 `atc` makes of it before it looks at the model. Whether 8.5.0 knows the
chip is left aside: most of these lines are of its time, and name Ascend310."""

import shlex
from pathlib import Path

import pytest

from workbench.cann_emulator.atc import checks
from workbench.cann_emulator.atc.boundary import parse_output_type
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.flags import HelpAsked, Malformed, known_flags, parse, value_of
from workbench.cann_emulator.atc.gears import read_requests

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
        options = parse(words, known_flags((8, 5, 0)))
        for flag in FILES:
            name = options.get(flag, "")
            if name and not name.startswith("missing"):
                Path(name).write_text("x")
        checks.check_withdrawn(options)
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
        nodes = read_requests(given).out_nodes.nodes
        if given.get("output_type") and (nodes or ":" not in given["output_type"]):
            parse_output_type(given["output_type"], nodes)
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
