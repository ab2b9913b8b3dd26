"""The service's log: one JSON line on stderr for each event. Nothing of a request's content is ever an argument."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime

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


def log_defect(error: BaseException) -> None:
    """An exception nobody expected: where it happened and its type. Its message may quote a request and stays out."""
    frames = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)]
    log("defect", error=type(error).__name__, frames=frames[-12:])


class JsonLines(logging.Handler):
    """Libraries' warnings in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        log("library", logger=record.name, level=record.levelname.lower(), message=record.getMessage())
