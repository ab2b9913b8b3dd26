"""The log of a model's releases: a line for each export, promotion and rollback, chained so that a change shows.

Lines are only ever added. Each holds its number and, as `before`, the sha256 of the line before it, so a line that was
changed, removed or put between others breaks the chain. Lines taken from the end would not: the registry's mark, a tag
of the registered model, holds number and digest of the last one. Who can write to both can rewrite both; against that
helps only a digest that was kept elsewhere (`workbench releases NAME --contains DIGEST`).
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from workbench.values.documents.canonical import canonical_json
from workbench.values.errors import ToolchainError

Act = Literal["export", "registration", "promotion", "rollback", "recovery"]
NOTHING = "0" * 64
"""What stands as `before` in the first line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What a line says beside its place in the chain.

    Attributes:
        version, manifest_sha256: of the bundle it is about.
        champion_before, champion_after: versions; the same where nothing moved, None for none.
        verdict: 'passed' or 'failed'; '' where nothing was judged.
        verdict_sha256: of the verdict's whole text, which the registry keeps; '' where there is none.
        reason: in words.
        previous_after: what the alias previous became where champion moved.
    """

    act: Act
    version: int
    manifest_sha256: str
    champion_before: int | None
    champion_after: int | None
    verdict: str = ""
    verdict_sha256: str = ""
    reason: str = ""
    previous_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The last line that the registry knows."""

    number: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.number}:{self.sha256}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line as it stands; `content` is None where it is no line of this log."""

    number: int
    sha256: str
    content: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log that was read.

    Attributes:
        problems: what shows that it is not as it was written; empty for a whole one.
        unmarked: lines behind the mark; a kill leaves one at most.
        overtaken: lines that count for nothing: another was quicker to follow the same one.
    """

    lines: tuple[Line, ...]
    problems: tuple[str, ...]
    unmarked: int
    overtaken: int = 0

    @property
    def end(self) -> Mark:
        """The last line, as a mark."""
        return Mark(number=self.lines[-1].number, sha256=self.lines[-1].sha256)


def kept_lines(store: Path, name: str) -> tuple[Line, ...]:
    """Those that earlier workbenches wrote into a file of the workspace; the registry's follow them.

    Raises:
        ToolchainError: the file cannot be read.
    """
    file = store / "releases" / f"{quote(name, safe='')}.jsonl"
    try:
        return tuple(map(line_of, file.read_bytes().splitlines()))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ToolchainError(f"{file} cannot be read: {error.strerror}. Mend its permissions.") from error


def mark_of(text: str) -> Mark | None:
    """A mark as the registry keeps it; None for none, number 0 for what is no mark."""
    if not text:
        return None
    number, _, sha256 = text.partition(":")
    return Mark(number=int(number) if number.isdecimal() else 0, sha256=sha256)


def checked(lines: Sequence[Line], mark: Mark | None) -> Log:
    """Lines in their order, and what shows that they are not all, or not the ones that were written."""
    problems = []
    before, number = NOTHING, 1
    for place, line in enumerate(lines, 1):
        if line.content is None:
            problems.append(f"line {place} is no line of a log of releases")
        elif line.number != number:
            problems.append(
                f"line {place} has the number {line.number} instead of {number}: lines were removed or added"
            )
        elif line.content.get("before") != before:
            problems.append(f"line {place} does not continue line {place - 1}: one of the two was changed")
        before, number = line.sha256, (number if line.content is None else line.number) + 1
    unmarked = 0
    if mark is None and lines:
        problems.append("the registry has no mark of the log: its tag was removed, or the model deleted")
    elif mark is not None:
        found = next((line for line in lines if line.number == mark.number), None)
        if found is None:
            problems.append(f"line {mark.number}, the last that the registry knows, is missing")
        elif found.sha256 != mark.sha256:
            problems.append(f"line {mark.number} is not the one that the registry knows as the last")
        unmarked = max(0, number - 1 - mark.number)
    return Log(lines=tuple(lines), problems=tuple(problems), unmarked=unmarked)


def end_of(lines: Sequence[Line], mark: Mark | None) -> Mark:
    """What the next line follows."""
    if mark is not None and not any((line.number, line.sha256) == (mark.number, mark.sha256) for line in lines):
        return mark
    return Mark(number=lines[-1].number, sha256=lines[-1].sha256) if lines else Mark(number=0, sha256=NOTHING)


def text_of(name: str, release: Release, end: Mark) -> str:
    """The line that follows another."""
    content = {
        "version": 1,
        "number": end.number + 1,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "by": _who(),
        "name": name,
        "release": {field: getattr(release, field) for field in Release.__slots__},
        "before": end.sha256,
    }
    return canonical_json(content)


def line_of(text: bytes) -> Line:
    sha256 = hashlib.sha256(text).hexdigest()
    try:
        content = json.loads(text)
        number = content["number"]
        release = content["release"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return Line(number=0, sha256=sha256, content=None)
    if not isinstance(number, int) or not isinstance(release, dict):
        return Line(number=0, sha256=sha256, content=None)
    return Line(number=number, sha256=sha256, content=content)


def _who() -> str:
    """The user of the process, by the kernel's word and not the environment's."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have a number alone
        user = "-"
    return f"{user} ({os.getuid()}) on {socket.gethostname()}"


def shown(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Lines as values for people and programs, each with its own digest."""
    return [{**(line.content or {"number": None}), "sha256": line.sha256} for line in lines]
