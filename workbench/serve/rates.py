"""How often each key may still ask: a bucket that fills with its rate, up to one second's worth.

Buckets are kept in a file without a name, which several front ends share: each entry the digest of a key's name, what
is left, and since when. Times are of a clock that is the machine's (`time.perf_counter` on Linux).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
import tempfile
from collections.abc import Iterator

_ENTRY = struct.Struct("<8sdd")
_ENTRIES = 4096
"""Several times as many as a file of keys may have: keys that went stay in the table."""
SIZE = _ENTRIES * _ENTRY.size
_NOBODY = bytes(8)


class Rates:
    """Of all processes that have `descriptor` open, a file of SIZE zeros; without one of this process. The kernel
    unlocks for one that is killed."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._file, self._table = descriptor, mmap.mmap(-1 if descriptor is None else descriptor, SIZE)

    def take(self, name: str, rate_per_s: float, now_s: float) -> float:
        """0 if this key may ask now, which is counted; else how many requests it lacks, below 1."""
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        most = max(1.0, rate_per_s)
        with self._locked():
            place = int.from_bytes(digest[:4], "little") % _ENTRIES
            for _ in range(_ENTRIES):
                owner, left, since_s = _ENTRY.unpack_from(self._table, place * _ENTRY.size)
                if owner in (digest, _NOBODY):
                    break
                place = (place + 1) % _ENTRIES
            left = most if owner == _NOBODY else min(most, left + max(0.0, now_s - since_s) * rate_per_s)
            lacks = max(0.0, 1.0 - left)
            _ENTRY.pack_into(self._table, place * _ENTRY.size, digest, left if lacks else left - 1.0, now_s)
        return lacks

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if self._file is None:
            yield
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def shared_file() -> int:
    """A descriptor for `Rates`."""
    if hasattr(os, "memfd_create"):  # in containers nothing may be writable
        descriptor = os.memfd_create("rates")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, SIZE)
    return descriptor
