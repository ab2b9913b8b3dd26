"""An empty database of MLflow's, kept in the user's cache folder: its migrations take seconds, a copy milliseconds.

A kept file's name holds MLflow's version and the digest of its content. Another version makes its own, and a damaged
file is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path

from workbench.values.system.files import temporary_beside


def copy_empty(to: Path) -> bool:
    """Write a kept database to `to`, as if it were made there now; False where none is kept.

    Raises:
        OSError: `to` cannot be written.
    """
    content = _kept()
    if content is None:
        return False
    to.write_bytes(content)
    now = int(time.time() * 1000)
    with contextlib.closing(sqlite3.connect(to)) as connection, connection:
        connection.execute(  # of the experiment Default, which MLflow makes and nobody uses
            "UPDATE experiments SET artifact_location = ?, creation_time = ?, last_update_time = ?",
            (str(to.parent / "0"), now, now),
        )
    return True


def keep_empty(database: Path) -> None:
    """Keep a database that MLflow has just made, where there is a place for it."""
    with contextlib.suppress(OSError):  # a read-only home: the next one takes its seconds again
        content = database.read_bytes()
        place = _folder() / f"{version('mlflow')}-{hashlib.sha256(content).hexdigest()}.db"
        place.parent.mkdir(parents=True, exist_ok=True)
        with temporary_beside(place, durable=False) as draft:
            draft.write_bytes(content)


def _kept() -> bytes | None:
    with contextlib.suppress(OSError):
        for path in sorted(_folder().glob(f"{version('mlflow')}-*.db")):
            content = path.read_bytes()
            if path.stem.endswith(hashlib.sha256(content).hexdigest()):
                return content
    return None


def _folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "workbench" / "mlflow"
