"""AMCT's log: `./amct_log/amct_onnx.log`, and the screen; levels by two environment variables (amct.md §1.6)."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from workbench.cann_emulator.amct_onnx.files import FILE_MODE, make_folder

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FORMAT = "%(asctime)s - %(levelname)s - [AMCT]:%(message)s"

LOGGER = logging.getLogger("amct_onnx")
LOGGER.propagate = False
LOGGER.setLevel(logging.DEBUG)


def log_folder() -> Path:
    return Path("amct_log").resolve()


def say(message: str, *, level: int = logging.INFO) -> None:
    """One line to the screen and to the log file of the current folder."""
    record = LOGGER.makeRecord(LOGGER.name, level, "", 0, message, (), None)
    text = logging.Formatter(_FORMAT).format(record)
    if level >= _level("AMCT_LOG_LEVEL"):
        print(text, flush=True)
    if level >= _level("AMCT_LOG_FILE_LEVEL"):
        file = log_folder() / "amct_onnx.log"
        make_folder(file.parent)
        with file.open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")
        file.chmod(FILE_MODE)


def _level(variable: str) -> int:
    name = os.environ.get(variable, "INFO").upper()
    return int(getattr(logging, name if name in _LEVELS else "INFO"))
