"""What the events of one stream tell: when text came, how many tokens there were, how it ended."""

from __future__ import annotations

import json
import time
from array import array
from typing import Any

from workbench.load.http1 import ProtocolError
from workbench.load.openai.framing import BodyReader, EventReader
from workbench.load.outcomes import BROKEN, CUT, NO_STREAM

DONE = b"[DONE]"
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call")
"""Where the text of a chat's delta stands; the second and third are thoughts, as vLLM names them."""
_MOST_TOKENS = 1 << 31
_KEPT_BYTES = 2000


class StreamedAnswer:
    """Attributes:
    text_s: when each chunk with text arrived; seconds of `time.perf_counter`. A chunk may hold several tokens.
    tokens, prompt_tokens: by the server's usage; None where it told none.
    done_s: when the stream said that it is done.
    stopped: whether the server gave a reason for its end.
    error: the server's words, where it reported an error in the stream.
    events: of any kind.
    """

    __slots__ = ("done_s", "error", "events", "prompt_tokens", "stopped", "text_s", "tokens")

    def __init__(self) -> None:
        self.text_s = array("d")
        self.tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.done_s: float | None = None
        self.stopped = False
        self.error = ""
        self.events = 0

    @property
    def complete(self) -> bool:
        """Whether nothing of the answer is missing."""
        return not self.error and (self.stopped or self.done_s is not None)

    def take(self, event: bytes, now_s: float) -> None:
        """Take in an event's data.

        Raises:
            ProtocolError: it is no JSON object, or its parts have other types.
        """
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


class StreamReader:
    """A whole HTTP answer with a stream, fed with bytes.

    Attributes:
        body_start: the first bytes of a body, for an error's words.
    """

    __slots__ = ("_body", "_events", "answer", "body_start")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Expect the answer to another request."""
        self._body, self._events, self.answer = BodyReader(), EventReader(), StreamedAnswer()
        self.body_start = b""

    @property
    def keep_alive(self) -> bool:
        head = self._body.head
        return head is not None and head.keep_alive

    @property
    def status(self) -> int:
        """HTTP status of a whole answer, or what is wrong with its stream (`workbench.load.outcomes`)."""
        head, answer = self._body.head, self.answer
        if head is None or not 200 <= head.status < 300:
            return 0 if head is None else head.status
        if answer.error:
            return BROKEN
        if answer.complete:
            return head.status
        return CUT if answer.events else NO_STREAM

    @property
    def ended(self) -> bool:
        """Whether the stream is complete, though its connection may have more to say."""
        return self.answer.done_s is not None and not self.answer.error

    def feed(self, data: bytes) -> bool:
        """True once the answer is whole.

        Raises:
            ProtocolError: these bytes are no HTTP/1.1 answer, or no events of this API.
        """
        now_s = time.perf_counter()
        body = self._body.feed(data)
        if len(self.body_start) < _KEPT_BYTES:
            self.body_start = (self.body_start + body)[:_KEPT_BYTES]
        head = self._body.head
        if body and head is not None and 200 <= head.status < 300:
            for event in self._events.feed(body):
                self.answer.take(event, now_s)
        if self._body.whole:
            self._flush(now_s)
        return self._body.whole

    def end(self) -> bool:
        """The peer closed; True when that is what ends the answer."""
        self._body.end()
        if self._body.whole:
            self._flush(time.perf_counter())
        return self._body.whole

    def _flush(self, now_s: float) -> None:
        for event in self._events.end():
            self.answer.take(event, now_s)


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
