"""How often each key may still ask: a bucket that fills with its rate, up to one second's worth.

One process keeps its buckets itself; several front ends keep them in one file without a name, each entry the digest of
a key's name, what is left, and since when. Times are of a clock that is the machine's (`time.perf_counter` on Linux).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
import tempfile
from collections.abc import Collection, Iterator
from typing import Protocol

_ENTRY = struct.Struct("<8sdd")
_ENTRIES = 4096
"""Several times as many as a file of keys may have: keys that went stay in the table."""
SIZE = _ENTRIES * _ENTRY.size
_NOBODY = bytes(8)


class Rates(Protocol):
    def take(self, name: str, rate_per_s: float, now_s: float) -> float:
        """0 if this key may ask now, which is counted; else how many requests it lacks, below 1."""

    def keep(self, names: Collection[str]) -> None:
        """Forget all others."""


class OwnRates:
    """Of one process."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str, rate_per_s: float, now_s: float) -> float:
        """See `Rates`."""
        lacks, self._buckets[name] = _taken(self._buckets.get(name), rate_per_s, now_s)
        return lacks

    def keep(self, names: Collection[str]) -> None:
        """See `Rates`."""
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if name in names}


class SharedRates:
    """Of all processes that have `descriptor` open, a file of SIZE zeros. The kernel unlocks for one that is killed."""

    def __init__(self, descriptor: int) -> None:
        self._file, self._table = descriptor, mmap.mmap(descriptor, SIZE)

    def take(self, name: str, rate_per_s: float, now_s: float) -> float:
        """See `Rates`."""
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        with self._locked():
            place = int.from_bytes(digest[:4], "little") % _ENTRIES
            for _ in range(_ENTRIES):
                owner, left, since_s = _ENTRY.unpack_from(self._table, place * _ENTRY.size)
                if owner in (digest, _NOBODY):
                    break
                place = (place + 1) % _ENTRIES
            lacks, bucket = _taken(None if owner == _NOBODY else (left, since_s), rate_per_s, now_s)
            _ENTRY.pack_into(self._table, place * _ENTRY.size, digest, *bucket)
        return lacks

    def keep(self, names: Collection[str]) -> None:
        """Nothing: other processes may not have read yet who is to be forgotten."""

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def shared_file() -> int:
    """A descriptor for `SharedRates`."""
    if hasattr(os, "memfd_create"):  # in containers nothing may be writable
        descriptor = os.memfd_create("rates")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, SIZE)
    return descriptor


def _taken(bucket: tuple[float, float] | None, rate_per_s: float, now_s: float) -> tuple[float, tuple[float, float]]:
    """(what it lacks, what is left since now)."""
    most = max(1.0, rate_per_s)
    left, since_s = bucket or (most, now_s)
    left = min(most, left + max(0.0, now_s - since_s) * rate_per_s)
    return (1.0 - left, (left, now_s)) if left < 1.0 else (0.0, (left - 1.0, now_s))
