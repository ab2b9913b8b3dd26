"""What a card's host sends its driver: what is only shown in company, everything else at once."""

import threading
from collections.abc import Iterator

import pytest

from workbench.search.executors.messages import Message
from workbench.search.executors.ray.host import together


def kinds(said: Iterator[Message]) -> list[list[str]]:
    return [[message["kind"] for message in messages] for messages in together(said)]


def test_stages_and_log_lines_travel_with_the_answer_that_follows_them() -> None:
    said = [
        {"kind": kind} for kind in ("started", "ready", "began", "stage", "log", "stage", "answer", "stage", "ended")
    ]
    assert kinds(iter(said)) == [
        ["started"],
        ["ready"],
        ["began"],
        ["stage", "log", "stage", "answer"],
        ["stage", "ended"],
    ]


def test_what_is_shown_does_not_wait_for_the_end_of_a_long_stage() -> None:
    shown = threading.Event()

    def slow() -> Iterator[Message]:
        yield {"kind": "stage"}
        yield {"kind": "log"}
        assert shown.wait(60.0), "what is shown was kept back"
        yield {"kind": "answer"}

    heard = together(slow())
    assert next(heard) == [{"kind": "stage"}, {"kind": "log"}]
    shown.set()
    assert list(heard) == [[{"kind": "answer"}]]


def test_what_was_said_before_a_failure_is_heard_before_it() -> None:
    def failing() -> Iterator[Message]:
        yield {"kind": "stage"}
        raise ValueError("gone")

    heard = together(failing())
    assert next(heard) == [{"kind": "stage"}]
    with pytest.raises(ValueError, match="gone"):
        next(heard)
