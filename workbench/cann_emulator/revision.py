"""Which emulator this is: a digest of the source that decides what it does and computes."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_SOURCES = ("cann_emulator", "quantization", "graph.py")


@functools.cache
def source_digest() -> str:
    """12 hex digits over every .py and .yaml file of the emulator and of the arithmetic it borrows."""
    digest = hashlib.sha256()
    for place in _SOURCES:
        root = _PACKAGE / place
        files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.suffix in (".py", ".yaml"))
        for file in files:
            digest.update(file.relative_to(_PACKAGE).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def emulator() -> str:
    """What version files, compiled models and the module acl say of themselves: `int8-workbench 0123456789ab`."""
    return f"int8-workbench {source_digest()}"
