"""What the events of one stream tell: when text came, how many tokens there were, how it ended; and the load
generator's connection, which keeps the times.
"""

from __future__ import annotations

import json
import re
import time
from array import array
from typing import Any, ClassVar, cast

from workbench.load.client import Connection
from workbench.load.http1 import BROKEN, CLOSED, CUT, GARBAGE, NO_STREAM, TIMEOUT, AnswerReader, ProtocolError

DONE = b"[DONE]"
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call")
"""Where the text of a chat's delta stands; the second and third are thoughts, as vLLM names them."""
_MOST_TOKENS = 1 << 31
LONGEST_EVENT_BYTES = 1 << 20
_LINE_END = re.compile(rb"\r\n|\n|\r")
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r(?!\Z)){2,}")
"""A return that comes last may be half of a line's end."""
_KEPT_BYTES = 2000


class EventReader:
    """Server-sent events: the data of each, out of a body that arrives in pieces (WHATWG HTML, section 9.2.6).

    Lines end with \\n, \\r\\n or \\r; an event with an empty line. Comments, which servers send to keep a connection
    alive, and fields other than `data` are dropped.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of every event that these bytes complete.

        Raises:
            ProtocolError: an event of more than `LONGEST_EVENT_BYTES`.
        """
        may_end = self._rest.endswith(b"\r") or b"\n" in piece or b"\r" in piece
        self._rest += piece
        found, at = list[bytes](), 0
        for end in _EVENT_END.finditer(self._rest) if may_end else ():
            found += _data(self._rest[at : end.start()])
            at = end.end()
        self._rest = self._rest[at:]
        if len(self._rest) > LONGEST_EVENT_BYTES:
            raise ProtocolError(f"an event of more than {LONGEST_EVENT_BYTES} bytes")
        return found

    def end(self) -> list[bytes]:
        """What is left when the body is over: a last event without its empty line, which LitServe's errors are."""
        found, self._rest = _data(self._rest), b""
        return found


def _data(event: bytes) -> list[bytes]:
    lines = [line[5:].removeprefix(b" ") for line in _LINE_END.split(event) if line.startswith(b"data:")]
    return [data] if (data := b"\n".join(lines)) else []


class StreamReader(AnswerReader):
    """A whole HTTP answer with a stream, fed with bytes.

    Attributes:
        body_start: the first bytes of a body, for an error's words.
        text_s: when each chunk with text arrived; seconds of `time.perf_counter`. A chunk may hold several tokens.
        tokens, prompt_tokens: by the server's usage; None where it told none.
        done_s: when the stream said that it is done.
        stopped: whether the server gave a reason for its end.
        error: the server's words, where it reported an error in the stream.
        events: of any kind.
    """

    def begin(self) -> None:
        super().begin()
        self._reader, self.body_start, self.text_s = EventReader(), b"", array("d")
        self.tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.done_s: float | None = None
        self.stopped, self.error, self.events = False, "", 0

    @property
    def status(self) -> int:
        """HTTP status of a whole answer, or what is wrong with its stream (`workbench.load.http1`)."""
        code = super().status
        if not 200 <= code < 300:
            return code
        if self.error:
            return BROKEN
        if self.stopped or self.done_s is not None:
            return code
        return CUT if self.events else NO_STREAM

    @property
    def ended(self) -> bool:
        return self.done_s is not None and not self.error

    def taken(self, body: bytes) -> None:
        """Take in its events.

        Raises:
            ProtocolError: one is no JSON object, or its parts have other types.
        """
        now_s = time.perf_counter()
        if len(self.body_start) < _KEPT_BYTES:
            self.body_start = (self.body_start + body)[:_KEPT_BYTES]
        if body and 200 <= super().status < 300:
            for event in self._reader.feed(body):
                self._take(event, now_s)
        if self.whole:
            self._flush(now_s)

    def end(self) -> bool:
        if super().end():
            self._flush(time.perf_counter())
        return self.whole

    def _flush(self, now_s: float) -> None:
        for event in self._reader.end():
            self._take(event, now_s)

    def _take(self, event: bytes, now_s: float) -> None:
        self.events += 1
        if event.strip() == DONE:
            self.done_s = now_s
            return
        try:
            # not the strict reader: servers write -Infinity among log-probabilities, and halves of characters
            value = json.loads(event)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("an event that is no JSON") from error
        if not isinstance(value, dict):
            raise ProtocolError("an event that is no JSON object")
        if value.get("error") is not None or value.get("object") == "error":
            self.error = error_words(value)
            return
        choices = value.get("choices") or ()
        if not isinstance(choices, list | tuple) or not all(isinstance(choice, dict) for choice in choices):
            raise ProtocolError("choices that are no objects")
        if any(_text(choice) for choice in choices):
            self.text_s.append(now_s)
        self.stopped = self.stopped or any(choice.get("finish_reason") for choice in choices)
        if isinstance(usage := value.get("usage"), dict):
            self.tokens = _count(usage.get("completion_tokens"), self.tokens)
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)


def error_words(value: Any) -> str:
    """The message of an error object, as OpenAI's API and its kin write them."""
    error = value.get("error", value) if isinstance(value, dict) else value
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return " ".join(str(error)[:300].split()) or "an error without words"


def _text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    if isinstance(delta, dict) and any(delta.get(name) for name in _TEXTS):
        return True
    return bool(choice.get("text"))


def _count(value: object, before: int | None) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS
    return value if known else before  # type: ignore[return-value]  # `known` says that it is an int


MOST_CHUNKS = 20_000_000
"""Times that are kept: 160 MB. A load that brings more ends there."""
_UNTOLD = -1


class StreamConnection(Connection):
    """One client. A request is over when the body of its answer is; its time ends where the stream said it is done.

    Of streams are kept, in the order of their ends: the place of the request among all, how many chunks had text, the
    tokens by the server's usage (-1 where it told none); and the chunks' times, one stream behind the other.
    """

    COLUMNS: ClassVar[dict[str, str]] = {
        **Connection.COLUMNS,
        **dict.fromkeys(("stream_row", "stream_chunks", "stream_tokens", "stream_prompt_tokens"), "q"),
        "chunk_s": "d",
    }
    reader_type = StreamReader

    def _finish(self, outcome: int, done_s: float | None = None) -> None:
        stream, columns = cast(StreamReader, self.reader), self.clients.columns
        if outcome in (CLOSED, TIMEOUT, GARBAGE) and stream.ended:  # whole for its reader; only the framing is not
            outcome = stream.status
        if stream.events:
            columns["stream_row"].append(len(columns["done_s"]))
            columns["stream_chunks"].append(len(stream.text_s))
            columns["stream_tokens"].append(_UNTOLD if stream.tokens is None else stream.tokens)
            columns["stream_prompt_tokens"].append(_UNTOLD if stream.prompt_tokens is None else stream.prompt_tokens)
            columns["chunk_s"].extend(stream.text_s)
            self.clients.server_error = self.clients.server_error or stream.error
        super()._finish(outcome, stream.done_s if outcome > 0 else done_s)
        if len(columns["chunk_s"]) >= MOST_CHUNKS:
            self.clients.full = True
            self.clients.stop()
