"""The program that runs a user's function: `process` starts it and asks; a request in, an answer out.

    runner FILE SHA256 FUNCTION PARENT        requests on standard input, answers on standard output (`wire`)

What the user's code prints goes to standard error, which is a log. One thread asks, one thing at a time; several
streams of samples may be open.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import itertools
import os
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from workbench.user_code.wire import HEAD, WireError, pack, unpack
from workbench.values.system.lifeline import die_with

MODULE_NAME = "__user_code__"
_MOST_WORDS = 2000


class _Refused(Exception):
    """Something about the file, not raised by the code in it."""

    def __init__(self, kind: str, **told: Any) -> None:
        super().__init__(kind)
        self.told = {"kind": kind, **told}


def main(root: str, arguments: list[str]) -> None:
    file, sha256, function, parent = arguments
    die_with(int(parent))
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123  # no path of anybody's
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.argv = [file]
    sys.path.remove(root)
    sys.path.insert(0, str(Path(file).parent))
    sys.path.append(root)  # the user's own modules come first
    try:
        called = _loaded(Path(file), sha256, function)
    except BaseException as error:  # the user's code may raise anything, SystemExit too
        _answer(answers, pack({"error": _told(error, Path(file), "import")}))
        return
    _answer(answers, pack({"parameters": _parameters(called)}))
    _serve(called, Path(file), requests, answers)


def _serve(called: Callable[..., Any], file: Path, requests: io.BufferedReader, answers: IO[bytes]) -> None:
    answer: dict[str, Any]
    streams: dict[int, Iterator[Any]] = {}
    numbers = itertools.count()
    while (request := _request(requests)) is not None:
        try:
            match request["do"]:
                case "open":
                    rows, number = called(*request["arguments"]), next(numbers)
                    if rows is not None:
                        try:
                            streams[number] = iter(rows)
                        except TypeError:
                            raise _Refused("no iterable", type=type(rows).__name__) from None
                    answer = {"stream": None if rows is None else number}
                case "next":
                    answer = _next(streams[request["stream"]], request, file)
                case "close":
                    close = getattr(streams.pop(request["stream"], None), "close", lambda: None)
                    with contextlib.suppress(Exception):  # nobody is left who asked for it; the log has what it printed
                        close()
                    continue  # nor waits for an answer
                case _:
                    answer = {"value": called(**request["arguments"])}
            frame = pack(answer)
        except BaseException as error:  # as above; whoever asked decides what becomes of this process
            frame = pack({"error": _told(error, file, "call")})
        _answer(answers, frame)


def _next(stream: Iterator[Any], request: dict[str, Any], file: Path) -> dict[str, Any]:
    """Up to `count` samples: fewer when they have `bytes`, or took `seconds`; a mistake comes with those before it."""
    rows: list[Any] = []
    size, until = 0, time.monotonic() + request["seconds"]
    while len(rows) < request["count"] and size < request["bytes"] and time.monotonic() < until:
        try:
            row = next(stream)
        except StopIteration:
            return {"rows": rows, "end": True}
        except BaseException as error:  # as above
            return {"rows": rows, "error": _told(error, file, "call")}
        rows.append(row)
        feeds = row[0] if isinstance(row, tuple) and row and isinstance(row[0], Mapping) else {}
        size += sum(int(getattr(array, "nbytes", 0)) for array in feeds.values())
    return {"rows": rows, "end": False}


def _loaded(file: Path, sha256: str, function: str) -> Callable[..., Any]:
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _Refused("changed")
    module = types.ModuleType(MODULE_NAME)
    module.__file__ = str(file)
    sys.modules[MODULE_NAME] = module  # dataclasses and pickling inside the code look it up there
    exec(compile(content, str(file), "exec"), module.__dict__)
    found = getattr(module, function, None)
    if not callable(found):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise _Refused("no function", known=known)
    return found  # type: ignore[no-any-return]  # callable, checked above


def _parameters(called: Callable[..., Any]) -> list[dict[str, Any]] | None:
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return None
    return [
        {"name": each.name, "kind": each.kind.name, "required": each.default is inspect.Parameter.empty}
        for each in parameters
    ]


def _request(requests: io.BufferedReader) -> dict[str, Any] | None:
    head = requests.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    header_size, data_size = HEAD.unpack(head)
    header, data = requests.read(header_size), bytearray(data_size)
    if requests.readinto(data) != data_size:
        return None
    request: dict[str, Any] = unpack(header, data)
    return request


def _answer(answers: IO[bytes], frame: list[bytes | memoryview]) -> None:
    for part in frame:
        answers.write(part)
    answers.flush()


def _told(error: BaseException, file: Path, kind: str) -> dict[str, Any]:
    """What happened, and the innermost line of the user's folder where it did."""
    if isinstance(error, _Refused):
        return error.told
    if isinstance(error, WireError):
        return {"kind": "value", "text": str(error)}
    with contextlib.suppress(Exception):  # a __str__ of the user's may fail
        traceback.print_exception(error)
    try:
        text = str(error)
    except Exception as failed:  # as above
        text = f"its text cannot be had: {type(failed).__name__}"
    place, line, function = _place(error, file)
    return {
        "kind": kind,
        "type": type(error).__name__,
        "text": text[:_MOST_WORDS],
        "file": place,
        "line": line,
        "function": function,
    }


def _place(error: BaseException, file: Path) -> tuple[str, int | None, str]:
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno, ""
    found: tuple[str, int | None, str] = (str(file), None, "")
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(file.parent) and "site-packages" not in path.parts:
            found = (frame.filename, frame.lineno, "" if frame.name == "<module>" else frame.name)
    return found
