"""What atc prints and logs (atc.md §5.1, §5.3, §5.5): banner, dots, verdict and the block of errors; plog files.

    <log>/debug/plog/plog-<pid>_<time>.log     [LEVEL] MODULE(pid,process):time [file:line]text

<log> is ASCEND_PROCESS_LOG_PATH, else ASCEND_WORK_PATH/log [inferred: the folder below it], else $HOME/ascend/log.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from workbench.cann_emulator.atc.failure import Record, entry_of, is_inner, message_of

VERSION = "8.5.0"
_BANNER = "ATC start working now, please wait for a moment."
_SUCCESS = "ATC run success, welcome to the next use."
_FAILURE = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"
_INDENT, _INNER_INDENT = " " * 8, " " * 7
_LAST_OLD_LAYOUT = (8, 1)
_TRACEBACK = f"{_INDENT}TraceBack (most recent call last):"


class Console:
    """Stdout of one run, and its log.

    The log is opened by `start_log`, after the flags; until then nothing is logged.
    """

    def __init__(self) -> None:
        self._log: Log | None = None

    def line(self, text: str) -> None:
        """One line on stdout."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def dot(self) -> None:
        """A sign of life while operators compile: no line ends."""
        sys.stdout.write(".")
        sys.stdout.flush()

    def log(self, level: str, module: str, text: str) -> None:
        """A line of the log: level debug, info, warning or error; module GE, FE, TEFUSION, TBE or AMCT."""
        if self._log is not None:
            self._log.write(level, module, text, caller=2)

    def start_log(self, level: str) -> None:
        """The log at the level of --log, where the environment says."""
        self._log = Log(level, self.line)

    def banner(self) -> None:
        self.line(_BANNER)

    def end_of_dots(self) -> None:
        self.line("...")

    def success(self, warnings: Sequence[Record]) -> None:
        """The verdict of a good run, and its warnings or an empty line."""
        self.line(_SUCCESS)
        self.line("".join(f"{line}\n" for line in warning_lines(warnings)))

    def failure(self, records: Sequence[Record]) -> None:
        """The verdict of a failed run, and its block of errors with an empty line behind it."""
        for record in records:
            self.log("error", "GE", f"{record.code}: {message_of(record)}")
        self.line(_FAILURE)
        self.line("".join(f"{line}\n" for line in error_lines(records)))


def emulated_version() -> tuple[int, ...]:
    """The numbers that CANN_EMULATOR_VERSION begins with: (8, 5, 0) of `8.5.0`, (8, 1) of `8.1.RC1`."""
    text = os.environ.get("CANN_EMULATOR_VERSION") or VERSION
    start = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(number) for number in start.group().split(".")) if start else (8, 5, 0)


def error_lines(records: Sequence[Record]) -> list[str]:
    """The block of errors; the headline is the first record that is no inner error."""
    told = _told(records)
    if not told:
        return []
    headline = next((record for record in told if not is_inner(record.code)), None)
    if headline is None:
        return _inner_lines(told)
    entry = entry_of(headline.code)
    lines = [_headline(headline)]
    if entry and entry.cause:
        lines.append(f"{_INDENT}Possible Cause: {entry.cause}")
    if entry and entry.solution:
        lines.append(f"{_INDENT}Solution: {entry.solution}")
    # of the headline's own code the manager leaves out only what says the same as the very first record
    others = [r for r in told if (r.code, message_of(r)) != (headline.code, message_of(told[0]))]
    if others:
        lines.append(_TRACEBACK)
        lines += [f"{_INDENT}{message_of(record)}" for record in others]
    return lines


def warning_lines(records: Sequence[Record]) -> list[str]:
    """Warnings: the headline's form, one line each."""
    return [_headline(record) for record in _told(records)]


def _told(records: Sequence[Record]) -> list[Record]:
    """What the manager keeps: registered codes, each record once, whatever reported it again."""
    once = {(record.code, message_of(record)): record for record in records if message_of(record) is not None}
    return list(once.values())


def _inner_lines(records: Sequence[Record]) -> list[str]:
    """Only inner errors: they have no title, and from 8.5 on the code stands twice in their second line (runtime
    v8.5.0 src/dfx/error_manager/error_manager.cc:549-565)."""
    first, *others = records
    lines = [f"{first.code}: Inner Error!"]
    if emulated_version()[:2] <= _LAST_OLD_LAYOUT:
        lines.append(f"{first.code}: {_stamp(first)} {message_of(first)}")
    else:
        lines.append(f"{first.code}{_stamp(first)} ({first.code}):  {message_of(first)}")
    lines.append(_TRACEBACK)
    return [*lines, *(f"{_INNER_INDENT}{message_of(record)}" for record in others)]


def _headline(record: Record) -> str:
    message = message_of(record)
    if emulated_version()[:2] <= _LAST_OLD_LAYOUT:
        # the unsupported operator had another number then (atc.md §5.4) [inferred: up to which release]
        code = "E19010" if record.code == "E13010" else record.code
        return f"{code}: {_stamp(record)} {message}"
    entry = entry_of(record.code)
    return f"{_stamp(record)} {entry.title if entry else ''}({record.code}): {message}"


def stamp() -> str:
    """The process and the time of a record."""
    return f"[PID: {os.getpid()}] {local_time(datetime.now())}"


def _stamp(record: Record) -> str:
    return record.stamp or stamp()


# --- the log ---

LEVELS = ("debug", "info", "warning", "error", "null")
_PROCESS = "atc.bin"


class Log:
    """Lines of one process at and above a level, `null` for none; whichever flags and variables set other levels for
    single modules (NPU_COLLECT_PATH, ASCEND_MODULE_LOG_LEVEL) are left out.

    A log that cannot be written is given up without a word, as the vendor's is: no conversion fails because of it.
    """

    def __init__(self, level: str, screen: Callable[[str], None]) -> None:
        self._level, self._screen = LEVELS.index(level), screen
        self._to_screen = os.environ.get("ASCEND_SLOG_PRINT_TO_STDOUT") == "1"
        self._name = f"plog-{os.getpid()}_{datetime.now():%Y%m%d%H%M%S%f}"[:-3] + ".log"

    def write(self, level: str, module: str, text: str, *, caller: int = 1) -> None:
        """One line, if the level lets it through; `caller` frames up stands where it comes from."""
        if LEVELS.index(level) < self._level:
            return
        frame = sys._getframe(caller)
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        line = f"[{level.upper()}] {module}({os.getpid()},{_PROCESS}):{local_time(datetime.now())} [{place}]{text}"
        if self._to_screen:
            self._screen(line)
            return
        try:
            folder = _folder() / "debug/plog"
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            with (folder / self._name).open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{line}\n")
        except OSError:
            self._level = len(LEVELS)  # nothing passes any more


def local_time(now: datetime) -> str:
    """`2025-11-21-14:58:00.123.456`, milliseconds and microseconds apart."""
    return f"{now:%Y-%m-%d-%H:%M:%S}.{now.microsecond // 1000:03d}.{now.microsecond % 1000:03d}"


def _folder() -> Path:
    named = os.environ.get("ASCEND_PROCESS_LOG_PATH")
    if named:
        return Path(named)
    work = os.environ.get("ASCEND_WORK_PATH")
    if work:
        return Path(work) / "log"
    return Path(os.environ.get("HOME") or "~").expanduser() / "ascend" / "log"
