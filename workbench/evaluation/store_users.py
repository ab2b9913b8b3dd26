"""Who has the store open: a locked file for each, which the kernel frees when its process dies."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from workbench.values.system.files import lock_file


def announce_user(users: Path) -> Callable[[], None]:
    """Leave a locked file that says 'in use since now' for as long as this process lives; returns its removal.

    Processes that were killed, or ended without their exit handlers, leave theirs behind; the next one takes them away.
    """
    oldest_user(users)
    stack = ExitStack()
    stack.enter_context(lock_file(users / uuid.uuid4().hex, remove=True))
    return stack.close


def oldest_user(users: Path) -> float:
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
