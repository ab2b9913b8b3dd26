"""What the return codes of pyACL mean, and who can act on each: the table is `codes.json`.

The names are those of the 8.5.0 headers without ACL_ERROR_, ACL_ERROR_RT_ or ACL_ERROR_GE_ (runtime v8.5.0
include/external/acl/acl_base_rt.h, acl_base_mdl.h, error_codes/rt_error_codes.h, ge_error_codes.h); the meanings are
those of the vendor's page aclError. Which codes call for which reaction is [inferred] (pyacl.md §2.6, retry policy);
that an exception in a kernel is answered like a time-out is our addition to it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal[
    "success",
    "caller",
    "model",
    "memory",
    "busy",
    "retry_process",
    "device_lost",
    "environment",
    "internal",
]
"""Who can act: 'caller' the calling program or what it was fed; 'model' whoever compiled this model; 'memory' and
'busy' whoever else uses the device, later; 'retry_process' nobody inside this process: its runtime has to be built
anew; 'device_lost' and 'environment' the machine's administrator; 'internal' the vendor."""

SUCCESS = 0
INVALID_PARAM = 100000
REPEAT_INITIALIZE = 100002


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMeaning:
    """One return code.

    Attributes:
        remedy: what to do about it, a sentence or two.
    """

    code: int
    name: str
    meaning: str
    remedy: str
    kind: Kind


def describe(code: int) -> CodeMeaning:
    """The meaning of a code; one that is in no table is told by its first digit, as the vendor groups them."""
    known = meanings().get(code)
    if known is not None:
        return known
    kind = _KIND_BY_DIGIT.get(code // 100000, "internal")
    return CodeMeaning(
        code=code,
        name="UNKNOWN",
        meaning="a code that is not in CANN 8.5.0",
        remedy=f"Look it up in the manual of the CANN version installed. {_table().remedies[kind]}",
        kind=kind,
    )


_KIND_BY_DIGIT: Mapping[int, Kind] = {1: "caller", 2: "environment", 3: "caller", 5: "internal"}
"""100000 to 199999 caller, 2xxxxx environment or resources, 3xxxxx business, 5xxxxx internal (vendor's rules 1-4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A code as the table writes it; `remedy` where that of its kind says too little."""

    code: int
    name: str
    kind: Kind
    meaning: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Remedies by kind, codes by the part of CANN that returns them."""

    remedies: Mapping[str, str]
    codes: Mapping[str, tuple[_Row, ...]]


@functools.cache
def _table() -> _Table:
    from workbench.values.documents.canonical import decode  # what only an error needs
    from workbench.values.documents.json_reader import loads

    return decode(_Table, loads(Path(__file__).with_name("codes.json").read_bytes()), "acl/codes.json")


@functools.cache
def meanings() -> Mapping[int, CodeMeaning]:
    """Every code of CANN 8.5.0: AscendCL, runtime, graph engine."""
    table = _table()
    return {
        row.code: CodeMeaning(
            code=row.code,
            name=row.name,
            meaning=row.meaning,
            remedy=row.remedy or table.remedies[row.kind],
            kind=row.kind,
        )
        for rows in table.codes.values()
        for row in rows
    }
