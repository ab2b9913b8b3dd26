"""What a thread is told of failures: the records of `acl.get_recent_err_msg`, in the layout that atc's errors have too
(atc.md §5.3), and the last code of the runtime for `acl.rt.get_last_error`.

Codes and meanings: pyacl.md §2.7; the wording of a message is [inferred] where only the meaning is known. The runtime
keeps its last code per thread; a call that succeeds leaves it as it is (hicann/runtime, inner_thread_local.cpp and
api_global_err.cc). What AscendCL or the graph engine refuse before they ask the runtime (1000xx, 145xxx) is not in it.
"""

from __future__ import annotations

import threading

from workbench.cann_emulator.acl.codes import INVALID_PARAM, Failed
from workbench.cann_emulator.atc.console import error_lines, stamp
from workbench.cann_emulator.atc.failure import Record

_MODE = {"process": False}
_THREADS = threading.local()
_OF_THE_RUNTIME = (107, 207, 507)
"""Thousands of the codes that the runtime gives (pyacl.md §2.6)."""
_SHARED: list[Record] = []


def report(code: str, **arguments: object) -> None:
    """Add a record for this thread."""
    texts = {name: str(value) for name, value in arguments.items()}
    _records().append(Record(code=code, arguments=texts, stamp=stamp()))


def refused(code: int, entry: str, **arguments: object) -> Failed:
    """The failure with a code whose reason text is this one."""
    report(entry, **arguments)
    return Failed(code)


def present(**pointers: int) -> None:
    """Refuse the first of these that is null.

    Raises:
        Failed: 100000.
    """
    for name, pointer in pointers.items():
        if not pointer:
            raise refused(INVALID_PARAM, "EH0002", param=name)


def take() -> str | None:
    """The text of all records of this thread, which are forgotten; None where there are none."""
    records = _records()
    told = tuple(records)
    records.clear()
    return "".join(f"{line}\n" for line in error_lines(told)) or None


def share(process: bool) -> None:
    """`err_msg_mode` of acl.json: one list for the process, or one per thread (pyacl.md §5.5)."""
    _MODE["process"] = process


def note(code: int) -> None:
    """Remember a code that a call gives, if the runtime is where it comes from."""
    if code // 1000 in _OF_THE_RUNTIME:
        _THREADS.code = code


def last_code(*, forget: bool = False) -> int:
    code: int = getattr(_THREADS, "code", 0)
    if forget:
        _THREADS.code = 0
    return code


def _records() -> list[Record]:
    if _MODE["process"]:
        return _SHARED
    if not hasattr(_THREADS, "records"):
        _THREADS.records = []
    records: list[Record] = _THREADS.records
    return records
