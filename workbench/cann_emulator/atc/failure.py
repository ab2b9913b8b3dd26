"""What goes wrong in a compile, as the vendor reports it: records of a code with its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    """The run fails; the first record that is no inner error becomes the headline (atc.md §5.3).

    `records` may be empty: then the reason stood on stderr (atc.md §5.1).
    """

    def __init__(self, *records: Record) -> None:
        super().__init__(", ".join(record.code for record in records))
        self.records = records


def failure(code: str, **arguments: str) -> AtcFailure:
    """A failure of one record: `raise failure("E10001", parameter="--mode", value="7", reason="…")`."""
    return AtcFailure(Record(code=code, arguments=arguments))
