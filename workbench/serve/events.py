"""The service's log: one JSON line on stderr for each event. Nothing of a request's content is ever an argument."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime


def log(event: str, **fields: object) -> None:
    """Write one line. `fields` must be JSON."""
    stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
    sys.stderr.write(json.dumps({"time": stamp, "event": event, **fields}) + "\n")
    sys.stderr.flush()


def log_defect(error: BaseException) -> None:
    """An exception nobody expected: where it happened and its type. Its message may quote a request and stays out."""
    frames = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)]
    log("defect", error=type(error).__name__, frames=frames[-12:])


class JsonLines(logging.Handler):
    """Libraries' warnings in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        log("library", logger=record.name, level=record.levelname.lower(), message=record.getMessage())
