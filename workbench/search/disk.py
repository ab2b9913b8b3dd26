"""A disk that cannot be written is the machine's fault, and said so."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from workbench.values.errors import ToolchainError


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Translate a disk that cannot be written into the machine's fault; everything written before is kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            raise
        free_mb = shutil.disk_usage(folder).free / 1e6
        raise ToolchainError(
            f"{folder} cannot be written: {error.strerror} ({free_mb:.1f} MB free). What was measured is kept: make "
            "room (`workbench cache --prune`) and run the same command again."
        ) from error
