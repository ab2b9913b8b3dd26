"""What this machine owes a shared store: published in the background, retried, remembered on disk until it is done.

    <root>/.unpublished/<kind>-<digest>         one empty file for each entry that is here and may not be there yet;
                                                'anew' in it where what is there was found damaged

So a store that refuses writes costs nothing but time: entries stay where they are, and whoever opens this root next,
with a shared store, goes on. No large file is sent while something is timed on this machine, for half a minute of each
entry at most.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from workbench.evaluation.shared_store.remote import Away
from workbench.evaluation.shared_store.shared import Listed, SharedStore
from workbench.values.documents.sealed_json import Unsound, read_sealed
from workbench.values.system.files import lock_file

_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""After the first, second, … refusal in a row: a store that is full or away says nothing when it is well again."""
_LOOK_S = 60.0
"""How often what other processes have left is looked for."""
_QUIET_S = 30.0
_QUIET_LOOK_S = 0.2
_CLOSE_S = 60.0
_ANEW = "anew"
_log = logging.getLogger(__name__)

Entry = tuple[str, str]
"""Kind and digest."""


class Publisher:
    """Publishes entries of one local store. A thread does it, from the first entry on until `close`."""

    def __init__(self, shared: SharedStore, root: Path, *, report: Callable[[str], None] = _log.warning) -> None:
        self._shared, self._root, self._report, self._pauses_s = shared, root, report, _PAUSES_S
        self._folder = root / ".unpublished"
        self._seen: set[Entry] = set()
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._closing = False
        self._refused = 0
        self._thread: threading.Thread | None = None
        if any(self._folder.iterdir()):
            self._start()

    def owe(self, kind: str, digest: str, *, anew: bool = False) -> None:
        """An entry was built here; it is published even if this process ends now.

        Raises:
            OSError: the disk cannot be written.
        """
        marker = self._folder / f"{kind}-{digest}"
        marker.write_text(_ANEW, encoding="utf-8") if anew else marker.touch()
        self._seen.add((kind, digest))
        self._start()

    def offer(self, kind: str, digest: str) -> None:
        """An entry is here, from whenever; publish it where it is not there yet. Costs nothing the second time."""
        if (kind, digest) not in self._seen:
            self.owe(kind, digest)

    def known(self, kind: str, digest: str) -> None:
        """An entry came from there."""
        self._seen.add((kind, digest))

    def close(self, wait_s: float = _CLOSE_S) -> None:
        """Publish what is left, once and for no longer than that; what is not published stays remembered."""
        if self._thread is None and any(self._folder.iterdir()):
            self._start()  # for a process that was killed over it
        if self._thread is None:
            return
        self._closing = True
        self._wake.set()
        self._thread.join(wait_s)
        if left := sum(1 for _ in self._folder.iterdir()):
            self._report(
                f"{left} results are kept in {self._root} and not yet in {self._shared.url}; the next command in this "
                "workspace that has a shared store publishes them."
            )

    def _start(self) -> None:
        self._wake.set()
        with self._lock:
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            last = self._closing  # before the pass: what is owed until now is in it
            self._wake.clear()
            done = all(self._published(marker) for marker in sorted(self._folder.iterdir()))
            if last:
                return
            if done:
                self._wake.wait(_LOOK_S)
                continue
            end = time.monotonic() + self._pauses_s[min(self._refused, len(self._pauses_s)) - 1]
            while not self._closing and (left := end - time.monotonic()) > 0:  # only the end wakes it
                self._wake.wait(left)
                self._wake.clear()

    def _published(self, marker: Path) -> bool:
        """False where the store refuses an entry."""
        kind, _, digest = marker.name.rpartition("-")
        place = self._root / kind / digest[:2] / digest
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            anew = marker.read_text(encoding="utf-8") == _ANEW
            with lock_file(marker, remove=False) as lock:
                if not lock.held:
                    return True
                try:
                    files = read_sealed(place / "entry.json")["files"]
                    listing = {name: Listed(**one) for name, one in files.items()}
                    self._shared.publish(
                        *(kind, digest, place / "files", listing), anew=anew, before_block=self._until_quiet()
                    )
                except (Unsound, FileNotFoundError) as damage:  # pruned; or damaged, which its next reader finds
                    _log.debug("%s/%s is not published: %s", kind, digest, damage)
                except Away as away:
                    self._refused += 1
                    if self._refused == 1:
                        self._report(
                            f"{self._shared.url} takes no results now ({away}). They are kept in {self._root} and "
                            "published when it does."
                        )
                    return False
                if self._refused:
                    self._refused = 0
                    self._report(f"{self._shared.url} takes results again.")
                marker.unlink(missing_ok=True)
        return True

    def _until_quiet(self) -> Callable[[], None]:
        """Waits while something is timed on this machine; all its calls together no longer than half a minute."""
        left = _QUIET_S

        def wait() -> None:
            nonlocal left
            while left > 0 and not self._closing and _timing(self._root):
                time.sleep(_QUIET_LOOK_S)  # nobody tells when the device is let go
                left -= _QUIET_LOOK_S

        return wait


def _timing(root: Path) -> bool:
    """Whether anybody holds a device's lock, by the kernel's list: trying it would make who times wait for us."""
    try:
        held = {f":{path.stat().st_ino} " for path in (root / ".locks").glob("device*.lock")}
        return any(inode in line for line in Path("/proc/locks").read_text().splitlines() for inode in held)
    except OSError:
        return False
