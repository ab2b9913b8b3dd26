"""Store: results kept by the content of their key, so that no stage runs twice.

    <root>/<kind>/<2 hex>/<digest>/entry.json     key, sha256 and size of every file, and a sha256 of its own
                                   files/         what the builder wrote
    <root>/.building/<kind>-<digest>/             half-built or half-deleted; belongs to the holder of the key's lock
    <root>/.damaged/<kind>-<digest>/              moved aside because a digest did not match
    <root>/.shared/<sha256>                       large files of entries, each once: an entry's own is a link to it
    <root>/.locks/  .users/                       flock files; the kernel frees them when their holder dies
    <root>/.unpublished/                          what a shared store does not have yet

An entry appears by one rename, after everything in it was flushed to disk: a process killed at any moment leaves at
most a directory under `.building`, which the next `Store` removes. Locks are `flock`s: where the nodes of a cluster
share the root, its file system must carry them, as NFS does. Other machines share what they have through a
`SharedStore`: what is not here is taken from there, what is built here is published there.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.evaluation.shared_store import STORE_VARIABLE, Fetched, Listed, SharedStore
from workbench.values.documents.canonical import canonical_json, digest, encode, file_digest
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.errors import ToolchainError
from workbench.values.system.files import flush, lock_file

_log = logging.getLogger(__name__)

_VERSION, _VALUE = 2, "value.json"
_KIND = re.compile(r"[a-z][a-z0-9_-]*")
_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_ACCESS = (errno.EROFS, errno.EACCES, errno.EPERM)
_Stamps = tuple[tuple[str, int, int, int], ...]
SHARED_BYTES = 1 << 18
"""Files from this size on are kept once, however many entries have them."""
OF_THIS_MACHINE = ("memory", "host_costs")
"""Kinds that were measured on a machine and say nothing of another, however alike their toolchains are."""
_ANEW, _CLOSE_S = "anew", 60.0
_NOTHING_LEFT_BYTES = 1 << 20
"""A builder that fails with less than this free is taken to have failed for want of space, whatever it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stored result.

    Attributes:
        path: directory holding the files exactly as the builder wrote them; read-only by convention.
        cached: False when this very call built it; True when it was here or came from the shared store.
    """

    path: Path
    cached: bool


class Store:
    """A content-addressed store, safe to share between threads and processes of one machine.

    While a `Store` is open, no entry it returned is pruned by anybody.
    """

    def __init__(
        self, root: Path, *, shared: SharedStore | None = None, report: Callable[[str], None] = _log.warning
    ) -> None:
        """Create or open the store and remove what dead processes left half-built.

        Args:
            shared: what several machines share; asked before anything is built, told of what was.
            report: receives one sentence when an entry is found damaged, or another process is waited for.

        Raises:
            ToolchainError: the directory cannot be written.
        """
        self.root = root.absolute()
        self._report = report
        self._verified: dict[tuple[str, str], _Stamps] = {}
        self.shared, self._offered = shared, set[tuple[str, str]]()
        with self._disk():
            for name in (".building", ".damaged", ".locks", ".shared", ".unpublished", ".users"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            # a locked file says 'in use since now'; of processes that were killed the next one takes it away
            _oldest_user(self.root / ".users")
            user = ExitStack()
            user.enter_context(lock_file(self.root / ".users" / uuid.uuid4().hex, remove=True))
            self._close = weakref.finalize(self, user.close)
            for left in (self.root / ".building").iterdir():
                with lock_file(self.root / ".locks" / left.name, remove=True) as lock:
                    if lock.held:
                        shutil.rmtree(left, ignore_errors=True)

    @property
    def unpublished(self) -> int:
        """Entries that a shared store is to have and does not have yet."""
        return sum(1 for _ in (self.root / ".unpublished").iterdir())

    def close(self) -> None:
        """Publish what is left, what killed processes left too, for a minute at most; and let `prune` take the entries
        this store returned. A second call does nothing."""
        if self.shared is not None and self._close.alive:
            end, self.shared.writing.until = time.monotonic() + _CLOSE_S, 0.0
            for marker in sorted((self.root / ".unpublished").iterdir()):
                if time.monotonic() < end:
                    self._publish(marker)
            if left := self.unpublished:
                self._report(
                    f"{left} results are kept in {self.root} and not yet in {self.shared.url}; the next command in "
                    "this workspace that has a shared store publishes them."
                )
        self._close()

    def get_or_build(self, kind: str, key: Any, build: Callable[[Path], None]) -> Entry:
        """The entry of a key, built now if it is neither here nor in the shared store.

        `build` receives an empty directory to write into and must not ask for the same key. When two processes
        want one key, the second waits for the first and shares its result. If `build` raises, nothing is kept and
        the exception goes through.

        Args:
            kind: sub-directory, such as 'artifact'; lower case letters, digits, '-' and '_'.
            key: mapping or dataclass; its canonical JSON is the identity.

        Raises:
            ToolchainError: disk full or not writable; also when `build` failed because nothing was left to write on.
        """
        place = self._place(kind, key)
        with self._disk(), self._lock(kind, place.name):
            if (known := self._known(kind, key, place)) != "there":
                self._build(kind, key, place, build)
        self._offer(kind, place.name, anew=known == "damaged")
        return Entry(path=place / "files", cached=known == "there")

    def find(self, kind: str, key: Any) -> Entry | None:
        """The entry of a key if it is there and intact; waits while another process builds it."""
        place = self._place(kind, key)
        elsewhere = self.shared is not None and kind not in OF_THIS_MACHINE
        if not elsewhere and not place.is_dir() and not self._temporary(kind, place.name).is_dir():
            return None
        with self._disk(), self._lock(kind, place.name):
            if self._known(kind, key, place) != "there":
                return None
        self._offer(kind, place.name)
        return Entry(path=place / "files", cached=True)

    def get_json(self, kind: str, key: Any) -> Any | None:
        """The value `json_of` kept, or None."""
        entry = self.find(kind, key)
        return None if entry is None else json.loads((entry.path / _VALUE).read_text(encoding="utf-8"))

    def json_of(self, kind: str, key: Any, make: Callable[[], Any]) -> Any:
        """The value kept under a key, as plain JSON data; made now where there is none."""

        def build(to: Path) -> None:
            (to / _VALUE).write_text(canonical_json(make()) + "\n", encoding="utf-8")

        return json.loads((self.get_or_build(kind, key, build).path / _VALUE).read_text(encoding="utf-8"))

    def usage(self) -> dict[str, tuple[int, int]]:
        """Kind → entries and bytes, sorted; entries moved aside as damaged are the kind '.damaged'."""
        with self._disk():
            sizes: dict[str, list[int]] = {}
            for place in (*self._entries(), *(self.root / ".damaged").iterdir()):
                kind = ".damaged" if place.parent.name == ".damaged" else place.parent.parent.name
                sizes.setdefault(kind, []).append(_size_bytes(place))
        return {kind: (len(found), sum(found)) for kind, found in sorted(sizes.items())}

    def prune(
        self,
        *,
        keep_bytes: int | None = None,
        older_than_s: float | None = None,
        kinds: Collection[str] | None = None,
    ) -> tuple[int, int, int]:
        """Delete entries, least recently used first; damaged ones always: how many, their bytes, and how many more were
        due but belong to a running process.

        Args:
            keep_bytes: stop once the entries considered take no more than this.
            older_than_s: spare what was used within this time.
            kinds: consider these only; default all.

        With neither limit, every entry considered goes. Entries used by a process that still has a store open
        stay in any case.
        """
        limit = time.time() - older_than_s if older_than_s is not None else float("inf")
        with self._disk():
            found = [p for p in self._entries() if kinds is None or p.parent.parent.name in kinds]
            sizes = {place: _size_bytes(place) for place in sorted(found, key=_last_used)}
            total, removed, freed, in_use = sum(sizes.values()), 0, 0, 0
            for place, size in sizes.items():
                if (keep_bytes is not None and total <= keep_bytes) or _last_used(place) >= limit:
                    break
                if self._remove(place):
                    removed, freed, total = removed + 1, freed + size, total - size
                else:
                    in_use += 1
            for place in (self.root / ".damaged").iterdir():
                if kinds is None or place.name.rpartition("-")[0] in kinds:
                    freed += _size_bytes(place)
                    shutil.rmtree(place, ignore_errors=True)
        return removed, freed, in_use

    def _remove(self, place: Path) -> bool:
        """Delete one entry unless it is locked or a running process used it; True when it is gone."""
        kind = place.parent.parent.name
        with lock_file(self._lock_path(kind, place.name), remove=True) as lock:
            if not lock.held or _last_used(place) >= _oldest_user(self.root / ".users"):
                return False
            if not place.exists():
                return True  # another prune was quicker
            aside = self._temporary(kind, place.name)
            shutil.rmtree(aside, ignore_errors=True)
            place.rename(aside)
            shutil.rmtree(aside)
        for file in (self.root / ".shared").iterdir():  # those that no entry has any more
            with suppress(FileNotFoundError):
                if file.stat().st_nlink == 1:
                    file.unlink()
        return True

    def _known(self, kind: str, key: Any, place: Path) -> Fetched:
        """Whether the entry is here, perhaps from now on, because the shared store had it. Needs the key's lock."""
        shared = self.shared
        if self._usable(kind, place):
            return "there"
        if shared is None or kind in OF_THIS_MACHINE or not shared.reading.over:
            return "absent"
        found = self._build(kind, key, place, lambda to: shared.fetch(kind, place.name, to))
        if found == "there":
            self._offered.add((kind, place.name))
        return found

    def _offer(self, kind: str, name: str, *, anew: bool = False) -> None:
        """Publish an entry that is here, once; what the store does not take is remembered on disk."""
        if self.shared is None or kind in OF_THIS_MACHINE or ((kind, name) in self._offered and not anew):
            return
        self._offered.add((kind, name))
        marker = self.root / ".unpublished" / f"{kind}-{name}"
        with self._disk():
            marker.write_text(_ANEW if anew else "", encoding="utf-8")
        self._publish(marker)

    def _publish(self, marker: Path) -> None:
        """What a marker names: an empty file, or one that says that what is there was found damaged."""
        assert self.shared is not None
        kind, _, name = marker.name.rpartition("-")
        place = self.root / kind / name[:2] / name
        try:
            listing = {file: Listed(**one) for file, one in read_sealed(place / "entry.json")["files"].items()}
            anew = marker.read_text(encoding="utf-8") == _ANEW
            done = self.shared.publish(kind, name, place / "files", listing, anew=anew)
        except (Unsound, FileNotFoundError):  # pruned; damaged, which its next reader finds; another was quicker
            done = True
        if done:
            marker.unlink(missing_ok=True)

    def _build(self, kind: str, key: Any, place: Path, build: Callable[[Path], Fetched | None]) -> Fetched:
        """Make the entry in its place, unless `build` answers that it has nothing. Needs the key's lock."""
        building = self._temporary(kind, place.name)
        shutil.rmtree(building, ignore_errors=True)  # its owner is dead: we hold the key's lock
        try:
            (building / "files").mkdir(parents=True)
            try:
                found = build(building / "files")
            except Exception as error:
                full = isinstance(error, OSError) and error.errno in _OUT_OF_SPACE
                if full or (not isinstance(error, OSError) and self._free_bytes() < _NOTHING_LEFT_BYTES):
                    raise self._full(error) from error  # said here, before what was half written is removed
                raise
            if isinstance(found, str) and found != "there":
                shutil.rmtree(building)
                return found
            entry = {
                "version": _VERSION,
                "kind": kind,
                "key": encode(key),
                "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "files": (files := _fingerprints(building / "files")),
            }
            for name, listed in files.items():
                if listed["size_bytes"] >= SHARED_BYTES:
                    _share(building / "files" / name, self.root / ".shared" / listed["sha256"])
            write_sealed(building / "entry.json", entry)
            for path in (*building.rglob("*"), building):
                flush(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            building.rename(place)
            flush(place.parent)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        self._verified[kind, place.name] = _stamps_of(place)
        return "there"

    def _usable(self, kind: str, place: Path) -> bool:
        """True when the entry is there and intact; a damaged one is moved aside. Needs the key's lock."""
        if not place.exists():
            return False
        stamps = _stamps_of(place)  # before the look, so that what changes meanwhile is looked at again
        damage = _find_damage(place, thorough=self._verified.get((kind, place.name)) != stamps)
        if damage is None:
            os.utime(place / "entry.json")
            self._verified[kind, place.name] = stamps
            return True
        self._report(f"Cache entry {kind}/{place.name[:12]} is damaged ({damage}); it is set aside and built again.")
        aside = self.root / ".damaged" / f"{kind}-{place.name}"
        shutil.rmtree(aside, ignore_errors=True)
        place.rename(aside)
        self._verified.pop((kind, place.name), None)
        return False

    def _entries(self) -> Iterator[Path]:
        return (p for p in self.root.glob("[a-z]*/[0-9a-f][0-9a-f]/*") if len(p.name) == 64)

    def _place(self, kind: str, key: Any) -> Path:
        if not _KIND.fullmatch(kind):
            raise ValueError(f"{kind!r} is not a kind: lower case letters, digits, '-' and '_'")
        name = digest(key)
        return self.root / kind / name[:2] / name

    def _temporary(self, kind: str, name: str) -> Path:
        return self.root / ".building" / f"{kind}-{name}"

    def _lock_path(self, kind: str, name: str) -> Path:
        return self.root / ".locks" / f"{kind}-{name}"

    @contextmanager
    def _lock(self, kind: str, name: str) -> Iterator[None]:
        def waiting(holder: str) -> None:
            self._report(f"Another process is working on {kind}/{name[:12]}; waiting for it.")

        with lock_file(self._lock_path(kind, name), wait=True, remove=True, waiting=waiting):
            yield

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Turns a full or forbidden disk into a ToolchainError; other errors pass."""
        try:
            yield
        except OSError as error:
            if error.errno in _OUT_OF_SPACE:
                raise self._full(error) from error
            if error.errno in _NO_ACCESS and str(error.filename).startswith(str(self.root)):
                raise ToolchainError(
                    f"{self.root} cannot be written: {error.strerror} ({error.filename}). "
                    "Make it writable for this user, or choose another workspace."
                ) from error
            raise

    def _full(self, error: Exception) -> ToolchainError:
        return ToolchainError(
            f"Nothing more can be written: {error}. {self._free_bytes() / 1e6:.1f} MB are free at {self.root}. "
            "Free some space; 'workbench cache prune' deletes results that can be computed again."
        )

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free


# --- the files of one entry ---------------------------------------------------------------------------------------


def _share(file: Path, shared: Path) -> None:
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


def _find_damage(place: Path, *, thorough: bool) -> str | None:
    """What is wrong with an entry, or None: names and sizes always, contents when `thorough`."""
    try:
        entry = read_sealed(place / "entry.json")
        if entry["version"] != _VERSION:
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


def _fingerprints(root: Path) -> dict[str, dict[str, Any]]:
    """Path relative to `root` → sha256 and size_bytes, of every file below it."""
    return {
        file.relative_to(root).as_posix(): {"sha256": file_digest(file), "size_bytes": file.stat().st_size}
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def _stamps_of(place: Path) -> _Stamps:
    """Name, size, time of the last change and inode of each of an entry's files: where they stay, the content does."""
    found = []
    for file in sorted((place / "files").rglob("*")):
        with suppress(FileNotFoundError):
            status = file.stat()
            found.append((str(file), status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(found)


def _last_used(place: Path) -> float:
    try:
        return (place / "entry.json").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size_bytes(place: Path) -> int:
    """Bytes of all files below `place`, of those that are shared its part; 0 when it vanishes while we look."""
    try:
        found = [file.stat() for file in place.rglob("*") if file.is_file()]
        return sum(each.st_size // max(1, each.st_nlink - 1) for each in found)
    except FileNotFoundError:
        return 0


# --- users: a locked file for each, which the kernel frees when its process dies ----------------------------------


def _oldest_user(users: Path) -> float:
    """When the longest running user of the store opened it; files of dead users are removed on the way."""
    oldest = float("inf")
    for path in users.iterdir():
        try:
            opened = path.stat().st_mtime
            with lock_file(path, remove=True) as dead:
                if not dead.held:
                    oldest = min(oldest, opened)
        except FileNotFoundError:
            continue  # closed while we looked
    return oldest


def open_store(workspace: Path, shared: str | None = None) -> closing[Store]:
    """The store of a workspace, until the block ends.

    Args:
        shared: folder or URL of what several machines share; None for what the environment names, if anything.

    Raises:
        ConfigError: that is no place for a shared store, or its package is not installed.
        ToolchainError: the workspace cannot be written.
    """
    url = shared or os.environ.get(STORE_VARIABLE)
    return closing(Store(workspace / ".workbench" / "store", shared=SharedStore(url) if url else None))
