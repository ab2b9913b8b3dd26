"""What the sweep and its evaluation process say to each other: one JSON object a line, over a socket pair.

to the process      {"experiment", "workspace", "identity", "seed", "journal", "store", "shared", "card", "alone",
                    "level"} first, then
                    {"task": "evaluate"} and the fields of a `Task`
                    {"task": "compile", "candidate"}
                    {"task": "time", "candidate"}
                    {"task": "service", "candidate", "seconds"}
from the process    {"kind": "ready"} once it is open, {"kind": "began"} for each task, then any number of
                    {"kind": "stage", "stage"}, {"kind": "say", "text"}, {"kind": "log", "name", "level", "text"}
                    and one {"kind": "answer", "value"} or {"kind": "error", …}
"""

from __future__ import annotations

import json
import socket
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.values import errors
from workbench.values.errors import CandidateError, ConfigError, WorkbenchError

Message = dict[str, Any]


class Line:
    """One end of the socket pair."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()  # threads of ours may log
        self._reader = end.makefile("r", encoding="utf-8", newline="\n")

    def send(self, message: Message) -> None:
        """Raises: OSError: the other end is gone."""
        data = json.dumps(message, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with self._sending:
            self._end.sendall(data)

    def receive(self) -> Message | None:
        """The next message, or None when the other end is gone, with or without half a message."""
        try:
            line = self._reader.readline()
        except ConnectionResetError:
            return None
        if not line.endswith("\n"):
            return None
        message: Message = json.loads(line)
        return message

    def __iter__(self) -> Iterator[Message]:
        while (message := self.receive()) is not None:
            yield message

    def close(self) -> None:
        self._reader.close()
        self._end.close()


def encode_error(error: BaseException) -> Message:
    """An exception as data, its traceback with it."""
    only = error.args[0] if len(error.args) == 1 else None  # str() of a KeyError would quote it
    message: Message = {
        "kind": "error",
        "class": type(error).__name__,
        "text": only if isinstance(only, str) else str(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    if isinstance(error, ConfigError):
        file = None if error.file is None else str(error.file)
        message["config"] = {"rule": error.rule, "file": file, "line": error.line, "key": error.key, "hint": error.hint}
    elif isinstance(error, CandidateError):
        message["log_path"] = None if error.log_path is None else str(error.log_path)
        message["transient"] = error.transient
    elif isinstance(error, OSError):
        message["os"] = [error.errno, error.strerror, error.filename if isinstance(error.filename, str) else None]
    return message


def decode_error(message: Message) -> Exception:
    """The exception again: the workbench's own and the system's as they were, any other, which is a programming
    mistake, as a RuntimeError that names its class and has the other process's traceback as a note."""
    if "config" in message:
        return ConfigError(**message["config"])
    kind, text = getattr(errors, message["class"], None), message["text"]
    if isinstance(kind, type) and issubclass(kind, CandidateError) and "transient" in message:
        log_path = None if message["log_path"] is None else Path(message["log_path"])
        return kind(text, log_path=log_path, transient=message["transient"])
    if isinstance(kind, type) and issubclass(kind, WorkbenchError) and kind is not ConfigError:
        return kind(text)
    number, words, name = message.get("os", (None, None, None))
    error = RuntimeError(f"{message['class']}: {text}") if number is None else OSError(number, words, name)
    error.add_note(f"In the evaluation process:\n{message['traceback']}")
    return error
