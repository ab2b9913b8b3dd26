"""The log of a model's releases: a line for each export, promotion and rollback, chained so that a change shows.

A line is a version of the registered model NAME.releases, and lines are only ever added. Each holds its number and, as
`before`, the sha256 of the line that was last when it was written (of two that were added at once on a server, both
follow the same one), so a line that was changed, exchanged or removed between others breaks the chain. Lines taken from
the end do not: against that helps a digest that was kept elsewhere (`workbench releases NAME --contains DIGEST`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
    """

    act: Act
    version: int
    manifest_sha256: str
    champion_before: int | None
    champion_after: int | None
    verdict: str = ""
    verdict_sha256: str = ""
    reason: str = ""

    def __str__(self) -> str:
        """For the registry's page."""
        before, after = ("none" if n is None else str(n) for n in (self.champion_before, self.champion_after))
        champion = f"champion {before} -> {after}" if before != after else f"champion stays {after}"
        words = [f"{self.act} of version {self.version}", champion, self.verdict, self.reason[:500]]
        return ", ".join(filter(None, words))


Line = dict[str, Any]
"""One line as it stands, and its `sha256`; its number is None and its release empty where it is no line of this log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Attributes: problems: what shows that it is not as it was written; empty for a whole one."""

    lines: tuple[Line, ...]
    problems: tuple[str, ...]


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


def checked(lines: Sequence[Line]) -> Log:
    """Lines in their order, and what shows that they are not the ones that were written."""
    problems: list[str] = []
    numbers = {NOTHING: 0}
    for place, line in enumerate(lines, 1):
        before, number = str(line.get("before")), line["number"]
        if number is None:
            problems.append(f"line {place} is no line of a log of releases")
        elif line["sha256"] in numbers:
            problems.append(f"line {place} stands twice")
        elif before not in numbers:
            problems.append(f"line {place} continues no line before it: one was changed or removed")
        elif number != numbers[before] + 1:
            problems.append(f"line {place} has the number {number} instead of {numbers[before] + 1}")
        numbers[line["sha256"]] = number or 0
    return Log(lines=tuple(lines), problems=tuple(problems))


def text_of(name: str, release: Release, lines: Sequence[Line]) -> str:
    """The line that follows others."""
    content = {
        "version": 1,
        "number": (lines[-1]["number"] or 0 if lines else 0) + 1,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "by": _who(),
        "name": name,
        "release": asdict(release),
        "before": lines[-1]["sha256"] if lines else NOTHING,
    }
    return canonical_json(content)


def line_of(text: bytes) -> Line:
    content: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        content = json.loads(text)
    whole = isinstance(content, dict) and isinstance(content.get("number"), int)
    if not whole or not isinstance(content.get("release"), dict):
        content = {"number": None, "release": {}}
    return {**content, "sha256": hashlib.sha256(text).hexdigest()}


def _who() -> str:
    """The user of the process, by the kernel's word and not the environment's."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have a number alone
        user = "-"
    return f"{user} ({os.getuid()}) on {socket.gethostname()}"
