import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.servers import answer
from workbench.load.http1 import AnswerReader, encode_request


def test_a_request_has_its_length_and_keeps_its_connection() -> None:
    head, _, body = encode_request("/predict", "h:1", "é".encode(), {"X-API-Key": "k"}).partition(b"\r\n\r\n")

    assert head.split(b"\r\n") == [
        b"POST /predict HTTP/1.1",
        b"Host: h:1",
        b"Content-Type: application/json",
        b"Content-Length: 2",
        b"X-API-Key: k",
    ]
    assert body == "é".encode()


def test_a_header_cannot_smuggle_another() -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_request("/", "h", b"", {"X-API-Key": "a\r\nX: b"})


@settings(deadline=None, max_examples=100)
@given(
    body=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    status=st.integers(200, 599).filter(lambda status: status not in (204, 304)),
)
def test_an_answer_is_whole_with_its_last_byte_wherever_it_is_cut(body: bytes, cuts: list[int], status: int) -> None:
    whole = answer(f"{status} Something", body)
    reader = AnswerReader()
    for _ in range(2):  # one reader serves a connection's whole life
        reader.begin()
        edges = sorted({0, len(whole), *(c for c in cuts if c < len(whole))})
        found = [reader.feed(whole[a:b]) for a, b in itertools.pairwise(edges)]
        assert found == [False] * (len(found) - 1) + [True]
        assert reader.status == status
        assert reader.keep_alive
        assert reader.body_bytes == len(body)


def test_http_1_0_and_connection_close_end_the_connection() -> None:
    for head in (b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nConnection: Close\r\n"):
        reader = AnswerReader()
        assert reader.feed(head + b"CONTENT-LENGTH: 2\r\n\r\nok")
        assert not reader.keep_alive
