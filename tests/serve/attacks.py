"""Requests that nobody should send, drawn with a seed: bodies, heads, frames, and clients that misbehave. What is wrong
with single fields of a body, `test_requests` shows; with media types, methods and paths, `test_service`.

Every attack says which statuses it may be answered with; whatever the service says beyond that is a defect. Texts carry
`SECRET`, which must appear in no answer and in no line of the log.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

SECRET = "Geheimnis42"
LIMIT_BYTES = 1 << 20

HOST = b"Host: 127.0.0.1\r\n"
JSON_TYPE = b"Content-Type: application/json\r\n"
PLAIN = b"POST /predict HTTP/1.1\r\n" + HOST + JSON_TYPE + b"Content-Length: 2\r\n"
CHUNKED = b"POST /predict HTTP/1.1\r\n" + HOST + JSON_TYPE + b"Transfer-Encoding: chunked\r\n"
TWO_READINGS = (
    PLAIN + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    PLAIN + b"Content-Length: 2\r\n\r\n{}",
    PLAIN + b"Content-Length: 3\r\n\r\n{} ",
    PLAIN + b"X: a\r\n folded\r\n\r\n{}",
    PLAIN.replace(b"h: 2", b"h : 2") + b"\r\n{}",
    PLAIN.replace(b"h: 2", b"h: +2") + b"\r\n{}",
    PLAIN.replace(b"\r\n", b"\n") + b"\n{}",
    PLAIN + b"X: a\rY: b\r\n\r\n{}",
    PLAIN.replace(b"HTTP/1.1", b"HTTP/2.0") + b"\r\n{}",
    PLAIN.replace(b"HTTP/1.1", b"HTTP/0.9") + b"\r\n{}",
    PLAIN.replace(b"/predict", b"/predict#x") + b"\r\n{}",
    PLAIN.replace(b"/predict", b"http://evil/predict") + b"\r\n{}",
    PLAIN.replace(b"/predict", b"http://a@127.0.0.1/predict") + b"\r\n{}",
    PLAIN.replace(b"/predict", b"http://127.0.0.1/predict") + b"Host: b\r\n\r\n{}",
    b"CONNECT evil:443 HTTP/1.1\r\nHost: evil:443\r\n\r\n",
    CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n0\r\n\r\n",
    CHUNKED.replace(b"chunked", b"identity, chunked") + b"\r\n0\r\n\r\n",
    CHUNKED.replace(b"chunked", b"xchunked") + b"\r\n0\r\n\r\n",
    CHUNKED.replace(b"chunked", b"chunked, chunked") + b"\r\n0\r\n\r\n",
    CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    CHUNKED + b"\r\n2;x\n{}\r\n0\r\n\r\n",
    CHUNKED + b"\r\n2\r\n{}XX0\r\n\r\n",
    CHUNKED + b"\r\n" + b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n",
    CHUNKED + b"\r\n0\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    CHUNKED + b"\r\n" + b"1;%s\r\nx\r\n" % (b"x" * 100) * 2000 + b"0\r\n\r\n",
)
"""Requests of which two servers could see different ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What one client does on one connection.

    Attributes:
        parts: bytes to send and, between them, seconds to wait.
        statuses: allowed for each answer, in order; empty for a client that leaves without one.
        may_close: the service may close the connection instead of answering.
        leaves: how the client ends: 'read' after its answers, 'now' without waiting, 'reset' with a TCP reset.
        reuses: the connection is good for another request afterwards.
    """

    name: str
    parts: tuple[bytes | float, ...]
    statuses: tuple[frozenset[int], ...]
    may_close: bool = False
    leaves: str = "read"
    reuses: bool = False


Draw = Callable[[random.Random], Attack]


def good(text: str = "anna paid in paris") -> bytes:
    return posted(json.dumps({"text": text}).encode())


def posted(body: bytes, *, head: bytes = JSON_TYPE, path: bytes = b"/predict", method: bytes = b"POST") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return method + b" " + path + b" HTTP/1.1\r\n" + HOST + head + length + b"\r\n" + body


def body(name: str, content: bytes, *statuses: int) -> Attack:
    """A whole, well framed request whose body is wrong."""
    return Attack(name=name, parts=(posted(content),), statuses=(frozenset(statuses),), reuses=True)


# --- bodies ---------------------------------------------------------------------------------------------------------


def leaf(rng: random.Random) -> Any:
    number = rng.choice([0, -1, rng.randint(-(10**30), 10**30), rng.random() * 10 ** rng.randint(-300, 300)])
    text = rng.choice(["", SECRET, "\x00" + SECRET, "张三" * rng.randint(0, 20), " \t\n", "\ud83d"])
    return rng.choice([None, True, False, number, number, text, text])


def tree(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth > 5 or kind < 0.4:
        return leaf(rng)
    names = ["text", "texts", "words", "inputs", "input_ids", SECRET, "", "__proto__", "\ud83d"]
    if kind < 0.7:
        return [tree(rng, depth + 1) for _ in range(rng.randint(0, 5))]
    return {rng.choice(names): tree(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def random_json(rng: random.Random) -> Attack:
    """Any JSON at all, under a key that cannot be right."""
    content = tree(rng)
    if isinstance(content, dict):
        content[SECRET] = 1
    return body("random JSON", json.dumps(content).encode(), 422)


def binary(rng: random.Random) -> Attack:
    content = rng.choice(
        [
            rng.randbytes(rng.randint(1, 2000)),
            b"\x80\x81",
            b'{"text": "\xff\xfe"}',
            b'{"text": "\xed\xa0\x80"}',  # a surrogate as UTF-8
            b'{"text": "\xc0\xaf"}',  # longer than it may be
            b'\xef\xbb\xbf{"text": "loan"}',
            json.dumps({"text": "loan"}).encode("utf-16"),
            json.dumps({"text": "loan"}).encode("utf-32"),
            b"\x1f\x8b\x08" + rng.randbytes(50),
            b"\x00" * rng.randint(1, 5000),
            b"PK\x03\x04" + rng.randbytes(50),
            b"\x80\x04\x95cos\nsystem\n(S'true'\ntR.",  # a pickle
        ]
    )
    return body("binary", content, 400)


def inputs_that_swell(rng: random.Random) -> Attack:
    """One long string among many short ones: as an array every one is as long as the longest."""
    row = ["x" * 1000, *[""] * 100_000]
    return body(
        "inputs that swell", json.dumps({"inputs": {"input_ids": [row], "attention_mask": [[1]]}}).encode(), 422
    )


# --- heads ----------------------------------------------------------------------------------------------------------


def head_bombs(rng: random.Random) -> Attack:
    head = rng.choice(
        [
            b"".join(b"X-%d: 1\r\n" % i for i in range(20_000)),
            b"X-Long: " + b"a" * 200_000 + b"\r\n",
            b"A" * 200_000 + b": 1\r\n",
            b"Cookie: " + b"a=b; " * 50_000 + b"\r\n",
        ]
    )
    return Attack(
        name="head bombs",
        parts=(b"POST /predict HTTP/1.1\r\n" + HOST + head + b"\r\n",),
        statuses=(frozenset({400, 431}),),
        may_close=True,
    )


# --- frames ---------------------------------------------------------------------------------------------------------


def broken_http(rng: random.Random) -> Attack:
    head = b"POST /predict HTTP/1.1\r\n" + HOST + JSON_TYPE
    content = rng.choice(
        [
            b"\r\n\r\n\r\n\x00\x01\x02",
            b"GET\r\n\r\n",
            b"POST /predict\r\n\r\n",
            b"HELLO\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),
            head + b"Content-Length: -5\r\n\r\n",
            head + b"Content-Length: x\r\n\r\n",
            head + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
            head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
            head + b"no colon here\r\n\r\n",
            head + b"X: a\x00b\r\n\r\n",
            head + b"X y: 1\r\n\r\n",
            rng.randbytes(rng.randint(1, 400)).replace(b"\r", b"x") + b"\r\n\r\n",
        ]
    )
    return Attack(
        name="broken HTTP",
        parts=(content,),
        statuses=(frozenset({400, 404, 405, 413, 422}),),
        may_close=True,
    )


def chunked(rng: random.Random) -> Attack:
    """Whole and chunked, in pieces of any size, but no JSON."""
    content = rng.choice([b'{"text": 5}', b"[1, 2", b"", rng.randbytes(300), b'{"text": "' + b"x" * 20_000 + b'"}'])
    pieces, rest = [], content
    while rest:
        size = rng.randint(1, max(1, len(content) // 3))
        pieces.append(b"%x\r\n%s\r\n" % (len(rest[:size]), rest[:size]))
        rest = rest[size:]
    head = CHUNKED + b"\r\n"
    return Attack(
        name="chunked",
        parts=(head, *pieces, b"0\r\n\r\n"),
        statuses=(frozenset({400, 422}),),
        reuses=True,
    )


def too_large(rng: random.Random) -> Attack:
    content = b'{"text": "' + b"x" * (LIMIT_BYTES + rng.randint(0, LIMIT_BYTES)) + b'"}'
    if rng.random() < 0.5:
        return Attack(name="too large", parts=(posted(content),), statuses=(frozenset({413}),), may_close=True)
    head = CHUNKED + b"\r\n"
    whole = head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
    return Attack(name="too large, chunked", parts=(whole,), statuses=(frozenset({413}),), may_close=True)


def pipelined(rng: random.Random) -> Attack:
    """Wrong and right requests in one write: the first is answered, and the connection closes."""
    drawn = [(b'{"text": 5}', 422), (b"nonsense", 400), (b'{"text": "anna paid in paris"}', 200), (b"{}", 422)]
    chosen = [rng.choice(drawn) for _ in range(rng.randint(2, 8))]
    sent, first = b"".join(posted(content) for content, _ in chosen), frozenset({chosen[0][1]})
    return Attack(name="pipelined", parts=(sent,), statuses=(first,))


# --- clients --------------------------------------------------------------------------------------------------------


def half(rng: random.Random) -> Attack:
    """Part of a request, then gone."""
    whole = rng.choice([good(), posted(b'{"text": 5}'), good("loan " * 500)])
    cut = rng.randint(0, len(whole) - 1)
    return Attack(name="half", parts=(whole[:cut],), statuses=(), leaves=rng.choice(["now", "reset"]))


def impatient(rng: random.Random) -> Attack:
    """A right request whose client does not wait for the answer."""
    return Attack(name="impatient", parts=(good(),), statuses=(), leaves=rng.choice(["now", "reset"]))


def slow(rng: random.Random) -> Attack:
    """A wrong request in small pieces."""
    whole = posted(rng.choice([b'{"text": 5}', b"nonsense"]))
    cuts = sorted(rng.sample(range(1, len(whole)), 3))
    pieces: list[bytes | float] = []
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        pieces += [whole[begin:end], 0.02]
    return Attack(name="slow", parts=tuple(pieces), statuses=(frozenset({400, 422}),), reuses=True)


OFTEN: tuple[Draw, ...] = (random_json, binary, broken_http, chunked, pipelined, half, impatient, slow)
SELDOM: tuple[Draw, ...] = (head_bombs, too_large, inputs_that_swell)
"""They send hundreds of kilobytes each."""


def attacks(seed: int, count: int) -> Iterator[Attack]:
    """The same attacks for the same seed; each kind comes among the first ones."""
    rng = random.Random(seed)
    for number in range(count):
        if number < len(OFTEN + SELDOM):
            draw = (OFTEN + SELDOM)[number]
        else:
            draw = rng.choice(SELDOM) if rng.random() < 0.03 else rng.choice(OFTEN)
        yield draw(rng)
