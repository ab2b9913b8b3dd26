"""What ATC printed, and its codes in the user's words: what happened, and what to do about it.

The records of the error manager come in two layouts:

    8.5      [PID: 812] 2026-01-02-03:04:05.006.007 Not_Supported_Operator(E13010): No operator plugin …
    to 8.1   E13010: [PID: 812] 2026-01-02-03:04:05.006.007 No parser is registered for …
                     Possible Cause: …
                     Solution: …
                     TraceBack (most recent call last):
                     …

Where every record is an inner error, a line `E19999: Inner Error!` comes first, and from 8.5 on the code stands twice
in the line behind it: `E19999[PID: 812] 2026-01-02-03:04:05.006.007 (E19999):  …` (runtime v8.5.0
src/dfx/error_manager/error_manager.cc:55-75,538-626; user reports for the older one).

A code says what kind of trouble it is; often only its message says which one. The table is `codes.json`, for the codes
of the catalogues of CANN 8.5.0 (runtime v8.5.0 src/dfx/error_manager/error_code.json; ge v8.5.0) and of the releases
before it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_CODE = r"[EW][0-9A-Z]\d{4}"
_PID = r"\[PID: ?(?P<pid>\d+)\]"
_TIME = r"\d{4}-\d{2}-\d{2}-\d{2}:\d{2}:\d{2}[.\d]*"
_NEW = re.compile(rf"^(?:(?:{_CODE})?{_PID} )?(?:{_TIME} )?(?P<title>[^():]*)\((?P<code>{_CODE})\):\s*(?P<text>.*)$")
_OLD = re.compile(rf"^(?P<code>{_CODE}):\s*(?:{_PID}\s*)?(?:{_TIME}\s*)?(?P<text>.*)$")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")

_SUCCESS = "ATC run success"
_FAILURE = "ATC run failed"
_PLACES = {"Possible Cause:": "advice", "Solution:": "advice", "TraceBack (most recent call last):": "trace"}
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


def parse_output(text: str) -> Output:
    """Everything that can be told from what ATC wrote to stdout and stderr. Never raises, whatever the text."""
    lines = [_CONTROL.sub("", line)[:_LONGEST_LINE] for line in text.splitlines()[-_MOST_LINES:]]
    messages = _messages(lines)
    return Output(
        errors=tuple(message for message in messages if not message.code.startswith("W")),
        warnings=tuple(message for message in messages if message.code.startswith("W")),
        complaints=tuple(line.strip() for line in lines if line.startswith("ERROR: ")),
        words=tuple(line.strip() for line in lines if line.strip(" .\t"))[-5:],
    )


def _messages(lines: Iterable[str]) -> list[Message]:
    found: list[tuple[str, str, dict[str, list[str]]]] = []
    open_, place = False, "text"
    for line in lines:
        head = _NEW.match(line) or _OLD.match(line)
        if head is not None:
            # "EZ9999: Inner Error!" is a headline without content; the records with the same code carry it
            inner = open_ and found[-1][0] == head["code"] and "Inner Error" in " ".join(found[-1][2]["text"])
            if not inner:
                title = (head.groupdict().get("title") or "").strip()
                found.append((head["code"], title, {"text": [], "trace": [], "advice": []}))
                open_, place = True, "text"
            found[-1][2][place].append(head["text"].strip())
        elif open_ and (not line.strip() or _SUCCESS in line or _FAILURE in line):
            open_ = False
        elif open_:
            rest = line.strip()
            for mark, behind in _PLACES.items():
                if rest.startswith(mark):
                    place, rest = behind, rest.removeprefix(mark).strip()
            found[-1][2][place].append(rest)
    return [
        Message(
            code=code,
            title=title,
            text=" ".join(filter(None, parts["text"])),
            trace=tuple(filter(None, parts["trace"])),
        )
        for code, title, parts in found
    ]


# --- codes in the user's words: what happened, and what to do about it ------------------------------------------------


Who = Literal["model", "settings", "installation", "files", "memory", "disk", "compiler"]
"""What the trouble lies in: the 'installation' and the 'disk' (full, or no rights) fail every candidate; 'files' that
are missing and 'memory' may pass on a second try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What records mean to the user: those whose code, and where it has any whose words, fit these patterns."""

    code: str
    words: str = ""
    problem: str
    remedy: str
    who: Who


@functools.cache
def table() -> tuple[Meaning, ...]:
    """What comes first is preferred: special cases by their words, then codes, then ranges of codes."""
    from workbench.values.documents.canonical import decode  # what only an error needs
    from workbench.values.documents.json_reader import loads

    rows = loads(Path(__file__).with_name("codes.json").read_bytes())
    return decode(tuple[Meaning, ...], rows, "atc/codes.json")


def meaning_of(message: Message) -> Meaning:
    words = " ".join((message.text, message.title, *message.trace))
    return next(one for one in table() if re.fullmatch(one.code, message.code) and re.search(one.words, words))


def explain(output: Output) -> tuple[str, Meaning, str] | None:
    """What a failed run comes down to: the vendor's code, its meaning, and the vendor's own words; None where it left
    no record and no complaint."""
    tails = ("E10042", "E19999", "EZ9999")  # generic ends, and inner errors: what another record says is more
    headline = next((m for m in output.errors if m.code not in tails), output.errors[0] if output.errors else None)
    if headline is not None:
        return headline.code, meaning_of(headline), " ".join((headline.text, *headline.trace))
    if output.complaints:
        remedy = "This CANN is older than 8.5.0 or not CANN's ATC; run `workbench doctor`."
        meaning = Meaning(code="", problem="ATC did not understand its command line", remedy=remedy, who="installation")
        return "", meaning, output.complaints[0].removeprefix("ERROR: ")
    return None
