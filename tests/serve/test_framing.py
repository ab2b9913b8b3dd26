"""Requests cut from a stream: the same pieces of requests however the bytes arrive."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.attacks import posted
from workbench.serve.framing import MOST_CHUNK_OVERHEAD_BYTES, MOST_HEAD_BYTES, Framing
from workbench.serve.refusals import Refusal

CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUESTS = [
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0),
    (posted(b"x"), 1),
    (posted(b"\r\n\r\n" * 9), 36),
    (CHUNKED + b"0\r\n\r\n", None),
    (CHUNKED + b"A;x=y\r\n0123456789\r\n004\r\n\r\n\r\n\r\n0\r\nX: y\r\n\r\n", None),
]


def cut(stream: bytes, sizes: list[int], lengths: list[int | None]) -> list[bytes]:
    """The requests of a stream that arrives in pieces of such sizes; plays the parser, which says where each ends."""
    framing, waiting, whole, left = Framing(), bytearray(), b"", list(lengths)
    found: list[bytes] = []
    position, in_head = 0, True
    while position < len(stream) or waiting:
        size = sizes.pop() if sizes else len(stream)
        waiting += stream[position : position + size]
        position += size
        while waiting:
            count = framing.next(waiting)
            assert count > 0
            whole += bytes(waiting[:count])
            del waiting[:count]
            if in_head and whole.endswith(b"\r\n\r\n"):
                in_head = False
                framing.body(left[0])
                if left[0] == 0:
                    whole, in_head = _ended(framing, found, whole, left)
            elif not in_head and whole in WHOLE:
                whole, in_head = _ended(framing, found, whole, left)
    return found


WHOLE = {request for request, _ in REQUESTS}


def _ended(framing: Framing, found: list[bytes], whole: bytes, left: list[int | None]) -> tuple[bytes, bool]:
    framing.start()
    found.append(whole)
    left.pop(0)
    return b"", True


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=5), st.lists(st.integers(1, 40), min_size=0, max_size=60)
)
def test_no_piece_reaches_beyond_its_request(chosen: list[tuple[bytes, int | None]], sizes: list[int]) -> None:
    stream = b"".join(request for request, _ in chosen)

    assert cut(stream, sizes, [length for _, length in chosen]) == [request for request, _ in chosen]


def refused(framing: Framing, pieces: list[bytes], most_bytes: int) -> tuple[str, int]:
    """(kind of the refusal, bytes that got through before) of pieces that come again and again."""
    seen = 0
    while seen < most_bytes:
        for piece in pieces:
            try:
                seen += framing.next(bytearray(piece))
            except Refusal as refusal:
                return refusal.kind, seen
    return "none", seen


def test_blank_lines_before_a_request_count_as_its_head() -> None:
    kind, seen = refused(Framing(), [b"\r\n\r\n"], 2 * MOST_HEAD_BYTES)

    assert kind == "head_too_large"
    assert seen <= MOST_HEAD_BYTES


def test_what_is_no_content_of_a_chunked_body_is_bounded_over_all_of_it() -> None:
    framing = Framing()
    framing.body(None)

    kind, seen = refused(framing, [b"1;" + b"x" * 100 + b"\r\n", b"x\r\n"], 10 * MOST_CHUNK_OVERHEAD_BYTES)

    assert kind == "bad_request"
    assert seen < 1.2 * MOST_CHUNK_OVERHEAD_BYTES
