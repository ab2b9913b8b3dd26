"""What `acl.get_recent_err_msg` says: records per thread, in the layout of the vendor's error manager (atc.md §5.3).

Codes and meanings: pyacl.md §2.7. The wording of a message is [inferred] where only the meaning is known.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

_MODE = {"process": False}
_THREADS = threading.local()
_INNER = re.compile(r".*(9999|8888)")
"""A fault of the library itself, which never becomes the headline beside others."""
_INDENT, _INNER_INDENT = " " * 8, " " * 7
_TRACEBACK = f"{_INDENT}TraceBack (most recent call last):"


@dataclass(frozen=True, slots=True)
class _Entry:
    title: str
    message: str
    cause: str = ""
    solution: str = ""


_CATALOGUE: Mapping[str, _Entry] = {
    "EH0001": _Entry("Invalid_Argument", "Value [{value}] for [{param}] is invalid. Reason: {reason}."),
    "EH0002": _Entry(
        "Invalid_Argument",
        "Argument [{param}] must not be NULL.",
        solution="Try again with a correct pointer argument.",
    ),
    "EH0003": _Entry("Invalid_Argument", "Path [{path}] is invalid. Reason: {reason}."),
    "EH0004": _Entry("Invalid_Argument", "File [{path}] is invalid. Reason: {reason}."),
    "E13025": _Entry("Invalid_Argument", "Input tensor is invalid. Reason: {reason}."),
    "E13026": _Entry("File_Operation_Error_Invalid_Path", "Input path {path} is invalid. Reason: {reason}"),
    "EE1001": _Entry("Invalid_Argument", "The argument is invalid. Reason: {reason}"),
    "EE1002": _Entry("Execution_Error", "Stream synchronization timed out. {reason}"),
    "EE1003": _Entry(
        "Invalid_Argument",
        "Value {value} for parameter {param} in function {function} is invalid. Expected value: {expected}.",
    ),
    "EE1009": _Entry("Execution_Error", "Model execution failed. Reason: {reason}."),
    "EE1010": _Entry("Execution_Error_Context", "{what} does not belong to the current context. {reason}"),
    "EL0001": _Entry("Device_Error", "The device is absent or abnormal. Reason: {reason}."),
    "EL0002": _Entry(
        "Invalid_Argument_Device_ID",
        "Device ID {value} is invalid. Reason: {reason}.",
        solution="Use a device ID from 0 to the number of devices minus 1.",
    ),
    "EL0004": _Entry(
        "Memory_Allocation_Failure",
        "Failed to allocate memory. {reason}",
        "Available memory is insufficient.",
        "Close applications not in use.",
    ),
    "EK0002": _Entry("Execution_Error_Invalid_Call_Order", "Failed to call {second} before calling {first}."),
    "E19999": _Entry("Inner_Error", "{reason}"),
}


@dataclass(frozen=True, slots=True)
class _Record:
    """What one call reported; `stamp` is the process and the local time."""

    code: str
    message: str
    stamp: str


_SHARED: list[_Record] = []


def report(code: str, **arguments: object) -> None:
    """Add a record for this thread; KeyError where the catalogue has no such code or argument."""
    now = datetime.now()
    time = f"{now:%Y-%m-%d-%H:%M:%S}.{now.microsecond // 1000:03d}.{now.microsecond % 1000:03d}"
    message = _CATALOGUE[code].message.format_map(arguments)
    _records().append(_Record(code, message, f"[PID: {os.getpid()}] {time}"))


def take() -> str | None:
    """The text of all records of this thread, which are forgotten; None where there are none."""
    records = _records()
    if not records:
        return None
    told = tuple(records)
    records.clear()
    return "".join(f"{line}\n" for line in _lines(told))


def _lines(records: Sequence[_Record]) -> list[str]:
    """The first record that is no inner error is the headline; the others follow, each once, without their codes.

    Inner errors alone have a headline of their own, no title, and the code twice in their second line from 8.5 on
    (runtime v8.5.0 src/dfx/error_manager/error_manager.cc:549-565).
    """
    first = next((record for record in records if not _INNER.fullmatch(record.code)), None)
    if first is None:
        return _inner_lines(records)
    entry = _CATALOGUE[first.code]
    if _older():
        lines = [f"{first.code}: {first.stamp} {first.message}"]
    else:
        lines = [f"{first.stamp} {entry.title}({first.code}): {first.message}"]
    lines += [f"{_INDENT}Possible Cause: {entry.cause}"] if entry.cause else []
    lines += [f"{_INDENT}Solution: {entry.solution}"] if entry.solution else []
    others = dict.fromkeys(record.message for record in records if record.message != first.message)
    if others:
        lines += [_TRACEBACK, *(f"{_INDENT}{message}" for message in others)]
    return lines


def _inner_lines(records: Sequence[_Record]) -> list[str]:
    first = records[0]
    head = f"{first.code}: {first.stamp} " if _older() else f"{first.code}{first.stamp} ({first.code}):  "
    others = list(dict.fromkeys(record.message for record in records))[1:]
    lines = [f"{first.code}: Inner Error!", f"{head}{first.message}", _TRACEBACK]
    return [*lines, *(f"{_INNER_INDENT}{message}" for message in others)]


def share(process: bool) -> None:
    """`err_msg_mode` of acl.json: one list for the process, or one per thread (pyacl.md §5.5)."""
    _MODE["process"] = process


def _records() -> list[_Record]:
    if _MODE["process"]:
        return _SHARED
    records: list[_Record] | None = getattr(_THREADS, "records", None)
    if records is None:
        records = _THREADS.records = []
    return records


def _older() -> bool:
    """Releases up to 8.1 put the code first (atc.md §5.3)."""
    version = os.environ.get("CANN_EMULATOR_VERSION", "8.5.0")
    major, _, rest = version.partition(".")
    minor = rest.split(".")[0]
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) < (8, 2)
