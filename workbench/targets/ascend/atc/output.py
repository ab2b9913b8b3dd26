"""What ATC printed: the records of the error manager, in both layouts.

    8.5      [PID: 812] 2026-01-02-03:04:05.006.007 Not_Supported_Operator(E13010): No operator plugin …
    to 8.1   E13010: [PID: 812] 2026-01-02-03:04:05.006.007 No parser is registered for …
                     Possible Cause: …
                     Solution: …
                     TraceBack (most recent call last):
                     …

Where every record is an inner error, a line `E19999: Inner Error!` comes first, and from 8.5 on the code stands twice
in the line behind it: `E19999[PID: 812] 2026-01-02-03:04:05.006.007 (E19999):  …`.

Sources: runtime v8.5.0 src/dfx/error_manager/error_manager.cc:55-75,538-626; user reports for the older one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_CODE = r"[EW][0-9A-Z]\d{4}"
_PID = r"\[PID: ?(?P<pid>\d+)\]"
_TIME = r"\d{4}-\d{2}-\d{2}-\d{2}:\d{2}:\d{2}[.\d]*"
_NEW = re.compile(rf"^(?:(?:{_CODE})?{_PID} )?(?:{_TIME} )?(?P<title>[^():]*)\((?P<code>{_CODE})\):\s*(?P<text>.*)$")
_OLD = re.compile(rf"^(?P<code>{_CODE}):\s*(?:{_PID}\s*)?(?:{_TIME}\s*)?(?P<text>.*)$")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")

_SUCCESS = "ATC run success"
_FAILURE = "ATC run failed"
_CAUSE, _SOLUTION, _TRACE = "Possible Cause:", "Solution:", "TraceBack (most recent call last):"
_LONGEST_LINE = 4000
_MOST_LINES = 20000


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One record.

    Attributes:
        title: the vendor's class of error; empty in the older layout.
        text: what happened, with the vendor's words.
        trace: what other records add, outermost first.
    """

    code: str
    title: str = ""
    text: str = ""
    trace: tuple[str, ...] = ()

    @property
    def warning(self) -> bool:
        return self.code.startswith("W")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one run said.

    Attributes:
        errors, warnings: records in the order they were printed.
        complaints: lines `ERROR: …`, which ATC writes to stderr for a command line that it cannot read.
        words: the last lines that are no dots, for a run that left no record.
    """

    errors: tuple[Message, ...] = ()
    warnings: tuple[Message, ...] = ()
    complaints: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    code: str
    title: str
    place: str = "text"
    parts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, line: str) -> None:
        self.parts.setdefault(self.place, []).append(line)

    def finish(self) -> Message:
        text, trace = ([line for line in self.parts.get(place, ()) if line] for place in ("text", "trace"))
        return Message(code=self.code, title=self.title, text=" ".join(text), trace=tuple(trace))


def parse_output(text: str) -> Output:
    """Everything that can be told from what ATC wrote to stdout and stderr. Never raises, whatever the text."""
    lines = [_CONTROL.sub("", line)[:_LONGEST_LINE] for line in text.splitlines()[-_MOST_LINES:]]
    messages = list(_messages(lines))
    return Output(
        errors=tuple(message for message in messages if not message.warning),
        warnings=tuple(message for message in messages if message.warning),
        complaints=tuple(line.strip() for line in lines if line.startswith("ERROR: ")),
        words=tuple(line.strip() for line in lines if line.strip(" .\t"))[-5:],
    )


def _messages(lines: list[str]) -> Iterator[Message]:
    draft: _Draft | None = None
    for line in lines:
        head = _NEW.match(line) or _OLD.match(line)
        if head is not None:
            inner = draft is not None and draft.code == head["code"] and "Inner Error" in " ".join(draft.parts["text"])
            if inner and draft is not None:
                # "EZ9999: Inner Error!" is a headline without content; the records with the same code carry it
                draft.add(head["text"].strip())
                continue
            if draft is not None:
                yield draft.finish()
            draft = _Draft(code=head["code"], title=head.groupdict().get("title") or "")
            draft.title = draft.title.strip()
            draft.add(head["text"].strip())
        elif draft is not None:
            if not line.strip() or _SUCCESS in line or _FAILURE in line:
                yield draft.finish()
                draft = None
            else:
                _continue(draft, line.strip())
    if draft is not None:
        yield draft.finish()


def _continue(draft: _Draft, line: str) -> None:
    for mark, place in ((_CAUSE, "advice"), (_SOLUTION, "advice"), (_TRACE, "trace")):
        if line.startswith(mark):
            draft.place = place
            line = line.removeprefix(mark).strip()
            break
    draft.add(line)
