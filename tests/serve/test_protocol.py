"""Heads of requests that are too long or never end, requests in two readings, clients that do not read or wait."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.serve.attacks import CHUNKED, TWO_READINGS, posted
from tests.serve.sockets import WAIT_S, serving, talk
from workbench.serve.http import MOST_FIELDS, MOST_HEAD_BYTES

PATIENCE_S = 0.4


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(linger_s=0.5) as patient:
        yield patient.port


@pytest.fixture(scope="module")
def hasty() -> Iterator[int]:
    """The port of a server that waits for nobody."""
    with serving(head_timeout_s=PATIENCE_S, body_timeout_s=1.0, linger_s=0.5) as impatient:
        yield impatient.port


def test_who_does_not_send_in_time_is_told_so_and_cut_off(hasty: int) -> None:
    drops: list[bytes | float] = [b"POST /predict HTTP/1.1\r\n"]
    unread: list[bytes | float] = [posted(b"x" * 10_000, path=b"/unread")[:-10_000]]
    for number in range(20):
        drops += [0.05, b"X-%d: 1\r\n" % number]
    for _ in range(300):
        unread += [b"x", 0.1]
    blank: list[bytes | float] = [posted(b"{}"), *[b"\r\n", 0.1] * 20]
    second: list[bytes | float] = [posted(b"{}"), 0.6, posted(b"{}"), 0.6, b"POST /predict HT"]
    for what, parts, statuses, least_s, most_s in (
        ("nothing", [], [], PATIENCE_S * 0.9, WAIT_S),
        ("a head drop by drop", drops, [b"408"], 0.0, WAIT_S),
        ("a second head, which has its own time", second, [b"200", b"200", b"408"], 1.2, 2 * WAIT_S),
        ("a body without end", [posted(b"x" * 100)[:-50]], [b"408"], 0.9, WAIT_S),
        ("a body that nobody reads, which would come for days", unread, [b"404"], 0.0, 30.0),
        ("blank lines between requests, which buy no time", blank, [b"200"], 0.0, WAIT_S),
    ):
        said, seconds = talk(hasty, *parts)
        assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == statuses, what
        assert least_s < seconds < most_s, what
        assert (b"408" in statuses) == (b"connection: close" in said), what


def test_the_rest_of_a_body_that_was_answered_early_is_no_request(port: int) -> None:
    inside = posted(b"{}", path=b"/names")
    whole = posted(b"x" * 20_000 + inside, path=b"/unread")

    said, _ = talk(port, whole, 1, posted(b"{}"), answers=2, wait_s=0.3)

    assert said.count(b"HTTP/1.1 404 ") == said.count(b"HTTP/1.1 200 ") == 1
    assert said.endswith(b"ok")


def test_a_client_that_reads_nothing_is_cut_off() -> None:
    with serving(write_timeout_s=0.3) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(posted(b"{}", path=b"/large"))
        until = time.monotonic() + 60
        while not server.connections.count:
            time.sleep(0.01)
        while server.connections.count:
            assert time.monotonic() < until, "the connection stayed open"
            time.sleep(0.02)


def test_what_two_servers_could_read_in_two_ways_is_refused_and_the_connection_closed(port: int) -> None:
    for sent in TWO_READINGS:
        said, _ = talk(port, sent, posted(b"{}", path=b"/smuggled"), answers=1, wait_s=1.0)
        assert said.startswith(b"HTTP/1.1 400 "), sent[:200]
        assert said.count(b"content-length: ") == 1, sent[:200]
        assert b"connection: close" in said, sent[:200]
        assert b'{"error": {"kind": "bad_request"' in said, sent[:200]


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n"
"""Java's client asks every plain server for HTTP/2 so."""
HALF = b"X: " + b"a" * (MOST_HEAD_BYTES // 2) + b"\r\n"
LONG = posted(b"{}", head=b"X: y\r\n")


def test_sound_requests_are_answered(port: int) -> None:
    for what, parts, count in (
        ("its own host", [b"GET http://a:1/names?q HTTP/1.1\r\nHost: A:1\r\n\r\n"], 1),
        ("an upgrade", [b"GET /a HTTP/1.1\r\nHost: a\r\n" + UPGRADE + b"\r\n", 1, posted(b"{}")], 2),
        ("an upgrade with a body", [posted(b"{}", head=UPGRADE), 1, posted(b"{}")], 2),
        ("half of a head each", [posted(b"{}", head=HALF), 1, posted(b"{}", head=HALF)], 2),
        ("after a body", [posted(b"x" * 200_000), 1, LONG[:-20], 0.1, LONG[-20:]], 2),
    ):
        said, _ = talk(port, *parts, answers=count, wait_s=0.1)
        assert said.count(b"HTTP/1.1 200 ") == count, what


def test_trailers_are_no_headers(port: int) -> None:
    whole = CHUNKED.replace(b"/predict", b"/names") + b"\r\n2\r\n{}\r\n0\r\nX-API-Key: k\r\nHost: b\r\n\r\n"
    said, _ = talk(port, whole, 1, posted(b"{}"), answers=2, wait_s=0.1)

    assert said.count(b"HTTP/1.1 200 ") == 2
    assert b"\r\n\r\nhost content-type transfer-encoding" in said
    assert b"x-api-key" not in said


def test_a_head_of_very_many_fields_or_a_very_long_one_gets_431(port: int) -> None:
    most = b"".join(b"X: 1\r\n" for _ in range(MOST_FIELDS - 4))

    for sent, status in (
        (posted(b"{}", head=most), b"200"),
        (posted(b"{}", head=most + b"X: 1\r\n" * 5), b"431"),
        (posted(b"{}", head=b"X: " + b"a" * MOST_HEAD_BYTES + b"\r\n"), b"431"),
    ):
        assert talk(port, sent, answers=1, wait_s=0.1)[0].startswith(b"HTTP/1.1 " + status)


def test_a_head_without_end_is_cut_off_with_431() -> None:
    """Also when more of it is on its way: closed with unread bytes, TCP would reset the connection and drop the 431."""
    endless: list[bytes | float] = [b"GET / HTTP/1.1\r\n", b"X: " + b"a" * (MOST_HEAD_BYTES + 1000), 0.1]
    endless += [b"a" * 500_000, 0.05] * 3

    with serving() as patient:
        said, seconds = talk(patient.port, *endless, wait_s=10)

    assert said.startswith(b"HTTP/1.1 431 ")
    assert seconds < 10, "the connection stayed open"


def test_a_request_that_does_not_wait_for_the_answer_before_it_is_not_taken(port: int) -> None:
    for ahead in (posted(b"{}", path=b"/slow") * 4000, posted(b"{}", path=b"/slow") + b"no HTTP\r\n\r\n"):
        said, seconds = talk(port, ahead, answers=1)

        assert said.count(b"HTTP/1.1 ") == said.count(b"HTTP/1.1 200 ") == 1
        assert b"connection: close" in said
        assert seconds < WAIT_S


def test_a_flood_of_requests_that_are_refused_by_their_heads_is_not_answered_one_by_one(port: int) -> None:
    said, seconds = talk(port, posted(b"{}", path=b"/unread") * 4000)

    assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"404", b"400"]
    assert b"connection: close" in said
    assert seconds < WAIT_S
