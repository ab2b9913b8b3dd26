"""What goes wrong in a compile, as the vendor reports it (atc.md §5.1-5.5): records of a code with its arguments, their
texts, the block of errors, and the log.

Codes, titles and the names of the arguments are the vendor's (atc.md §5.4; error_code.json of runtime v8.5.0 and its
counterpart in ge); the sentences are ours. A code that is not here is dropped, as the vendor's manager drops what is
not registered. The log is a file for each run, where <log> is ASCEND_PROCESS_LOG_PATH, else $HOME/ascend/log:

    <log>/debug/plog/plog-<pid>_<time>.log     [LEVEL] MODULE(pid,process):time [file:line]text
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

_FAILURE = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"
_INDENT, _INNER_INDENT = " " * 8, " " * 7
_TRACEBACK = f"{_INDENT}TraceBack (most recent call last):"
_LEVELS = ("debug", "info", "warning", "error", "null")
_PROCESS = "atc.bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One entry of the error manager."""

    code: str  # such as E10001; warnings begin with W
    arguments: Mapping[str, str] = field(default_factory=dict)  # of the catalogue's text, by the catalogue's names
    stamp: str = ""  # process and local time of the fault; "" for those of the report


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


# --- texts ---


@functools.cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    """Code, of the library or of atc → title, message, whose arguments stand in braces, and cause and solution where
    they are printed."""
    files = (Path(__file__).with_name(name) for name in ("acl_reasons.json", "catalogue.json"))
    return {code: entry for file in files for code, entry in json.loads(file.read_text(encoding="utf-8")).items()}


def _is_inner(code: str) -> bool:
    """Whether a code reports a fault of the tool itself, which never becomes the headline beside others."""
    return code.endswith(("9999", "8888"))


def _message(record: Record) -> str | None:
    """The message with the record's arguments; None of a code that is not registered.

    An inner error carries its own text as the argument `message`. An argument that the record lacks stays in braces.
    """
    if _is_inner(record.code) and "message" in record.arguments:
        return record.arguments["message"]
    entry = _texts().get(record.code)
    return None if entry is None else entry["message"].format_map(_Named(record.arguments))


class _Named(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def error_lines(records: Sequence[Record]) -> list[str]:
    """The block of errors; the headline is the first record that is no inner error.

    Only registered codes are told, each record once, whatever reported it again.
    """
    told = {(r.code, text): r for r in records if (text := _message(r)) is not None}
    if not told:
        return []
    (first_code, first_text), first = next(iter(told.items()))
    headline = next((key for key in told if not _is_inner(key[0])), None)
    if headline is None:
        # inner errors have no title, and the code stands twice in their second line (runtime v8.5.0
        # src/dfx/error_manager/error_manager.cc:549-565)
        second = f"{first_code}{first.stamp or stamp()} ({first_code}):  {first_text}"
        traced = [f"{_INNER_INDENT}{text}" for _, text in list(told)[1:]]
        return [f"{first_code}: Inner Error!", second, _TRACEBACK, *traced]
    code, text = headline
    entry = _texts()[code]
    lines = [f"{told[headline].stamp or stamp()} {entry.get('title', '')}({code}): {text}"]
    for key, word in (("cause", "Possible Cause"), ("solution", "Solution")):
        if entry.get(key):
            lines.append(f"{_INDENT}{word}: {entry[key]}")
    # of the headline's own code the manager leaves out only what says the same as the very first record
    others = [f"{_INDENT}{other[1]}" for other in told if other != (code, first_text)]
    return [*lines, _TRACEBACK, *others] if others else lines


def stamp() -> str:
    """The process and the time of a record."""
    return f"[PID: {os.getpid()}] {_local_time()}"


def _local_time() -> str:
    """`2025-11-21-14:58:00.123.456`, milliseconds and microseconds apart."""
    now = datetime.now()
    return f"{now:%Y-%m-%d-%H:%M:%S}.{now.microsecond // 1000:03d}.{now.microsecond % 1000:03d}"


class Console:
    """Stdout of one run, and its log, of which nothing is written before `level` is set.

    A log that cannot be written is given up without a word, as the vendor's is: no conversion fails because of it.
    """

    def __init__(self) -> None:
        self.level = "null"
        self._name = f"plog-{os.getpid()}_{datetime.now():%Y%m%d%H%M%S%f}"[:-3] + ".log"

    def line(self, text: str) -> None:
        """One line on stdout."""
        print(text, flush=True)

    def log(self, level: str, module: str, text: str) -> None:
        """A line of the log: level debug, info, warning or error; module GE, FE or TEFUSION."""
        if _LEVELS.index(level) < _LEVELS.index(self.level):
            return
        frame = sys._getframe(1)
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        root = os.environ.get("ASCEND_PROCESS_LOG_PATH") or f"{os.environ.get('HOME') or Path.home()}/ascend/log"
        folder = Path(root) / "debug/plog"
        try:
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            with (folder / self._name).open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"[{level.upper()}] {module}({os.getpid()},{_PROCESS}):{_local_time()} [{place}]{text}\n")
        except OSError:
            self.level = "null"  # nothing passes any more

    def failure(self, records: Sequence[Record]) -> None:
        """The verdict of a failed run, and its block of errors with an empty line behind it."""
        for record in records:
            self.log("error", "GE", f"{record.code}: {_message(record)}")
        self.line(_FAILURE)
        self.line("".join(f"{line}\n" for line in error_lines(records)))
