"""A digest is not computed again as long as a file is what it was, and is where it is not."""

import hashlib
import os
from pathlib import Path

import pytest

from workbench.graph import digests
from workbench.graph.digests import digest_of


def found(path: Path) -> str:
    with path.open("rb") as stream:
        return digest_of(stream).hexdigest()


def test_a_file_is_read_again_once_it_may_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "FROM_BYTES", 0)  # a small file is treated as a large one
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    assert found(path) == hashlib.sha256(b"one").hexdigest()
    path.write_bytes(b"two")  # within the same tick of the clock, perhaps
    assert found(path) == hashlib.sha256(b"two").hexdigest()

    monkeypatch.setattr(digests, "_SETTLED_NS", -(10**12))  # as if both had been written long ago
    with path.open("rb") as stream:
        digest_of(stream).update(b"more")  # which changes nothing of what is known
    assert found(path) == hashlib.sha256(b"two").hexdigest()
    size_and_times = path.stat()
    path.write_bytes(b"six")
    os.utime(path, ns=(size_and_times.st_atime_ns, size_and_times.st_mtime_ns))  # only the kernel's own time tells
    assert found(path) == hashlib.sha256(b"six").hexdigest()
