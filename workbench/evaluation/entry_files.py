"""The files of one entry of the store: what they are, whether they still are that, and equal ones as one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from workbench.values.documents.canonical import digest, file_digest
from workbench.values.documents.sealed_json import Unsound, read_sealed
from workbench.values.system.files import flush

VERSION = 2
Stamps = tuple[tuple[str, int, int, int], ...]


def share(file: Path, shared: Path) -> None:
    """Let equal files be one: a link to the file that is there, or to this one for those to come.

    Where a file system knows no links, or no more of them to one file, every entry keeps its own.
    """
    link = file.with_name(f"{file.name}.link")
    with suppress(OSError):
        if shared.exists() and file_digest(shared) == shared.name and shared.stat().st_size == file.stat().st_size:
            os.link(shared, link)
            link.replace(file)
        else:
            os.link(file, link)
            link.replace(shared)
    link.unlink(missing_ok=True)  # replacing a file by itself leaves both names


def find_damage(place: Path, *, thorough: bool) -> str | None:
    """What is wrong with an entry, or None: names and sizes always, contents when `thorough`."""
    try:
        entry = read_sealed(place / "entry.json")
        if entry["version"] != VERSION:
            return f"version {entry['version']!r}"
        if digest(entry["key"]) != place.name:
            return "entry.json does not match its name"
        for name, expected in entry["files"].items():
            file = place / "files" / name
            if file.stat().st_size != expected["size_bytes"]:
                return f"{name} has {file.stat().st_size} bytes instead of {expected['size_bytes']}"
            if thorough and file_digest(file) != expected["sha256"]:
                return f"{name} has another sha256"
    except Unsound as error:
        return f"entry.json {error}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except PermissionError:
        raise  # the entry may be sound; the store says who cannot read it
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def fingerprints(root: Path) -> dict[str, dict[str, Any]]:
    """Path relative to `root` → sha256 and size_bytes, of every file below it."""
    return {
        file.relative_to(root).as_posix(): {"sha256": file_digest(file), "size_bytes": file.stat().st_size}
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def stamps_of(place: Path) -> Stamps:
    """Name, size, time of the last change and inode of each of an entry's files: where they stay, the content does."""
    found = []
    for file in sorted((place / "files").rglob("*")):
        with suppress(FileNotFoundError):
            status = file.stat()
            found.append((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(found)


def last_used(place: Path) -> float:
    try:
        return (place / "entry.json").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def size_bytes(place: Path) -> int:
    """Bytes of all files below `place`, of those that are shared its part; 0 when it vanishes while we look."""
    try:
        found = [file.stat() for file in place.rglob("*") if file.is_file()]
        return sum(each.st_size // max(1, each.st_nlink - 1) for each in found)
    except FileNotFoundError:
        return 0


def flush_all(root: Path) -> None:
    """fsync every file and directory below `root`, and `root` itself."""
    for path in (*root.rglob("*"), root):
        flush(path)
