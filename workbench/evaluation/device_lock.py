"""The device held by one process at a time, for as long as anything is timed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from workbench.values.errors import ToolchainError
from workbench.values.system.files import lock_file

_SOMEBODY = "another process"


@contextlib.contextmanager
def device_lock(path: Path, *, wait_s: float, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the device alone: two sweeps that time at once measure each other.

    The kernel drops the lock with its process, kill -9 included, so a file left behind locks nobody out. The file
    names its last holder, for the message.

    Args:
        report: told once, with the holder, when there is someone to wait for.

    Raises:
        ToolchainError: still held after `wait_s`, or the lock file cannot be opened.
    """
    owner = f"process {os.getpid()} ({' '.join(sys.argv)[:200]})"
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(
                lock_file(
                    path,
                    wait_s=wait_s,
                    owner=owner,
                    waiting=lambda holder: report(f"waiting for the device, in use by {holder or _SOMEBODY}"),
                )
            )
        except OSError as error:
            raise ToolchainError(f"{path}: the device's lock file cannot be opened: {error}.") from error
        if not lock.held:
            raise ToolchainError(
                f"{path}: the device is still in use by {lock.holder or _SOMEBODY} after {wait_s:g} s. "
                "Wait for it or stop it."
            )
        yield
