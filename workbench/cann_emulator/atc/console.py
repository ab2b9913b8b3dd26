"""What atc prints and logs (atc.md §5.1, §5.3, §5.5): lines and the block of errors; plog files.

    <log>/debug/plog/plog-<pid>_<time>.log     [LEVEL] MODULE(pid,process):time [file:line]text

<log> is ASCEND_PROCESS_LOG_PATH, else $HOME/ascend/log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from workbench.cann_emulator.atc.failure import Record, entry_of, is_inner, message_of

_FAILURE = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"
_INDENT, _INNER_INDENT = " " * 8, " " * 7
_TRACEBACK = f"{_INDENT}TraceBack (most recent call last):"
_LEVELS = ("debug", "info", "warning", "error", "null")
_PROCESS = "atc.bin"


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
        line = f"[{level.upper()}] {module}({os.getpid()},{_PROCESS}):{_local_time()} [{place}]{text}\n"
        root = os.environ.get("ASCEND_PROCESS_LOG_PATH") or f"{os.environ.get('HOME') or Path.home()}/ascend/log"
        folder = Path(root) / "debug/plog"
        try:
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            with (folder / self._name).open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(line)
        except OSError:
            self.level = "null"  # nothing passes any more

    def failure(self, records: Sequence[Record]) -> None:
        """The verdict of a failed run, and its block of errors with an empty line behind it."""
        for record in records:
            self.log("error", "GE", f"{record.code}: {message_of(record)}")
        self.line(_FAILURE)
        self.line("".join(f"{line}\n" for line in error_lines(records)))


def error_lines(records: Sequence[Record]) -> list[str]:
    """The block of errors; the headline is the first record that is no inner error.

    Only registered codes are told, each record once, whatever reported it again.
    """
    once = {(record.code, message_of(record)): record for record in records if message_of(record) is not None}
    told = [*once.values()]
    if not told:
        return []
    headline = next((record for record in told if not is_inner(record.code)), None)
    if headline is None:
        # inner errors have no title, and the code stands twice in their second line (runtime v8.5.0
        # src/dfx/error_manager/error_manager.cc:549-565)
        first, *rest = told
        second = f"{first.code}{first.stamp or stamp()} ({first.code}):  {message_of(first)}"
        traced = [f"{_INNER_INDENT}{message_of(record)}" for record in rest]
        return [f"{first.code}: Inner Error!", second, _TRACEBACK, *traced]
    entry = entry_of(headline.code) or {}
    lines = [f"{headline.stamp or stamp()} {entry.get('title', '')}({headline.code}): {message_of(headline)}"]
    for key, word in (("cause", "Possible Cause"), ("solution", "Solution")):
        if entry.get(key):
            lines.append(f"{_INDENT}{word}: {entry[key]}")
    # of the headline's own code the manager leaves out only what says the same as the very first record
    others = [r for r in told if (r.code, message_of(r)) != (headline.code, message_of(told[0]))]
    return lines + ([_TRACEBACK, *(f"{_INDENT}{message_of(record)}" for record in others)] if others else [])


def stamp() -> str:
    """The process and the time of a record."""
    return f"[PID: {os.getpid()}] {_local_time()}"


def _local_time() -> str:
    """`2025-11-21-14:58:00.123.456`, milliseconds and microseconds apart."""
    now = datetime.now()
    return f"{now:%Y-%m-%d-%H:%M:%S}.{now.microsecond // 1000:03d}.{now.microsecond % 1000:03d}"
