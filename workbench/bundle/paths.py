"""From a name in a bundle to its file: the one way there is.

A bundle comes from somebody else, and whatever it names is opened by a service. So a name is plain characters below
the bundle's folder, and it is walked part by part without following a link, down to a regular file. Opening goes over
descriptors of the folders already checked: exchanging a folder for a link in between leads nowhere.

SHA256SUMS lists every other file with its sum, in the format that `sha256sum -c` reads.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from workbench.values.errors import BundleError

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]*", re.ASCII)
_MOST_CHARACTERS, _MOST_PARTS, _MOST_IN_A_PART = 512, 8, 255
_SHOWN = 5
"""Entries that do not belong, of which so many are looked for before the search ends."""


def name_fault(name: str) -> str:
    """Why a name cannot be that of a bundle's file, in words that follow it; '' for a good one."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        return "leads outside the bundle"
    if len(name) > _MOST_CHARACTERS or len(parts) > _MOST_PARTS or max(map(len, parts)) > _MOST_IN_A_PART:
        return f"is longer or deeper than a bundle's names are ({_MOST_CHARACTERS} characters, {_MOST_PARTS} parts)"
    if not all(_PART.fullmatch(part) for part in parts):
        return "has other characters than letters, digits and _.+=@- in its parts"
    return ""


def open_inside(directory: Path, name: str) -> int:
    """A descriptor of the regular file that `name` is; whoever calls closes it.

    Raises:
        BundleError: the name leads outside, there is a link on the way, or it is no regular file that can be read.
    """
    if fault := name_fault(name):
        raise BundleError(f"{directory}: the name {name[:80]!r} {fault}. Do not use this bundle.")
    *folders, last = name.split("/")
    try:
        at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                below = _open_part(directory, name, at, folder, os.O_DIRECTORY)
                os.close(at)
                at = below
            return _open_part(directory, name, at, last, 0)
        finally:
            os.close(at)
    except FileNotFoundError:
        raise BundleError(f"{directory}: {name} is missing. Copy the bundle again.") from None
    except OSError as error:
        raise BundleError(f"{directory}: {name} cannot be read: {error.strerror}. Copy the bundle again.") from error


def _open_part(directory: Path, name: str, at: int, part: str, kind: int) -> int:
    """What a part is, is looked at before it is opened: opening a pipe or a device can wait, or do something."""
    mode = os.stat(part, dir_fd=at, follow_symlinks=False).st_mode
    if not (stat.S_ISDIR(mode) if kind else stat.S_ISREG(mode)):
        what = _kind(mode) if part == name.rpartition("/")[2] else f"behind {part}, which is {_kind(mode)}"
        raise BundleError(f"{directory}: {name} is {what}; a bundle holds plain files. Copy the bundle again.")
    opened = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | kind, dir_fd=at)
    if stat.S_IFMT(os.fstat(opened).st_mode) != stat.S_IFMT(mode):
        os.close(opened)
        raise BundleError(f"{directory}: {name} was exchanged while it was opened. Copy the bundle again.")
    return opened


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISLNK, "a link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISREG, "a file"),
    )
    return next((words for test, words in kinds if test(mode)), "a device")


def entries(directory: Path) -> Iterator[str]:
    """Names of everything below a folder but its folders, in no order; links, pipes and devices among them.

    Empty folders are named too, with a slash behind. Nothing is followed.

    Raises:
        BundleError: a folder cannot be read.
    """
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(directory / folder) as found:
                empty = True
                for entry in found:
                    empty = False
                    name = f"{folder}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{name}/")
                    else:
                        yield name
        except OSError as error:
            raise BundleError(f"{directory / folder}: cannot be read: {error.strerror}.") from error
        if empty and folder:
            yield folder


def strangers(directory: Path, expected: Set[str]) -> list[str]:
    """Names below the folder that are not expected, sorted, the first few: a folder may hold millions."""
    unexpected = (name for name in entries(directory) if name not in expected)
    return sorted(itertools.islice(unexpected, _SHOWN))


SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.minisig"
MOST_SUMS_BYTES = 1 << 22


def sums_text(sums: Mapping[str, str]) -> str:
    """The one form of SHA256SUMS, of name → sha256: sorted by name."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sums.items()))
