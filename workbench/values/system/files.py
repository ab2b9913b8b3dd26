"""Files that are there whole or not at all, and locks that die with their holder.

with temporary_beside(path) as draft:      # for whoever writes a file by its name
    draft.write_bytes(data)                # `path` has the new content when the block ends, the old one before
write_bytes_atomically(path, data)         # also _text_ and _json_
with lock_file(path) as lock:
    if lock.held: ...
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.values.documents.canonical import canonical_json
from workbench.values.errors import ConfigError, ToolchainError

_POLL_S = 0.02
_NAME_CHARACTERS = 50
"""Of a file's name that its temporary neighbour repeats: names end at 255 bytes, and a character may take four."""


@contextlib.contextmanager
def temporary_beside(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """A path in the folder of `path`; what lies there when the block ends gets its name, by one rename.

    The temporary name is hidden, ends in `.tmp`, and no other process or thread has it. After an exception it is gone
    and `path` is as it was; so too where nothing was written. After a kill -9 it stays until somebody writes `path`
    again.

    Args:
        durable: flush the content to the disk before the rename, so that a power cut cannot leave an empty file under
            a name that stands for a whole one. Off where a file is cheap to make again.

    Raises:
        OSError: as the disk says it.
    """
    draft = path.with_name(f".{path.name[:_NAME_CHARACTERS]}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    _remove_drafts_of_the_dead(path)
    try:
        yield draft
        if durable:
            flush(draft)
        draft.replace(path)
        if durable:
            flush(path.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _remove_drafts_of_the_dead(path: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(path.name[:_NAME_CHARACTERS])}\.(\d+)-[0-9a-f]{{8}}\.tmp")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            named = pattern.fullmatch(entry.name)
            if named is not None and not Path(f"/proc/{named[1]}").exists() and Path("/proc/self").exists():
                Path(entry.path).unlink(missing_ok=True)


@contextlib.contextmanager
def writing(path: Path, hint: str = "Free space or choose another disk.") -> Iterator[None]:
    """Raises ToolchainError where the disk fails within the block, with what to do."""
    try:
        yield
    except OSError as error:
        raise ToolchainError(f"{path} cannot be written: {error.strerror or error}. {hint}") from error


def write_bytes_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, and durably.

    Raises:
        ToolchainError: the disk cannot be written; what stood there before stands.
    """
    with writing(path), temporary_beside(path) as draft:
        draft.write_bytes(data)


def write_text_atomically(path: Path, text: str) -> None:
    """`write_bytes_atomically` of UTF-8 text."""
    write_bytes_atomically(path, text.encode())


def write_json_atomically(path: Path, value: object) -> None:
    """`write_text_atomically` of canonical JSON with a newline behind it."""
    write_text_atomically(path, canonical_json(value) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Attributes:
    held: whether this process holds the lock.
    holder: what the one who holds it wrote about himself, '' where he wrote nothing; '' when `held`.
    """

    held: bool
    holder: str = ""


@contextlib.contextmanager
def lock_file(
    path: Path,
    *,
    wait: bool = False,
    wait_s: float = 0.0,
    owner: str = "",
    remove: bool = False,
    waiting: Callable[[str], None] | None = None,
) -> Iterator[Lock]:
    """Hold an exclusive flock on a file; the kernel frees it when the process dies, however it dies.

    So a file left behind locks nobody out. Locks are between processes, and between two opens in one process, of one
    machine; network file systems differ.

    Args:
        wait: until it is free, without end; the same as an infinite `wait_s`.
        wait_s: how long to wait for it; 0 looks once.
        owner: written into the file for whoever finds it taken.
        remove: delete the file on release, for locks with many names; a file that is gone is then no lock.
        waiting: told once, with the holder's words, when there is someone to wait for.

    Yields:
        Whether it is held; where it is not, whoever holds it.

    Raises:
        OSError: the file cannot be opened.
    """
    deadline = math.inf if wait else time.monotonic() + wait_s
    pid = os.getpid()
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if not _take(descriptor, deadline, waiting):
                yield Lock(held=False, holder=_words(descriptor))
                return
            if os.fstat(descriptor).st_nlink == 0:
                continue  # whoever held it removed it: the name belongs to another file
            if owner:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, owner.encode(), 0)
            try:
                yield Lock(held=True)
            finally:
                if remove and os.getpid() == pid:  # a forked child must not let go for its parent
                    path.unlink(missing_ok=True)
            return
        finally:
            os.close(descriptor)


def _take(descriptor: int, deadline: float, waiting: Callable[[str], None] | None) -> bool:
    """Whether a file could be locked until then, by a monotonic clock.

    flock has no timeout of its own, and an alarm signal would belong to the whole process, so this polls.
    """
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        else:
            return True
        if waiting is not None and not told:
            waiting(_words(descriptor))
            told = True
        if deadline == math.inf:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return True
        time.sleep(_POLL_S)


def _words(descriptor: int) -> str:
    return os.pread(descriptor, 1000, 0).decode(errors="replace").strip()


def check_apart(to: Path, *inputs: Path, key: str) -> None:
    """Raises ConfigError where a folder to write is an input's own, or one of the two lies in the other; links are
    followed."""
    place = to.resolve()
    for folder in inputs:
        held = folder.resolve()
        if place == held or place in held.parents or held in place.parents:
            how = "is" if place == held else "holds" if place in held.parents else "lies in"
            raise ConfigError(f"{how} the input {folder}.", file=to, key=key, hint="Name a folder of its own.")


def flush(path: Path) -> None:
    """fsync one file or folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
