"""Entries of a shared store: published whole, fetched and held against their digests."""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeVar

from workbench.evaluation.shared_store.listing import (
    MOST_LISTING_BYTES,
    SHA256,
    Listed,
    Listing,
    read,
    written,
)
from workbench.evaluation.shared_store.remote import BLOCK_BYTES, PATIENCE_S, Away, Remote
from workbench.values.documents.sealed_json import Unsound

T = TypeVar("T")
_log = logging.getLogger(__name__)

STORE_VARIABLE = "WORKBENCH_STORE"
"""Names the shared store where no option does: a folder or a URL."""
Fetched = Literal["there", "absent", "damaged"]
_PAUSES_S = (5.0, 15.0, 60.0, 300.0)
"""How long nothing is asked of a store that was away, the first time, the second and so on."""

_LEAST_BYTES_PER_S = 1 << 18
"""A store that gives less is taken as away: what it holds is computed sooner."""

LARGE_BYTES = 1 << 20
"""From here on sending a file keeps a processor busy for more than some milliseconds."""


def open_shared_store(
    url: str, *, report: Callable[[str], None] = _log.warning, patience_s: float = PATIENCE_S
) -> SharedStore:
    """The store at a folder, `file:///folder`, `s3://bucket/prefix` or, within one process, `memory://name`.

    Nothing is asked of it yet: whether it is there shows when it is needed (`SharedStore.look`). Credentials and
    endpoints are taken from the environment, as s3fs and botocore read them.

    Args:
        report: receives a sentence when the store goes away or comes back, or holds something damaged.
        patience_s: what one call may take.

    Raises:
        ConfigError: the URL is of another kind, or its package is not installed.
    """
    return SharedStore(Remote(url, patience_s=patience_s), report=report)


class SharedStore:
    """What several machines have computed. Safe to use from several threads.

    Attributes:
        url: without anything secret.
    """

    def __init__(self, remote: Remote, *, report: Callable[[str], None]) -> None:
        self.url, self.remote, self._report = remote.url, remote, report
        self._lock = threading.Lock()
        self._away_since_tries, self._ask_again = 0, 0.0

    def look(self) -> None:
        """Ask it for something that is not there.

        Raises:
            Away: it does not answer, or refuses.
        """
        self.remote.size("v1/entries/none")

    def asks(self) -> bool:
        """Whether it is asked now: not for a while after it was away."""
        return time.monotonic() >= self._ask_again

    def fetch(self, kind: str, digest: str, to: Path) -> Fetched:
        """Copy the files of an entry into an empty folder; unless 'there' is answered, what lies in it is nothing.

        Every file is held against its sha256. What does not match, and a store that is away, is reported and taken as
        not there.

        Raises:
            OSError: this machine's disk cannot be written.
        """
        if not self.asks():
            return "absent"
        try:
            listing = self.listing(kind, digest)
            if listing is not None and not self._fits(listing, to):
                return "absent"
            if listing is not None:
                self.copy(listing, to)
        except Away as away:
            self._is_away(away)
            return "absent"
        except Unsound as damage:
            self._report(
                f"{self.url}: {kind}/{digest[:12]} is damaged and not used ({damage}). It is computed here and "
                "published anew."
            )
            return "damaged"
        self._answered()
        return "absent" if listing is None else "there"

    def listing(self, kind: str, digest: str) -> dict[str, Listed] | None:
        """The files of an entry; None where there is none.

        Raises:
            Away: it does not answer, or refuses.
            Unsound: what is there is not what was published.
        """
        content = self.remote.read(entry_at(kind, digest), most=MOST_LISTING_BYTES)
        if content is None:
            return None
        try:
            return read(content, kind, digest)
        except Unsound as damage:
            raise Unsound(f"its listing {damage}") from damage

    def copy(self, listing: Listing, to: Path) -> None:
        """Copy files into an empty folder, each held against its sha256.

        Raises:
            Away: it does not answer, or refuses.
            Unsound: one is not what is listed.
            OSError: this machine's disk cannot be written.
        """
        for name, one in listing.items():
            file = to / name
            file.parent.mkdir(parents=True, exist_ok=True)
            self._copy(name, one, file)

    def publish(
        self,
        kind: str,
        digest: str,
        folder: Path,
        listing: Listing,
        *,
        anew: bool = False,
        before_block: Callable[[], None] = lambda: None,
    ) -> None:
        """Put an entry there, unless it is there; its files first, then the listing, which makes it visible.

        Args:
            anew: write every file, because what is there was found damaged.
            before_block: called before each block of a large file is sent; may wait.

        Raises:
            Away: it does not answer, or refuses.
            Unsound: a file in `folder` is not what `listing` says; nothing is visible.
        """
        if not anew and self._sound(kind, digest):
            return
        relied_on: list[tuple[str, Listed]] = []
        for name, one in listing.items():
            if not anew and self.remote.size(file_at(one.sha256)) == one.size_bytes:
                relied_on.append((name, one))
            else:
                self._send(folder / name, one, before_block)
        content = written(kind, digest, listing)
        self.remote.write(entry_at(kind, digest), iter((content,)), len(content))
        for name, one in relied_on:  # somebody may have cleaned between our look and our listing
            if self.remote.size(file_at(one.sha256)) != one.size_bytes:
                self._send(folder / name, one, before_block)

    def _sound(self, kind: str, digest: str) -> bool:
        try:
            return self.listing(kind, digest) is not None
        except Unsound:
            return False

    def _fits(self, listing: Listing, to: Path) -> bool:
        needed, free = sum(one.size_bytes for one in listing.values()), shutil.disk_usage(to).free
        if needed > free:
            self._report(f"{self.url}: an entry of {needed / 1e6:.1f} MB is not fetched, {free / 1e6:.1f} MB are free.")
        return needed <= free

    def _copy(self, name: str, one: Listed, to: Path) -> None:
        hasher, size = hashlib.sha256(), 0
        end = time.monotonic() + self.remote.patience_s + one.size_bytes / _LEAST_BYTES_PER_S
        if self.remote.size(file_at(one.sha256)) != one.size_bytes:
            raise Unsound(f"{name} is missing, or has another size")
        with to.open("xb") as file:
            for block in self.remote.blocks(file_at(one.sha256), one.size_bytes):
                size += len(block)
                hasher.update(block)
                if size <= one.size_bytes:
                    file.write(block)
                if time.monotonic() > end:
                    raise Away(f"{size} bytes came where {one.size_bytes} should have")
        if size != one.size_bytes or hasher.hexdigest() != one.sha256:
            raise Unsound(f"{name} has another sha256")

    def _send(self, file: Path, one: Listed, before_block: Callable[[], None]) -> None:
        def blocks() -> Iterator[bytes]:
            hasher = hashlib.sha256()
            with file.open("rb") as stream:
                while block := stream.read(BLOCK_BYTES):
                    if one.size_bytes >= LARGE_BYTES:
                        before_block()
                    hasher.update(block)
                    yield block
            if hasher.hexdigest() != one.sha256:
                raise Unsound(f"{file.name} has another sha256")

        self.remote.write(file_at(one.sha256), blocks(), one.size_bytes)

    def _is_away(self, away: Away) -> None:
        with self._lock:
            first, pause = not self._away_since_tries, _PAUSES_S[min(self._away_since_tries, len(_PAUSES_S) - 1)]
            self._away_since_tries += 1
            self._ask_again = time.monotonic() + pause
        if first:
            self._report(f"{self.url} is away ({away}). What it may hold is computed here until it answers again.")

    def _answered(self) -> None:
        with self._lock:
            back, self._away_since_tries = self._away_since_tries > 0, 0
        if back:
            self._report(f"{self.url} answers again.")


def entry_at(kind: str, digest: str) -> str:
    """Where the listing of an entry lies."""
    assert SHA256.fullmatch(digest)
    return f"v1/entries/{kind}/{digest[:2]}/{digest}.json"


def file_at(sha256: str) -> str:
    """Where content lies."""
    return f"v1/files/{sha256[:2]}/{sha256}"
