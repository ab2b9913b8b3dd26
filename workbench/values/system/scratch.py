"""Temporary folders that go away in every case: with their block, or, after a kill -9, with a later start.

with scratch_folder("load") as folder:                   # <TMPDIR>/workbench-<uid>/load-….scratch
with scratch_folder("new", inside=store) as folder:      # on the disk of what is renamed out of it

A folder is locked by its owner for as long as it lives, and the kernel drops the lock with the process. So whoever
makes a later one tells those of the dead from those in use.
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

_SUFFIX = ".scratch"
_YOUNG_S = 60.0
"""A folder that nobody holds and that is as young may have been made a moment ago, and be about to be locked."""


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
    _remove_abandoned(room)
    folder = Path(tempfile.mkdtemp(prefix=name + "-" if inside is None else f".{name}-", suffix=_SUFFIX, dir=room))
    held = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def remove_abandoned() -> None:
    """Remove what commands that were killed have left in this user's room."""
    room = Path(tempfile.gettempdir()) / f"workbench-{os.getuid()}"
    with contextlib.suppress(OSError):  # nothing there
        if _is_ours(room):
            _remove_abandoned(room)


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


def _remove_abandoned(room: Path) -> None:
    """Remove the folders whose owner is dead; on network disks that lock no folders, none."""
    for path in room.glob(f"*-*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # whoever held it has removed it
            young = path.lstat().st_mtime > time.time() - _YOUNG_S
            if not young and (descriptor := _lock(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)
