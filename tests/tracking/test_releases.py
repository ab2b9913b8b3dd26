"""The log of releases: whatever is changed, removed or added in it shows."""

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.tracking.releases import NOTHING, Log, Mark, Release, checked, end_of, line_of, mark_of, text_of

RELEASE = Release(act="promotion", version=2, manifest_sha256="a" * 64, champion_before=1, champion_after=2)
LINES = 5


def followed(texts: Sequence[str], mark: Mark | None) -> tuple[list[str], Mark]:
    """With one line more."""
    end = end_of([line_of(text.encode()) for text in texts], mark)
    text = text_of("loans", RELEASE, end)
    return [*texts, text], Mark(number=end.number + 1, sha256=line_of(text.encode()).sha256)


def written(lines: int = LINES) -> tuple[list[str], Mark]:
    texts, mark = [], Mark(number=0, sha256=NOTHING)
    for _ in range(lines):
        texts, mark = followed(texts, mark)
    return texts, mark


def log_of(texts: Sequence[str | bytes], mark: Mark | None) -> Log:
    return checked([line_of(text.encode() if isinstance(text, str) else text) for text in texts], mark)


WHOLE, MARK = written()


def test_a_line_says_who_when_what_and_what_stood_before() -> None:
    texts, mark = written(2)

    log = log_of(texts, mark_of(str(mark)))
    first, second = (line.content or {} for line in log.lines)

    assert (log.problems, log.unmarked, log.end) == ((), 0, mark)
    assert [first["number"], second["number"]] == [1, 2]
    assert second["before"] == hashlib.sha256(texts[0].encode()).hexdigest()
    assert first["before"] == "0" * 64
    assert (first["release"]["act"], first["release"]["champion_after"], first["name"]) == ("promotion", 2, "loans")
    assert " on " in first["by"]
    assert first["at"].endswith("+00:00")


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_change_of_any_byte_shows(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, LINES - 1))
    content = WHOLE[at].encode()
    place = data.draw(st.integers(0, len(content) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda v: v != content[place]))
    changed = content[:place] + bytes([value]) + content[place + 1 :]

    assert log_of([*WHOLE[:at], changed, *WHOLE[at + 1 :]], MARK).problems


@settings(deadline=None, max_examples=100)
@given(data=st.data(), more=st.integers(0, 2))
def test_lines_that_were_removed_added_or_exchanged_show_and_still_do_when_others_follow(
    data: st.DataObject, more: int
) -> None:
    rest = data.draw(st.lists(st.sampled_from(WHOLE), max_size=LINES + 1).filter(lambda some: some != WHOLE))
    mark = MARK

    assert log_of(rest, mark).problems
    for _ in range(more):
        rest, mark = followed(rest, mark)
        assert log_of(rest, mark).problems


def test_a_log_that_is_gone_shows_as_long_as_the_registry_knows_of_it_and_one_written_anew_is_not_its() -> None:
    assert log_of([], MARK).problems == (f"line {LINES}, the last that the registry knows, is missing",)
    texts, mark = followed([], MARK)
    assert log_of(texts, mark).problems == (
        f"line 1 has the number {LINES + 1} instead of 1: lines were removed or added",
    )
    anew = [text.replace("loans", "other") for text in WHOLE]
    assert any("registry" in one or "continue" in one for one in log_of(anew, MARK).problems)


def test_a_line_that_a_kill_left_without_its_mark_is_no_damage_and_the_next_goes_behind_it() -> None:
    texts, _ = followed(WHOLE, MARK)

    log = log_of(texts, MARK)
    assert (log.problems, log.unmarked) == ((), 1)
    texts, mark = followed(texts, MARK)
    assert mark.number == LINES + 2
    assert log_of(texts, mark).problems == ()


@pytest.mark.parametrize("text", ["7", "x:y", "-1:ff", ":", "٣:aa"])
def test_a_mark_that_makes_no_sense_marks_nothing_and_shows(text: str) -> None:
    assert log_of(WHOLE, mark_of(text)).problems
