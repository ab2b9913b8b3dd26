"""atc's own log: plog files, or the screen (atc.md §5.5).

    <log>/{debug,run}/plog/plog-<pid>_<time>.log     [LEVEL] MODULE(pid,process):time [file:line]text

<log> is ASCEND_PROCESS_LOG_PATH, else ASCEND_WORK_PATH/log [inferred: the folder below it], else $HOME/ascend/log.
Debug to error lines go to `debug`, events to `run`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

LEVELS = ("debug", "info", "warning", "error", "null")
_PROCESS = "atc.bin"
_ERROR = LEVELS.index("error")


class Log:
    """Lines of one process at and above a level.

    A log that cannot be written is given up without a word, as the vendor's is: no conversion fails because of it.
    """

    def __init__(
        self, *, levels: dict[str, int], events: bool, folder: Path | None, screen: Callable[[str], None]
    ) -> None:
        self._levels, self._events, self._folder, self._screen = levels, events, folder, screen
        self._name = f"plog-{os.getpid()}_{datetime.now():%Y%m%d%H%M%S%f}"[:-3] + ".log"

    @classmethod
    def of_environment(cls, level: str, screen: Callable[[str], None]) -> Log:
        """The log that --log and the environment ask for.

        --log sets the level of all modules, and null writes nothing, except that with NPU_COLLECT_PATH null leaves
        the level to ASCEND_GLOBAL_LOG_LEVEL and ASCEND_MODULE_LOG_LEVEL (ge v8.5.0 option_utils.cc,
        CheckLogParamValidAndSetLogLevel).
        """
        if level == "null" and "NPU_COLLECT_PATH" in os.environ:
            levels = {"": _number(os.environ.get("ASCEND_GLOBAL_LOG_LEVEL"), _ERROR)}
            for pair in os.environ.get("ASCEND_MODULE_LOG_LEVEL", "").split(":"):
                module, equals, number = pair.partition("=")
                if equals:
                    levels[module.strip().upper()] = _number(number, levels[""])
            events = os.environ.get("ASCEND_GLOBAL_EVENT_ENABLE", "1") != "0"
        else:
            levels = {"": LEVELS.index(level)}
            events = level != "null" and os.environ.get("ASCEND_GLOBAL_EVENT_ENABLE", "1") != "0"
        to_screen = os.environ.get("ASCEND_SLOG_PRINT_TO_STDOUT") == "1" and level != "null"
        return cls(levels=levels, events=events, folder=None if to_screen else _folder(), screen=screen)

    def write(self, level: str, module: str, text: str, *, caller: int = 1) -> None:
        """One line, if the level of the module lets it through; `caller` frames up stands where it comes from."""
        if level == "event":
            if not self._events:
                return
        elif LEVELS.index(level) < self._levels.get(module, self._levels[""]):
            return
        frame = sys._getframe(caller)
        place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        line = f"[{level.upper()}] {module}({os.getpid()},{_PROCESS}):{local_time(datetime.now())} [{place}]{text}"
        if self._folder is None:
            self._screen(line)
            return
        try:
            folder = self._folder / ("run" if level == "event" else "debug") / "plog"
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            with (folder / self._name).open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{line}\n")
        except OSError:
            self._levels, self._events = {"": len(LEVELS)}, False  # nothing passes any more


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


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.strip() in ("0", "1", "2", "3", "4") else default
