"""What a shared store holds, and making room: entries by age, and what interrupted writers left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workbench.evaluation.shared_store.listing import MOST_LISTING_BYTES, SHA256, read
from workbench.evaluation.shared_store.remote import Found
from workbench.evaluation.shared_store.shared import SharedStore
from workbench.values.documents.sealed_json import Unsound

LEFT_AFTER_S = 24 * 3600.0
"""A file that no entry names may belong to a writer that is at work; after a day it belongs to nobody."""
_READERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedUsage:
    """What lies in a shared store.

    Attributes:
        entries: kind → how many.
        files, size_bytes: of content; what several entries have counts once.
    """

    entries: dict[str, int]
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What `clean` removed.

    Attributes:
        left_over: files and half-sent files that belonged to no entry.
    """

    entries: int
    left_over: int
    freed_bytes: int


def usage_of(shared: SharedStore) -> SharedUsage:
    """Counted from listings of folders alone; nothing is read.

    Raises:
        Away: it does not answer.
    """
    entries: dict[str, int] = {}
    for kind, _ in _entries(shared):
        entries[kind] = entries.get(kind, 0) + 1
    found = list(_contents(shared))
    return SharedUsage(entries=entries, files=len(found), size_bytes=sum(file.size_bytes for file in found))


def clean(
    shared: SharedStore, *, older_than_s: float | None = None, left_after_s: float = LEFT_AFTER_S, dry: bool = False
) -> Cleaned:
    """Remove entries published longer ago than that, then what no entry names and is older than a day.

    Safe beside readers and writers: who misses a file takes the entry as absent and publishes it anew.

    Args:
        older_than_s: None to keep every entry.
        dry: remove nothing, and say what would be removed.

    Raises:
        Away: it does not answer, or refuses; what was removed until then is removed.
    """
    now = time.time()
    limit = -1.0 if older_than_s is None else now - older_than_s
    due = [entry for _, entry in _entries(shared) if entry.modified < limit]
    for entry in () if dry else due:
        shared.remote.remove(entry.path)
    # candidates first, then the entries: what is published in between is named by an entry that is read
    old = [file for file in _contents(shared) if file.modified < now - left_after_s]
    unsound, named = _named(shared, {entry.path for entry in due}, old_before=now - left_after_s)
    drafts = [file for file in shared.remote.files("v1/uploads") if file.modified < now - left_after_s]
    gone = [*unsound, *drafts, *(file for file in old if Path(file.path).name not in named)]
    for file in () if dry else gone:
        shared.remote.remove(file.path)
    return Cleaned(entries=len(due), left_over=len(gone), freed_bytes=sum(file.size_bytes for file in [*due, *gone]))


def _named(shared: SharedStore, due: set[str], *, old_before: float) -> tuple[list[Found], set[str]]:
    """Old listings that nobody can read, and the sha256 of every file that the others name; but for those due to go."""

    def one(of: tuple[str, Found]) -> set[str] | None:
        kind, entry = of
        content = shared.remote.read(entry.path, most=MOST_LISTING_BYTES)
        try:
            return {file.sha256 for file in read(content or b"", kind, Path(entry.path).stem).values()}
        except Unsound:
            return None

    every = [(kind, entry) for kind, entry in _entries(shared) if entry.path not in due]
    with ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(one, every))
    unsound = [e for (_, e), files in zip(every, found, strict=True) if files is None and e.modified < old_before]
    return unsound, set().union(*(files for files in found if files is not None))


def _entries(shared: SharedStore) -> Iterator[tuple[str, Found]]:
    for kind in shared.remote.folders("v1/entries"):
        for part in shared.remote.folders(f"v1/entries/{kind}"):
            for file in shared.remote.files(f"v1/entries/{kind}/{part}"):
                if file.path.endswith(".json"):
                    yield kind, file


def _contents(shared: SharedStore) -> Iterator[Found]:
    for part in shared.remote.folders("v1/files"):
        for file in shared.remote.files(f"v1/files/{part}"):
            if SHA256.fullmatch(Path(file.path).name):
                yield file
