"""As much of HTTP/1.1 as a load generator needs: a request encoded once, an answer recognised, what becomes of requests
that get no HTTP status; and one question beside a load (metadata, a first answer), within bounds of size and time.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httptools

from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError


class ProtocolError(ConnectionError):
    """The peer sent something that is no answer to the request; the connection is of no more use."""


LONGEST_HEAD_BYTES = 65_536
LONGEST_ANSWER_BYTES = 64 * 1024 * 1024


def encode_request(
    path: str, host: str, body: bytes, headers: Mapping[str, str] | None = None, method: str = "POST"
) -> bytes:
    """The bytes of a request that keeps its connection open; of JSON, where `headers` name no other Content-Type."""
    given = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        *(f"{name}: {value}" for name, value in given.items()),
    ]
    for line in lines:
        if "\r" in line or "\n" in line:
            raise ValueError("a header holds a line break")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class AnswerReader:
    """One answer after the other, since requests are not pipelined. llhttp, by httptools, says what they are; here is
    what it does not bound, and where an answer ends that has neither a length nor chunks.

    Attributes:
        keep_alive: the connection may be used again after it.
        whole: whether the answer is.
    """

    __slots__ = ("_bytes", "_code", "_framed", "_more", "_parser", "_pieces", "keep_alive", "whole")
    most_bytes = LONGEST_ANSWER_BYTES

    def __init__(self) -> None:
        self.whole = self.keep_alive = False
        self.begin()

    def begin(self) -> None:
        """Expect the answer to another request."""
        if not (self.whole and self.keep_alive):
            self._parser = httptools.HttpResponseParser(self)
        self.whole = self.keep_alive = self._framed = self._more = False
        self._code = self._bytes = 0
        self._pieces: list[bytes] = []

    @property
    def ended(self) -> bool:
        """What is told is complete, though the connection may have more to say."""
        return False

    @property
    def status(self) -> int:
        """Of a whole answer; of what reads more than HTTP, also one of the codes of `workbench.load.http1`."""
        return self._code

    def taken(self, body: bytes) -> None:
        """Bytes of the body, without its framing, which are of no interest here."""

    def feed(self, data: bytes) -> bool:
        """True once the answer is whole.

        Raises:
            ProtocolError: these bytes are no HTTP/1.1 answer, an interim one, more than one, or beyond a bound.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise ProtocolError(f"no HTTP/1.1 answer: {error}") from error
        self._bytes += len(data)
        if self._more:
            raise ProtocolError("more bytes than the answer has")
        if 0 < self._code < 200:  # nothing this client sends asks for it
            raise ProtocolError(f"an interim answer, status {self._code}")
        if self._bytes > (self.most_bytes if self._code else LONGEST_HEAD_BYTES):
            raise ProtocolError(f"an answer of more than {self.most_bytes} bytes, {LONGEST_HEAD_BYTES} of its head")
        body = b"".join(self._pieces)
        self._pieces.clear()
        self.taken(body)
        return self.whole

    def end(self) -> bool:
        """The peer closed; True when that is what ends the answer, as that of a body which has no other end."""
        self.whole = self._code > 0 and not self._framed
        return self.whole

    # --- what the parser tells --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._more = self.whole

    def on_header(self, name: bytes, value: bytes) -> None:
        self._framed = self._framed or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self._code = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self.whole, self.keep_alive = True, self._parser.should_keep_alive()


CLOSED, TIMEOUT, GARBAGE, REFUSED, UNSENT = -1, -2, -3, -4, -5
BROKEN, CUT, NO_STREAM = -6, -7, -8
ERROR_KINDS = {
    CLOSED: "connection closed before the answer was whole",
    TIMEOUT: "no answer in time",
    GARBAGE: "no HTTP answer",
    REFUSED: "no connection",
    UNSENT: "not sent: too many outstanding",
    BROKEN: "an error in the middle of the stream",
    CUT: "the stream ended before it was complete",
    NO_STREAM: "an answer without a stream of events",
}
"""Outcomes that are no HTTP status; below zero in the recorded arrays."""


_TIMEOUT_S = 30.0
_READ_BYTES = 1 << 16


class _WholeAnswer(AnswerReader):
    """An answer with its headers, by their lower-cased names, and its body."""

    most_bytes = 256 << 20

    def begin(self) -> None:
        super().begin()
        self.headers: dict[str, str] = {}
        self.content = bytearray()

    def taken(self, body: bytes) -> None:
        self.content += body

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")


def converse(url: str, request: bytes, answer: AnswerReader, timeout_s: float) -> None:
    """Send the bytes of one request over a connection of its own and read the answer, until it or its stream ends.

    Raises:
        OSError: nobody answers within `timeout_s`, all together; not with HTTP, or with too much (ProtocolError).
    """
    parts, until_s = urlsplit(url), time.monotonic() + timeout_s
    with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=timeout_s) as connection:
        connection.sendall(request)
        while not (answer.whole or answer.ended):
            left_s = until_s - time.monotonic()
            if left_s <= 0:  # a server that drips
                raise TimeoutError(f"no whole answer within {timeout_s:g} s")
            connection.settimeout(left_s)
            data = connection.recv(_READ_BYTES)
            if data:
                answer.feed(data)
            elif not answer.end():
                raise ProtocolError(ERROR_KINDS[CLOSED])


def exchange(
    url: str, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float = _TIMEOUT_S
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers by their lower-cased names, body).

    Raises:
        OSError: as `converse`.
    """
    found = _WholeAnswer()
    converse(url, encode_request(path, urlsplit(url).netloc, body or b"", headers, method), found, timeout_s)
    return found.status, found.headers, bytes(found.content)


def asked(
    url: str, method: str, path: str, body: bytes | None, headers: Mapping[str, str], *, key: str = "url"
) -> tuple[int, Any, bytes]:
    """(status, the body as JSON, of equal keys the last, None where it is none; the body).

    Raises:
        ConfigError: nobody answers at what `key` names.
    """
    try:
        status, _, content = exchange(url, method, path, body, headers)
    except OSError as error:
        raise ConfigError(f"{url} does not answer: {error}.", key=key) from error
    try:
        return status, loads(content, once=False), content
    except JsonError:
        return status, None, content


def only_name(listed: Any, key: str, otherwise: str) -> str:
    """The one name that a server's list of models has.

    Raises:
        ConfigError: it has several, or none; that is said by `otherwise`.
    """
    entries = listed if isinstance(listed, list) else []
    names = sorted({str(entry[key]) for entry in entries if isinstance(entry, dict) and entry.get(key)})
    if len(names) == 1:
        return names[0]
    known = f"It has {', '.join(names[:20])}: " if names else otherwise
    raise ConfigError("which model is asked?", key="--model", hint=f"{known}name it with --model NAME.")


def body_words(content: bytes) -> str:
    """The beginning of an answer's body, for an error."""
    return " ".join(content[:300].decode("utf-8", "replace").split()) or "nothing"
