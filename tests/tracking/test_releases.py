"""The log of releases: whatever is changed, removed or added in it shows."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.tracking.releases import Mark, Release, append, log_file, mark_of, read_log
from workbench.values.errors import ToolchainError

RELEASE = Release(act="promotion", version=2, manifest_sha256="a" * 64, champion_before=1, champion_after=2)
LINES = 5


def written(folder: Path, lines: int = LINES) -> tuple[Path, Mark]:
    file, mark = log_file(folder, "loans"), None
    for _ in range(lines):
        mark = append(file, "loans", RELEASE, mark)
    assert mark is not None
    return file, mark


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Mark]:
    file, mark = written(tmp_path_factory.mktemp("log"))
    return file.read_bytes(), mark


def test_a_line_says_who_when_what_and_what_stood_before(tmp_path: Path) -> None:
    file, mark = written(tmp_path, 2)

    log = read_log(file, mark_of(str(mark)))
    first, second = (line.content or {} for line in log.lines)
    texts = file.read_bytes().splitlines()

    assert (log.problems, log.unmarked, log.end) == ((), 0, mark)
    assert [first["number"], second["number"]] == [1, 2]
    assert second["before"] == hashlib.sha256(texts[0]).hexdigest()
    assert mark.sha256 == hashlib.sha256(texts[1]).hexdigest()
    assert first["before"] == "0" * 64
    assert (first["release"]["act"], first["release"]["champion_after"], first["name"]) == ("promotion", 2, "loans")
    assert " on " in first["by"]
    assert first["at"].endswith("+00:00")


def test_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    assert log_file(tmp_path, "../../x").parent == tmp_path / "releases"


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_any_byte_shows(data: st.DataObject, whole: tuple[bytes, Mark], tmp_path: Path) -> None:
    content, mark = whole
    place = data.draw(st.integers(0, len(content) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda v: v != content[place]))
    file = tmp_path / "log.jsonl"
    file.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])

    assert read_log(file, mark).problems


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), more=st.integers(0, 2))
def test_lines_that_were_removed_added_or_exchanged_show_and_still_do_when_others_follow(
    data: st.DataObject, more: int, whole: tuple[bytes, Mark], tmp_path: Path
) -> None:
    lines, mark = whole[0].splitlines(keepends=True), whole[1]
    rest = data.draw(st.lists(st.sampled_from(lines), max_size=LINES + 1).filter(lambda some: some != lines))
    if rest[: len(lines)] == lines:  # one line more may be a killed command's; this one repeats another
        assert len(rest) == len(lines) + 1
    file = tmp_path / "releases" / "loans.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(rest))

    assert read_log(file, mark).problems
    for _ in range(more):
        mark = append(file, "loans", RELEASE, mark)
        assert read_log(file, mark).problems


def test_a_log_that_is_gone_shows_as_long_as_the_registry_knows_of_it(tmp_path: Path) -> None:
    file, mark = written(tmp_path)
    file.unlink()

    assert read_log(file, mark).problems == (f"line {LINES}, the last that the registry knows, is missing",)
    mark = append(file, "loans", RELEASE, mark)
    assert read_log(file, mark).problems == (
        f"line 1 has the number {LINES + 1} instead of 1: lines were removed or added",
    )


def test_a_chain_written_anew_from_its_beginning_is_not_the_registrys(tmp_path: Path) -> None:
    file, mark = written(tmp_path)
    file.unlink()
    written(tmp_path)

    assert read_log(file, mark).problems == (f"line {LINES} is not the one that the registry knows as the last",)


def test_a_line_that_a_kill_left_without_its_mark_is_no_damage_and_the_next_goes_behind_it(tmp_path: Path) -> None:
    file, mark = written(tmp_path)
    append(file, "loans", RELEASE, mark)

    log = read_log(file, mark)
    assert (log.problems, log.unmarked) == ((), 1)

    mark = append(file, "loans", RELEASE, mark)
    assert mark.number == LINES + 2
    assert read_log(file, mark).problems == ()


def test_a_line_that_the_disk_cut_off_stays_and_shows(tmp_path: Path) -> None:
    file, mark = written(tmp_path)
    with file.open("ab") as stream:
        stream.write(b'{"number": 6, "rel')

    assert read_log(file, mark).problems == (
        "line 6 is cut off: it was being written when the machine or the disk failed",
    )
    mark = append(file, "loans", RELEASE, mark)
    assert "line 6 is no line of a log of releases" in read_log(file, mark).problems


@pytest.mark.parametrize("text", ["7", "x:y", "-1:ff", ":", "٣:aa"])
def test_a_mark_that_makes_no_sense_marks_nothing_and_shows(tmp_path: Path, text: str) -> None:
    file, _ = written(tmp_path)

    assert read_log(file, mark_of(text)).problems


def test_a_log_that_cannot_be_written_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / "loans.jsonl").mkdir()

    with pytest.raises(ToolchainError, match=r"loans\.jsonl cannot be (read|written): "):
        append(log_file(tmp_path, "loans"), "loans", RELEASE, None)
