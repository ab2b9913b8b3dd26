"""A store that several machines share: a folder, NFS, or anything that speaks S3. It holds what a local `Store` holds.

    <url>/v1/files/<2 hex>/<sha256>                     content, written once under its digest
    <url>/v1/entries/<kind>/<2 hex>/<digest>.json       an entry: names, sizes and sha256 of its files, sealed
    <url>/v1/uploads/<random>                           of a folder: a file before it gets its name

An entry is there when its JSON is, which is written after all of its files: nothing depends on a rename, and of two
writers either's entry is whole. Whoever reads holds every file against its sha256 and takes what does not match as
absent, so anything may be deleted at any time. Whoever may write here decides what others take for results; a digest
finds damage, not intent: names are checked before they become paths, counts and sizes before anything is fetched.

    Store(root, shared=SharedStore("s3://team/workbench"))      # reads through and writes through

What is local (locks, journals, what is still to be published) lies elsewhere. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from workbench.evaluation.shared_store.remote import BLOCK_BYTES, PATIENCE_S, Away, Remote
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.documents.sealed_json import Unsound, sealed, unsealed

_log = logging.getLogger(__name__)

STORE_VARIABLE = "WORKBENCH_STORE"
"""Names the shared store where no option does: a folder or a URL."""
Fetched = Literal["there", "absent", "damaged"]
T = TypeVar("T")
_VERSION = 1
_MOST_LISTING_BYTES, _MOST_FILES, _MOST_BYTES = 1 << 25, 100_000, 1 << 42
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[^\x00-\x1f\x7f\\\ud800-\udfff]{1,250}")
_PAUSES_S = (5.0, 15.0, 60.0, 300.0)
"""How long nothing is asked of a store that was away, or refused to write, the first time, the second and so on."""
_LEAST_BYTES_PER_S = 1 << 18
"""A store that gives less is taken as away: what it holds is computed sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One file of an entry."""

    sha256: str
    size_bytes: int


Listing = Mapping[str, Listed]
"""Path below the entry's folder, with '/' → content."""


def _read(content: bytes, kind: str, digest: str) -> dict[str, Listed]:
    """What `SharedStore` wrote for this very entry; Unsound where it did not, or names what no entry of ours holds."""
    value = unsealed(content)
    if (value.get("version"), value.get("kind"), value.get("entry")) != (_VERSION, kind, digest):
        raise Unsound("is of another entry")
    files = value.get("files")
    if not isinstance(files, dict) or len(files) > _MOST_FILES:
        raise Unsound(f"lists no files, or more than {_MOST_FILES}")
    if wrong := next((name for name in files if not _is_below(name)), None):
        raise Unsound(f"names {wrong[:100]!r}, which is no path below an entry")
    try:
        found = decode(dict[str, Listed], files, "files")
    except DecodeError as error:
        raise Unsound(f"gives a file no size or sha256 ({error})") from error
    if wrong := next((n for n, one in found.items() if one.size_bytes < 0 or not _SHA256.fullmatch(one.sha256)), None):
        raise Unsound(f"gives {wrong!r} no size or sha256")
    if both := sorted({str(parent) for name in found for parent in PurePosixPath(name).parents} & found.keys()):
        raise Unsound(f"has {both[0]!r} as a file and as a folder")
    if sum(one.size_bytes for one in found.values()) > _MOST_BYTES:
        raise Unsound(f"lists more than {_MOST_BYTES} bytes")
    return found


def _is_below(name: str) -> bool:
    """Whether a name is a path that stays below any folder it is joined to, in the one form that it is written in."""
    parts = name.split("/")
    return len(parts) <= 32 and all(_NAME.fullmatch(part) and part not in (".", "..") for part in parts)


class _Pauses:
    """Of one kind of call: nothing is asked for a while after it failed, for longer every time."""

    def __init__(self) -> None:
        self.until, self._failures, self._lock = 0.0, 0, threading.Lock()

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    def ended(self, *, well: bool) -> bool:
        """Whether the call before ended otherwise."""
        with self._lock:
            before, self._failures = self._failures, 0 if well else self._failures + 1
            if not well:
                self.until = time.monotonic() + _PAUSES_S[min(before, len(_PAUSES_S) - 1)]
        return (before > 0) == well


class SharedStore:
    """What several machines have computed, at a folder, `file:///folder` or `s3://bucket/prefix`. Safe to use from
    several threads.

    Attributes:
        url: without anything secret.
        reading, writing: when it is asked again.
    """

    def __init__(
        self, url: str, *, report: Callable[[str], None] = _log.warning, patience_s: float = PATIENCE_S
    ) -> None:
        """Nothing is asked of it yet: whether it is there shows when it is needed. Credentials and endpoints are taken
        from the environment, as s3fs and botocore read them.

        Args:
            report: receives a sentence when the store goes away or comes back, or holds something damaged.
            patience_s: what one call may take.

        Raises:
            ConfigError: the URL is of another kind, or its package is not installed.
        """
        self.remote, self._report = Remote(url, patience_s=patience_s), report
        self.url = self.remote.url
        self.reading, self.writing = _Pauses(), _Pauses()

    def fetch(self, kind: str, digest: str, to: Path) -> Fetched:
        """Copy the files of an entry into an empty folder; unless 'there' is answered, what lies in it is nothing.

        Every file is held against its sha256. What does not match, and a store that is away, is reported and taken as
        not there.

        Raises:
            OSError: this machine's disk cannot be written.
        """

        def fetched() -> Fetched:
            try:
                if (listing := self._listing(kind, digest)) is None:
                    return "absent"
                needed, free = sum(one.size_bytes for one in listing.values()), shutil.disk_usage(to).free
                if needed > free:
                    said = f"an entry of {needed / 1e6:.1f} MB is not fetched, {free / 1e6:.1f} MB are free."
                    self._report(f"{self.url}: {said}")
                    return "absent"
                for name, one in listing.items():
                    self._copy(name, one, to / name)
                return "there"
            except Unsound as damage:
                self._report(
                    f"{self.url}: {kind}/{digest[:12]} is damaged and not used ({damage}). It is computed here and "
                    "published anew."
                )
                return "damaged"

        away = "is away ({}). What it may hold is computed here until it answers again."
        return self._asked(self.reading, fetched, "absent", away, "answers again.")

    def publish(self, kind: str, digest: str, folder: Path, listing: Listing, *, anew: bool = False) -> bool:
        """Put an entry there, unless it is there; its files first, then the listing, which makes it visible. False
        where the store is away or refuses, which is reported.

        Args:
            anew: write every file, because what is there was found damaged.

        Raises:
            Unsound: a file in `folder` is not what `listing` says; nothing is visible.
        """
        if not self.writing.over:
            return False

        def published() -> bool:
            try:
                if not anew and self._listing(kind, digest) is not None:
                    return True
            except Unsound:
                pass  # in its place
            sent = [name for name, one in listing.items() if anew or not self._has(one)]
            for name in sent:
                self._send(folder / name, listing[name])
            entry = {"version": _VERSION, "kind": kind, "entry": digest, "files": listing}
            self.remote.write(_entry_at(kind, digest), iter((sealed(entry),)))
            for name in listing.keys() - sent:  # somebody may have deleted between our look and our listing
                if not self._has(listing[name]):
                    self._send(folder / name, listing[name])
            return True

        away = "takes no results now ({}). They are kept beside the local ones and published when it does."
        return self._asked(self.writing, published, False, away, "takes results again.")

    def _asked(self, pauses: _Pauses, action: Callable[[], T], otherwise: T, away: str, again: str) -> T:
        """What an action gives, and otherwise where the store is away: said the first time, as is that it is back."""
        found, said, well = otherwise, again, True
        try:
            found = action()
        except Away as error:
            said, well = away.format(error), False
        if pauses.ended(well=well):
            self._report(f"{self.url} {said}")
        return found

    def _listing(self, kind: str, digest: str) -> dict[str, Listed] | None:
        content = self.remote.read(_entry_at(kind, digest), most=_MOST_LISTING_BYTES)
        try:
            return None if content is None else _read(content, kind, digest)
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

    def _send(self, file: Path, one: Listed) -> None:
        def blocks() -> Iterator[bytes]:
            hasher = hashlib.sha256()
            with file.open("rb") as stream:
                while block := stream.read(BLOCK_BYTES):
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
