"""What a user's code prints: a file of the user's cache folder that stays where something went wrong, else goes."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import IO

_LAST_BYTES = 8000
_LINES, _CHARACTERS = 3, 400
_KEPT = 20
"""Logs of earlier failures; the oldest goes first."""
_EMPTY_S = 86_400
_TRACEBACK = "Traceback (most recent call last):"


class UserLog:
    """One process' standard output and error.

    Attributes:
        stream: for the process to write to.
    """

    def __init__(self, file: Path) -> None:
        """`file` is the user's; the log has its name."""
        self._path: Path | None = None
        self._keep = False
        try:
            room = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workbench" / "user-code"
            room.mkdir(parents=True, exist_ok=True)
            _prune(room)
            number, name = tempfile.mkstemp(prefix=f"{file.stem[:40]}-", suffix=".log", dir=room)
        except (OSError, RuntimeError):  # a read-only home, or none
            self.stream: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `close`
        else:
            self._path, self.stream = Path(name), os.fdopen(number, "w+b")

    def last(self, *, but_traceback: bool = False) -> str:
        """'It printed last: … (all of it: PATH)' of what was printed, '' where nothing was. The log is kept.

        Args:
            but_traceback: leave out what the runner printed of an exception, whose words stand in the error.
        """
        if self.stream.closed:
            return ""
        number = self.stream.fileno()
        size = os.fstat(number).st_size
        text = os.pread(number, _LAST_BYTES, max(0, size - _LAST_BYTES)).decode("utf-8", errors="replace")
        if but_traceback:
            text = text.partition(_TRACEBACK)[0]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        self._keep = self._keep or size > 0
        if not lines:
            return ""
        place = f" (all of it: {self._path})" if self._path is not None else ""
        return f"It printed last: {' / '.join(lines[-_LINES:])[-_CHARACTERS:]}{place}"

    def close(self) -> None:
        self.stream.close()
        if self._path is not None and not self._keep:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def _prune(room: Path) -> None:
    logs = sorted(room.glob("*.log"), key=lambda path: path.lstat().st_mtime)
    for path in logs:  # of processes that were killed with whoever started them
        if path.lstat().st_size == 0 and path.lstat().st_mtime < time.time() - _EMPTY_S:
            path.unlink(missing_ok=True)
    logs = [path for path in logs if path.exists()]
    for path in logs[:-_KEPT]:
        path.unlink(missing_ok=True)
