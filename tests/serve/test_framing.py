"""Requests cut from a stream: the same pieces of requests however the bytes arrive."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.attacks import posted
from workbench.serve.framing import Framing

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
