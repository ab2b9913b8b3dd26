"""ATC's codes in the user's words: what happened, and what to do about it.

A code says what kind of trouble it is; often only its message says which one (`Table.cases`). The table is
`codes.json`, for the codes of the catalogues of CANN 8.5.0 (runtime v8.5.0 src/dfx/error_manager/error_code.json; ge
v8.5.0) and of the releases before it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.targets.ascend.atc.output import Message, Output

Who = Literal["model", "settings", "installation", "files", "memory", "disk", "compiler"]
"""What the trouble lies in: the 'installation' and the 'disk' (full, or no rights) fail every candidate; 'files' that
are missing and 'memory' may pass on a second try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a code, or one of its messages, means to the user."""

    problem: str
    remedy: str
    who: Who


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a failed run comes down to.

    Attributes:
        code: the vendor's; empty where it gave none.
        operator, type: the operator that the message names, where it does.
        others: further operators with the same trouble.
        quoted: the vendor's own words.
    """

    code: str
    problem: str
    remedy: str
    who: Who
    operator: str = ""
    type: str = ""
    others: tuple[str, ...] = ()
    quoted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family(Meaning):
    """A pattern of codes."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case(_Family):
    """Words of the message, a pattern as well, that say more than the code."""

    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What comes first in it is preferred: `cases`, then `codes`, then `ranges` of codes not listed one by one."""

    cases: tuple[_Case, ...]
    codes: Mapping[str, Meaning]
    ranges: tuple[_Family, ...]


@functools.cache
def table() -> Table:
    from workbench.values.documents.canonical import decode  # what only an error needs
    from workbench.values.documents.json_reader import loads

    return decode(Table, loads(Path(__file__).with_name("codes.json").read_bytes()), "atc/codes.json")


_NAME = (
    re.compile(r"\bOp(?:name| name)?\b:?\s*\[?([^\s,\[\]]+?)[\].,]*(?=[\s,]|$)"),
    re.compile(r"found for \[?([^\s,\[\]]+?)[\].,]*(?=[\s,]|$)"),
    re.compile(r"\b[Oo]perator \[?([^\s,\[\]]+?)[\].,]*(?=[\s,]|$)"),
    re.compile(r"\bnode \[?([^\s,\[\]]+?)[\].,]*(?=[\s,]|$)"),
)
_TYPE = re.compile(r"(?i)\b(?:op_?\s?type|of type):?\s*\[?\s*([\w.:]*\w)")
_NO_NAMES = frozenset({"type", "optype", "of", "for", "is", "with", "the", "in", "kernel", "input", "shape"})


def meaning_of(message: Message) -> Meaning:
    """What a record means: the special case of its words, else its code, else the family of its code."""
    words = " ".join((message.text, message.title, *message.trace))
    for case in table().cases:
        if re.fullmatch(case.code, message.code) and re.search(case.words, words):
            return case
    if message.code in table().codes:
        return table().codes[message.code]
    return next(family for family in table().ranges if re.fullmatch(family.code, message.code))


def operator_of(message: Message) -> tuple[str, str]:
    """Name and type of the operator that a record names; empty where it names none."""
    for text in (message.text, *message.trace):
        kind = _TYPE.search(text)
        for pattern in _NAME:
            name = pattern.search(text)
            if name is not None and name[1].lower() not in _NO_NAMES:
                return name[1], kind[1] if kind else ""
        if kind is not None:
            return "", kind[1]
    return "", ""


def explain(output: Output) -> Explanation | None:
    """What a failed run comes down to; None where it left no record and no complaint."""
    headline = _headline(output)
    if headline is None:
        if output.complaints:
            return Explanation(
                code="",
                problem="ATC did not understand its command line",
                remedy="This CANN is older than 8.5.0 or not CANN's ATC; run `workbench doctor`.",
                who="installation",
                quoted=output.complaints[0].removeprefix("ERROR: "),
            )
        return None
    meaning = meaning_of(headline)
    operator, kind = operator_of(headline)
    named = [operator_of(Message(code=headline.code, text=line)) for line in headline.trace]
    named += [operator_of(m) for m in output.errors if m is not headline and m.code == headline.code]
    others = tuple(dict.fromkeys(name for name, other in named if name and other and name != operator))
    return Explanation(
        code=headline.code,
        problem=meaning.problem,
        remedy=meaning.remedy,
        who=meaning.who,
        operator=operator,
        type=kind,
        others=others,
        quoted=headline.text,
    )


def _headline(output: Output) -> Message | None:
    """The record that says most: not a generic tail or an inner error where there is another one."""
    tails = ("E10042", "E19999", "EZ9999")
    return next((m for m in output.errors if m.code not in tails), output.errors[0] if output.errors else None)
