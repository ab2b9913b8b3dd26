"""The service's log: one JSON line on stderr for each event. Nothing of a request's content is ever an argument."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
from datetime import UTC, datetime
from typing import Any

_SELDOM_S = 1.0
_seldom: dict[tuple[str, str], tuple[float, int]] = {}
"""Event and kind → when the next line may be written, how many wait to be counted in it."""
_failures = 0
"""Lines in a row that could not be written."""


def log(event: str, **fields: object) -> None:
    """Write one line. `fields` must be JSON.

    Never raises for a log that cannot be written (a full disk, a reader that is gone): workers must be restarted and
    requests answered all the same. The next line that gets through says how many did not, as `log_failures`.
    """
    global _failures
    stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
    failed = {"log_failures": _failures} if _failures else {}
    try:
        sys.stderr.write(json.dumps({"time": stamp, "event": event, **fields, **failed}) + "\n")
        sys.stderr.flush()
    except OSError:
        _failures += 1
    else:
        _failures = 0


def log_seldom(event: str, *, kind: str, **fields: object) -> None:
    """Write a line at most once a second for each event and kind: under overload thousands a second would fill the
    disk. `times` says how often it happened since the last one; what comes after the last line, only the metrics say.

    Args:
        kind: of a closed set.
    """
    now_s = time.monotonic()
    next_s, waiting = _seldom.get((event, kind), (0.0, 0))
    if now_s < next_s:
        _seldom[event, kind] = next_s, waiting + 1
        return
    _seldom[event, kind] = now_s + _SELDOM_S, 0
    log(event, kind=kind, times=waiting + 1, **fields)


async def every(pause_s: float, work: Any) -> None:
    """Do something again and again, whatever comes of it."""
    while True:
        await asyncio.sleep(pause_s)
        try:
            work()
        except Exception as error:  # nothing would look at deadlines any more
            log_seldom("defect", kind=type(error).__name__, doing=work.__name__)


def log_defect(error: BaseException) -> None:
    """An exception nobody expected: where it happened and its type. Its message may quote a request and stays out."""
    frames = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)]
    log("defect", error=type(error).__name__, frames=frames[-12:])


def log_loop_defect(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What an event loop could tell nobody."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        log_defect(error)
    else:
        log("defect", error=str(context.get("message")))


def log_libraries() -> None:
    """Libraries' warnings in the same form."""
    logging.basicConfig(level=logging.WARNING, handlers=[_JsonLines()], force=True)


class _JsonLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log("library", logger=record.name, level=record.levelname.lower(), message=record.getMessage())
