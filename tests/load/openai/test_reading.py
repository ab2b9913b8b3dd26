"""Bytes of a hostile or an honest server: framing, events, and what they tell, however they are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.openai.streams import DONE, HEAD, chunk, delta, event, text_events, usage, whole
from workbench.load.http1 import BROKEN, CUT, NO_STREAM, AnswerReader, ProtocolError
from workbench.load.openai.answer import LONGEST_EVENT_BYTES, EventReader, StreamReader


def fed(reader: StreamReader, data: bytes, size: int) -> bool:
    found = [reader.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert not any(found[:-1])
    return found[-1]


def read(*events: bytes) -> StreamReader:
    reader = StreamReader()
    assert reader.feed(whole(events))
    return reader


@settings(max_examples=30)
@given(size=st.integers(1, 400), sizes=st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_a_stream_is_read_the_same_however_http_cuts_it(size: int, sizes: list[int]) -> None:
    body = b": ping\r\n\r\n" + b"".join(text_events(4)).replace(b"\n", b"\r\n")
    framed, at = HEAD, 0
    while at < len(body):
        framed += chunk(body[at : at + sizes[0]])
        at += sizes[0]
        sizes = [*sizes[1:], sizes[0]]
    reader = StreamReader()

    assert fed(reader, framed + b"0\r\nX-Trailer: 1\r\n\r\n", size)
    assert (len(reader.text_s), reader.tokens, reader.prompt_tokens) == (4, 4, 5)
    assert reader.status == 200
    assert reader.keep_alive


@settings(max_examples=50)
@given(size=st.integers(1, 30), end=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_lines_end_in_three_ways(size: int, end: bytes) -> None:
    text = end.join([b": hello", b"event: x", b"data: one", b"data:two", b"", b"", b"data: three", b"", b"data: last"])
    reader = EventReader()
    found = [each for at in range(0, len(text), size) for each in reader.feed(text[at : at + size])]

    assert found == [b"one\ntwo", b"three"]
    assert reader.end() == [b"last"]


def test_an_event_without_end_is_given_up_within_a_bound() -> None:
    for line in (b"data: " + b"x" * 65_000, b"data: " + b"x" * 65_000 + b"\n"):
        reader = EventReader()
        for _ in range(LONGEST_EVENT_BYTES // len(line)):
            assert reader.feed(line) == []
        with pytest.raises(ProtocolError, match="an event of more than"):
            reader.feed(line)


def test_framing_that_is_wrong_or_beyond_a_bound_is_refused() -> None:
    for bad in (
        HEAD + b"zz\r\n",
        HEAD + b"-1\r\n",
        HEAD + b"0x10\r\n",
        HEAD + b"ffffffff\r\n" + b"x" * (65 << 20),
        HEAD + b"1" * 5000,
        HEAD + b"3\r\nabcd\r\n",
        whole([b"x"]) + b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 two OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"\x16\x03\x01\x02",
    ):
        with pytest.raises(ProtocolError):
            AnswerReader().feed(bad)


def test_events_that_are_none_of_this_api_are_refused() -> None:
    not_ours = (event({"choices": 3}), event({"choices": [3]}))
    for bad in (b"data: {\n\n", b"data: []\n\n", *not_ours, b"data: " + b"[" * 100_000 + b"\n\n"):
        with pytest.raises(ProtocolError):
            StreamReader().feed(whole([bad]))


def test_a_stream_is_complete_with_its_end_or_a_reason() -> None:
    assert read(delta("a"), DONE).status == 200
    assert read(delta("a", "stop")).status == 200
    assert read(delta("a")).status == CUT
    assert read(b'{"choices": [{"message": {"content": "all"}}]}\n').status == NO_STREAM


def test_an_error_in_a_stream_is_told_with_its_words_even_without_an_empty_line() -> None:
    reader = read(delta("a"), b'data: {"error": {"message": "out of memory"}}')
    assert (reader.status, reader.error) == (BROKEN, "out of memory")
    assert read(event({"object": "error", "message": "old style"}), DONE).error == "old style"


def test_a_count_that_is_none_is_not_taken() -> None:
    for told in (None, True, -1, "7", 1 << 40, 7.5, {}):
        assert read(event({"choices": [], "usage": {"completion_tokens": told}}), DONE).tokens is None


def test_text_is_that_of_chats_thoughts_tools_and_completions_and_the_role_is_none() -> None:
    choices = [
        *({"delta": {"role": "assistant", "content": ""}}, {"delta": {"content": "a"}}, {"delta": {"reasoning": "b"}}),
        *(
            {"delta": {"reasoning_content": "c"}},
            {"delta": {"tool_calls": [{"index": 0}]}},
            {"text": "d"},
            {"text": ""},
        ),
    ]
    reader = read(*(event({"choices": [choice]}) for choice in choices), usage(9), DONE)
    assert (len(reader.text_s), reader.tokens) == (5, 9)


def test_a_body_may_have_a_length_or_end_with_its_connection() -> None:
    body = b"".join(text_events(2))
    reader = StreamReader()
    assert fed(reader, f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body, 7)
    reader = StreamReader()
    assert not reader.feed(b"HTTP/1.1 200 OK\r\n\r\n" + body)
    assert reader.end()
    assert (reader.status, reader.keep_alive) == (200, False)
    reader = StreamReader()
    reader.feed(HEAD + chunk(body))
    assert not reader.end(), "the last chunk is missing"


def test_infinities_and_halves_of_characters_are_read() -> None:
    body = json.dumps({"choices": [{"delta": {"content": "\ud83d"}, "logprobs": float("-inf")}]}).encode()
    assert len(read(b"data: " + body + b"\n\n", DONE).text_s) == 1
