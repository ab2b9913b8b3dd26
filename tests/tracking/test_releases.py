"""The log of releases: whatever is changed, removed or exchanged in it shows."""

import hashlib
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.tracking.releases import Log, Release, checked, line_of, text_of

RELEASE = Release(act="promotion", version=2, manifest_sha256="a" * 64, champion_before=1, champion_after=2)
LINES = 5


def log_of(texts: Sequence[str | bytes]) -> Log:
    return checked([line_of(text.encode() if isinstance(text, str) else text) for text in texts])


def followed(texts: Sequence[str]) -> list[str]:
    """With one line more."""
    return [*texts, text_of("loans", RELEASE, log_of(texts).lines)]


WHOLE: list[str] = []
for _ in range(LINES):
    WHOLE = followed(WHOLE)


def test_a_line_says_who_when_what_and_what_stood_before() -> None:
    log = log_of(WHOLE)
    first, second = log.lines[:2]

    assert log.problems == ()
    assert [first["number"], second["number"]] == [1, 2]
    assert second["before"] == hashlib.sha256(WHOLE[0].encode()).hexdigest()
    assert first["before"] == "0" * 64
    assert (first["release"]["act"], first["release"]["champion_after"], first["name"]) == ("promotion", 2, "loans")
    assert " on " in first["by"]
    assert first["at"].endswith("+00:00")


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_change_of_any_byte_shows_once_another_line_follows(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, LINES - 2))
    content = WHOLE[at].encode()
    place = data.draw(st.integers(0, len(content) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda v: v != content[place]))
    changed = content[:place] + bytes([value]) + content[place + 1 :]

    assert log_of([*WHOLE[:at], changed, *WHOLE[at + 1 :]]).problems


@settings(deadline=None, max_examples=100)
@given(rest=st.lists(st.sampled_from(WHOLE), max_size=LINES + 1).filter(lambda some: some != WHOLE[: len(some)]))
def test_lines_that_were_removed_repeated_or_exchanged_show_and_still_do_when_others_follow(rest: list[str]) -> None:
    assert log_of(rest).problems
    assert log_of(followed(rest)).problems


def test_two_lines_that_were_added_at_once_follow_the_same_one() -> None:
    both = [*WHOLE, text_of("loans", RELEASE, log_of(WHOLE).lines), text_of("other", RELEASE, log_of(WHOLE).lines)]

    assert log_of(followed(both)).problems == ()
