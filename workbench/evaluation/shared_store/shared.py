"""Entries of a shared store: published whole, fetched and held against their digests, cleaned away.

What it says of an entry comes from whoever may write there. Names are checked before they become paths, counts and
sizes before anything is fetched.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from workbench.evaluation.shared_store.remote import BLOCK_BYTES, PATIENCE_S, Away, Found, Remote
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.sealed_json import Unsound, sealed, unsealed

_log = logging.getLogger(__name__)

STORE_VARIABLE = "WORKBENCH_STORE"
"""Names the shared store where no option does: a folder or a URL."""
Fetched = Literal["there", "absent", "damaged"]
_VERSION = 1
_MOST_LISTING_BYTES, _MOST_FILES, _MOST_BYTES = 1 << 25, 100_000, 1 << 42
_MOST_DEPTH, _MOST_NAME_BYTES, _MOST_PART_BYTES = 32, 1000, 255
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
_PAUSES_S = (5.0, 15.0, 60.0, 300.0)
"""How long nothing is asked of a store that was away, the first time, the second and so on."""
_LEAST_BYTES_PER_S = 1 << 18
"""A store that gives less is taken as away: what it holds is computed sooner."""
_LARGE_BYTES = 1 << 20
"""From here on sending a file keeps a processor busy for more than some milliseconds."""
LEFT_AFTER_S = 24 * 3600.0
"""A file that no entry names may belong to a writer that is at work; after a day it belongs to nobody."""
_READERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One file of an entry."""

    sha256: str
    size_bytes: int


Listing = Mapping[str, Listed]
"""Path below the entry's folder, with '/' → content."""


def written(kind: str, digest: str, listing: Listing) -> bytes:
    """The JSON that makes an entry visible."""
    return sealed({"version": _VERSION, "kind": kind, "entry": digest, "files": listing})


def read(content: bytes, kind: str, digest: str) -> dict[str, Listed]:
    """What `written` wrote for this very entry.

    Raises:
        Unsound: it is damaged, of another entry, or names what no entry of ours holds.
    """
    value = unsealed(content)
    if (value.get("version"), value.get("kind"), value.get("entry")) != (_VERSION, kind, digest):
        raise Unsound("is of another entry")
    files = value.get("files")
    if not isinstance(files, dict) or len(files) > _MOST_FILES:
        raise Unsound(f"lists no files, or more than {_MOST_FILES}")
    if wrong := next((name for name in files if not plain(name)), None):
        raise Unsound(f"names {wrong[:100]!r}, which is no path below an entry")
    try:
        found = decode(dict[str, Listed], files, "files")
    except DecodeError as error:
        raise Unsound(f"gives a file no size or sha256 ({error})") from error
    for name, one in found.items():
        if one.size_bytes < 0 or not _SHA256.fullmatch(one.sha256):
            raise Unsound(f"gives {name!r} no size or sha256")
    folders = {str(parent) for name in found for parent in PurePosixPath(name).parents}
    if both := sorted(folders & found.keys()):
        raise Unsound(f"has {both[0]!r} as a file and as a folder")
    if sum(one.size_bytes for one in found.values()) > _MOST_BYTES:
        raise Unsound(f"lists more than {_MOST_BYTES} bytes")
    return found


def plain(name: str) -> bool:
    """Whether a name is a path that stays below any folder it is joined to, in the one form that it is written in."""
    parts = name.split("/")
    if _CONTROL.search(name) or len(parts) > _MOST_DEPTH or not 0 < len(name.encode()) <= _MOST_NAME_BYTES:
        return False
    return all(part not in ("", ".", "..") and len(part.encode()) <= _MOST_PART_BYTES for part in parts)


def open_shared_store(
    url: str, *, report: Callable[[str], None] = _log.warning, patience_s: float = PATIENCE_S
) -> SharedStore:
    """The store at a folder, `file:///folder`, `s3://bucket/prefix` or, within one process, `memory://name`.

    Nothing is asked of it yet: whether it is there shows when it is needed (`SharedStore.look`). Credentials and
    endpoints are taken from the environment, as s3fs and botocore read them.

    Args:
        report: receives a sentence when the store goes away or comes back, or holds something damaged.
        patience_s: what one call may take.

    Raises:
        ConfigError: the URL is of another kind, or its package is not installed.
    """
    return SharedStore(Remote(url, patience_s=patience_s), report=report)


class SharedStore:
    """What several machines have computed. Safe to use from several threads.

    Attributes:
        url: without anything secret.
    """

    def __init__(self, remote: Remote, *, report: Callable[[str], None]) -> None:
        self.url, self.remote, self._report = remote.url, remote, report
        self._lock = threading.Lock()
        self._away_since_tries, self._ask_again = 0, 0.0

    def look(self) -> None:
        """Ask it for something that is not there.

        Raises:
            Away: it does not answer, or refuses.
        """
        self.remote.size("v1/entries/none")

    def asks(self) -> bool:
        """Whether it is asked now: not for a while after it was away."""
        return time.monotonic() >= self._ask_again

    def fetch(self, kind: str, digest: str, to: Path) -> Fetched:
        """Copy the files of an entry into an empty folder; unless 'there' is answered, what lies in it is nothing.

        Every file is held against its sha256. What does not match, and a store that is away, is reported and taken as
        not there.

        Raises:
            OSError: this machine's disk cannot be written.
        """
        if not self.asks():
            return "absent"
        try:
            listing = self._listing(kind, digest)
            if listing is not None:
                needed, free = sum(one.size_bytes for one in listing.values()), shutil.disk_usage(to).free
                if needed > free:
                    said = f"an entry of {needed / 1e6:.1f} MB is not fetched, {free / 1e6:.1f} MB are free."
                    self._report(f"{self.url}: {said}")
                    return "absent"
                for name, one in listing.items():
                    self._copy(name, one, to / name)
        except Away as away:
            with self._lock:
                first, pause = not self._away_since_tries, _PAUSES_S[min(self._away_since_tries, len(_PAUSES_S) - 1)]
                self._away_since_tries += 1
                self._ask_again = time.monotonic() + pause
            if first:
                self._report(f"{self.url} is away ({away}). What it may hold is computed here until it answers again.")
            return "absent"
        except Unsound as damage:
            self._report(
                f"{self.url}: {kind}/{digest[:12]} is damaged and not used ({damage}). It is computed here and "
                "published anew."
            )
            return "damaged"
        with self._lock:
            back, self._away_since_tries = self._away_since_tries > 0, 0
        if back:
            self._report(f"{self.url} answers again.")
        return "absent" if listing is None else "there"

    def publish(
        self,
        kind: str,
        digest: str,
        folder: Path,
        listing: Listing,
        *,
        anew: bool = False,
        before_block: Callable[[], None] = lambda: None,
    ) -> None:
        """Put an entry there, unless it is there; its files first, then the listing, which makes it visible.

        Args:
            anew: write every file, because what is there was found damaged.
            before_block: called before each block of a large file is sent; may wait.

        Raises:
            Away: it does not answer, or refuses.
            Unsound: a file in `folder` is not what `listing` says; nothing is visible.
        """
        try:
            if not anew and self._listing(kind, digest) is not None:
                return
        except Unsound:
            pass  # in its place
        relied_on: list[tuple[str, Listed]] = []
        for name, one in listing.items():
            if not anew and self._has(one):
                relied_on.append((name, one))
            else:
                self._send(folder / name, one, before_block)
        content = written(kind, digest, listing)
        self.remote.write(_entry_at(kind, digest), iter((content,)))
        for name, one in relied_on:  # somebody may have cleaned between our look and our listing
            if not self._has(one):
                self._send(folder / name, one, before_block)

    def _listing(self, kind: str, digest: str) -> dict[str, Listed] | None:
        content = self.remote.read(_entry_at(kind, digest), most=_MOST_LISTING_BYTES)
        try:
            return None if content is None else read(content, kind, digest)
        except Unsound as damage:
            raise Unsound(f"its listing {damage}") from damage

    def _has(self, one: Listed) -> bool:
        return self.remote.size(_file_at(one.sha256)) == one.size_bytes

    def _copy(self, name: str, one: Listed, to: Path) -> None:
        hasher, size = hashlib.sha256(), 0
        end = time.monotonic() + self.remote.patience_s + one.size_bytes / _LEAST_BYTES_PER_S
        if not self._has(one):
            raise Unsound(f"{name} is missing, or has another size")
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("xb") as file:
            for block in self.remote.blocks(_file_at(one.sha256), one.size_bytes):
                size += len(block)
                hasher.update(block)
                if size <= one.size_bytes:
                    file.write(block)
                if time.monotonic() > end:
                    raise Away(f"{size} bytes came where {one.size_bytes} should have")
        if size != one.size_bytes or hasher.hexdigest() != one.sha256:
            raise Unsound(f"{name} has another sha256")

    def _send(self, file: Path, one: Listed, before_block: Callable[[], None]) -> None:
        def blocks() -> Iterator[bytes]:
            hasher = hashlib.sha256()
            with file.open("rb") as stream:
                while block := stream.read(BLOCK_BYTES):
                    if one.size_bytes >= _LARGE_BYTES:
                        before_block()
                    hasher.update(block)
                    yield block
            if hasher.hexdigest() != one.sha256:
                raise Unsound(f"{file.name} has another sha256")

        self.remote.write(_file_at(one.sha256), blocks())


def _entry_at(kind: str, digest: str) -> str:
    assert _SHA256.fullmatch(digest)
    return f"v1/entries/{kind}/{digest[:2]}/{digest}.json"


def _file_at(sha256: str) -> str:
    return f"v1/files/{sha256[:2]}/{sha256}"


# --- what lies there, and making room ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What `clean` removed; `left_over` files and half-sent files belonged to no entry."""

    entries: int
    left_over: int
    freed_bytes: int


def usage_of(shared: SharedStore) -> tuple[dict[str, int], int, int]:
    """Kind → entries; files of content and their bytes: what several entries have counts once. Nothing is read.

    Raises:
        Away: it does not answer.
    """
    entries: dict[str, int] = {}
    for kind, _ in _entries(shared):
        entries[kind] = entries.get(kind, 0) + 1
    found = list(_contents(shared))
    return entries, len(found), sum(file.size_bytes for file in found)


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
    limit, old = -1.0 if older_than_s is None else now - older_than_s, now - left_after_s
    due = [entry for _, entry in _entries(shared) if entry.modified < limit]
    for entry in () if dry else due:
        shared.remote.remove(entry.path)
    # candidates first, then the entries: what is published in between is named by an entry that is read
    candidates = [file for file in _contents(shared) if file.modified < old]
    gone_entries = {entry.path for entry in due}
    kept = [(kind, entry) for kind, entry in _entries(shared) if entry.path not in gone_entries]

    def named(of: tuple[str, Found]) -> set[str] | None:
        kind, entry = of
        content = shared.remote.read(entry.path, most=_MOST_LISTING_BYTES)
        try:
            return {file.sha256 for file in read(content or b"", kind, Path(entry.path).stem).values()}
        except Unsound:
            return None

    with ThreadPoolExecutor(_READERS) as pool:
        files = list(pool.map(named, kept))
    known = set[str]().union(*filter(None, files))
    left = [entry for (_, entry), named in zip(kept, files, strict=True) if named is None and entry.modified < old]
    left += [file for file in shared.remote.files("v1/uploads") if file.modified < old]
    left += [file for file in candidates if Path(file.path).name not in known]
    for file in () if dry else left:
        shared.remote.remove(file.path)
    return Cleaned(entries=len(due), left_over=len(left), freed_bytes=sum(file.size_bytes for file in [*due, *left]))


def _entries(shared: SharedStore) -> Iterator[tuple[str, Found]]:
    for kind in shared.remote.folders("v1/entries"):
        for part in shared.remote.folders(f"v1/entries/{kind}"):
            for file in shared.remote.files(f"v1/entries/{kind}/{part}"):
                if file.path.endswith(".json"):
                    yield kind, file


def _contents(shared: SharedStore) -> Iterator[Found]:
    for part in shared.remote.folders("v1/files"):
        for file in shared.remote.files(f"v1/files/{part}"):
            if _SHA256.fullmatch(Path(file.path).name):
                yield file
