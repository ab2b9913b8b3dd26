"""Temporary folders that go away in every case: with their block, or, after a kill -9, with the next start.

with scratch_folder("load") as folder:                   # <TMPDIR>/workbench-<uid>/load-….scratch
with scratch_folder("new", inside=store) as folder:      # on the disk of what is renamed out of it

A folder is locked by its owner for as long as it lives, and the kernel drops the lock with the process. So whoever
makes the next one tells those of the dead from those in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from workbench.values.errors import ToolchainError
from workbench.values.system.files import take

_SUFFIX = ".scratch"
_PATIENCE_S = 5.0
_TRIES = 5
_ours: set[Path] = set()
"""Scratch folders of this process, which hold their own locks: nothing inside them is anybody else's to remove."""


@contextlib.contextmanager
def scratch_folder(name: str, *, inside: Path | None = None) -> Iterator[Path]:
    """A new empty folder for this user alone; gone when the block ends, whatever of it is left then.

    Args:
        name: of its purpose; letters, digits, `-` and `_`.
        inside: an existing folder to make it in; a room of this user's in the temporary folder when None.

    Raises:
        ToolchainError: the room is somebody else's.
        OSError: nothing can be made there.
    """
    room = _own_room() if inside is None else inside.resolve()
    left: list[tuple[Path, int]] = []
    with contextlib.nullcontext(False) if room in _ours else _locked(room, _PATIENCE_S) as alone:
        left = _abandoned(room) if alone else []
        folder, held = _made(room, name + "-" if inside is None else f".{name}-")
    _ours.add(folder)
    try:
        _remove(left)
        yield folder
    finally:
        _ours.discard(folder)
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def _made(room: Path, prefix: str) -> tuple[Path, int | None]:
    """A new folder and its lock. Where the room could not be held, another process may take the folder for abandoned
    before it is locked, and remove it: then it is made again."""
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=room))
        held = _lock(folder)
        if folder.is_dir():
            return folder, held
        if held is not None:
            os.close(held)
    raise ToolchainError(f"{room}: another process removes every folder that is made there. Set TMPDIR to another.")


def remove_abandoned() -> None:
    """Remove what commands that were killed have left in this user's room."""
    room = Path(tempfile.gettempdir()) / f"workbench-{os.getuid()}"
    with contextlib.suppress(OSError, ToolchainError):  # nothing there, or nothing of ours
        if _is_ours(room):
            with _locked(room, 0.0) as alone:
                left = _abandoned(room) if alone else []
            _remove(left)


def _own_room() -> Path:
    """The room in the temporary folder, which others may write into as well: it must be ours, and no link."""
    room = Path(tempfile.gettempdir()).resolve() / f"workbench-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        room.mkdir(mode=0o700)
    if not _is_ours(room):
        raise ToolchainError(f"{room} is no folder of this user's own. Remove it, or set TMPDIR to another folder.")
    return room


def _is_ours(room: Path) -> bool:
    found = room.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


@contextlib.contextmanager
def _locked(room: Path, patience_s: float) -> Iterator[bool]:
    """Hold the room, so that no folder in it is seen between its making and its locking.

    Yields:
        Whether it is held; some network disks lock no folders, and nothing is removed there.
    """
    descriptor = os.open(room, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            held = take(descriptor, time.monotonic() + patience_s)
        except OSError:
            held = False
        yield held
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None where another process has it, or folders cannot be locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _abandoned(room: Path) -> list[tuple[Path, int]]:
    """Folders whose owner is dead, locked by us now."""
    found = []
    for path in sorted(room.glob(f"*-*{_SUFFIX}")):
        if path.is_dir() and not path.is_symlink() and (descriptor := _lock(path)) is not None:
            found.append((path, descriptor))
    return found


def _remove(left: list[tuple[Path, int]]) -> None:
    for path, descriptor in left:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)
