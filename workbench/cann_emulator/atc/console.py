"""What atc prints and logs (atc.md §5.1, §5.3, §5.5): banner, dots, verdict and the block of errors; plog files.

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

_BANNER = "ATC start working now, please wait for a moment."
_SUCCESS = "ATC run success, welcome to the next use."
_FAILURE = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"
_INDENT, _INNER_INDENT = " " * 8, " " * 7
_TRACEBACK = f"{_INDENT}TraceBack (most recent call last):"
_LEVELS = ("debug", "info", "warning", "error", "null")
_PROCESS = "atc.bin"


class Console:
    """Stdout of one run, and its log, of which nothing is written before `start_log`.

    A log that cannot be written is given up without a word, as the vendor's is: no conversion fails because of it.
    """

    def __init__(self) -> None:
        self._level = len(_LEVELS)
        self._name = f"plog-{os.getpid()}_{datetime.now():%Y%m%d%H%M%S%f}"[:-3] + ".log"

    def line(self, text: str) -> None:
        """One line on stdout."""
        print(text, flush=True)

    def dot(self) -> None:
        """A sign of life while operators compile: no line ends."""
        print(".", end="", flush=True)

    def start_log(self, level: str) -> None:
        """The log at and above the level of --log, `null` for none."""
        self._level = _LEVELS.index(level)

    def log(self, level: str, module: str, text: str) -> None:
        """A line of the log: level debug, info, warning or error; module GE, FE or TEFUSION."""
        if _LEVELS.index(level) < self._level:
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
            self._level = len(_LEVELS)  # nothing passes any more

    def banner(self) -> None:
        self.line(_BANNER)

    def end_of_dots(self) -> None:
        self.line("...")

    def success(self) -> None:
        """The verdict of a good run, and an empty line."""
        self.line(f"{_SUCCESS}\n")

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
    told = list(once.values())
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
    entry = entry_of(headline.code)
    title = entry.title if entry else ""
    lines = [f"{headline.stamp or stamp()} {title}({headline.code}): {message_of(headline)}"]
    if entry and entry.cause:
        lines.append(f"{_INDENT}Possible Cause: {entry.cause}")
    if entry and entry.solution:
        lines.append(f"{_INDENT}Solution: {entry.solution}")
    # of the headline's own code the manager leaves out only what says the same as the very first record
    others = [r for r in told if (r.code, message_of(r)) != (headline.code, message_of(told[0]))]
    if others:
        lines += [_TRACEBACK, *(f"{_INDENT}{message_of(record)}" for record in others)]
    return lines


def stamp() -> str:
    """The process and the time of a record."""
    return f"[PID: {os.getpid()}] {_local_time()}"


def _local_time() -> str:
    """`2025-11-21-14:58:00.123.456`, milliseconds and microseconds apart."""
    now = datetime.now()
    return f"{now:%Y-%m-%d-%H:%M:%S}.{now.microsecond // 1000:03d}.{now.microsecond % 1000:03d}"
