"""What goes wrong in a compile, as the vendor reports it: records of a code with its arguments, and their texts.

Codes, titles and the names of the arguments are the vendor's (atc.md §5.4; error_code.json of runtime v8.5.0 and its
counterpart in ge); the sentences are ours. A code that is not here is dropped, as the vendor's manager drops what is
not registered.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One entry of the error manager.

    Attributes:
        code: such as E10001; warnings begin with W.
        arguments: of the catalogue's text, by the catalogue's names.
        stamp: process and local time of the fault; "" for those of the report.
    """

    code: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    stamp: str = ""


class AtcFailure(Exception):
    """The run fails; the first record that is no inner error becomes the headline (atc.md §5.3)."""

    def __init__(self, *records: Record) -> None:
        super().__init__(", ".join(record.code for record in records))
        self.records = records


def failure(code: str, **arguments: str) -> AtcFailure:
    """A failure of one record: `raise failure("E10001", parameter="--mode", value="7", reason="…")`."""
    return AtcFailure(Record(code=code, arguments=arguments))


def invalid(flag: str, value: str, reason: str) -> AtcFailure:
    """E10001: the value of a flag is refused."""
    return failure("E10001", parameter=f"--{flag}", value=value, reason=reason)


def inner_error(text: str) -> Record:
    """E19999, which never becomes the headline beside others."""
    return Record(code="E19999", arguments={"message": text})


def catalogue() -> Mapping[str, Mapping[str, str]]:
    """Code → title, message, whose arguments stand in braces, and cause and solution where they are printed."""
    return _read("catalogue.json")


def entry_of(code: str) -> Mapping[str, str] | None:
    """The texts of a code, of atc's or else of the library's; None where it is not registered."""
    return catalogue().get(code) or _read("acl_reasons.json").get(code)


@functools.cache
def _read(name: str) -> Mapping[str, Mapping[str, str]]:
    entries: Mapping[str, Mapping[str, str]] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return entries


def is_inner(code: str) -> bool:
    """Whether a code reports a fault of the tool itself, which never becomes the headline beside others."""
    return code.endswith(("9999", "8888"))


def message_of(record: Record) -> str | None:
    """The message with the record's arguments; None of a code that is not registered.

    An inner error carries its own text as the argument `message`. An argument that the record lacks stays in braces.
    """
    if is_inner(record.code) and "message" in record.arguments:
        return record.arguments["message"]
    entry = entry_of(record.code)
    return None if entry is None else entry["message"].format_map(_Named(record.arguments))


class _Named(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"
