"""Which emulator this is: a digest of the source that decides what it does and computes."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

NAME = "int8-workbench"

_PACKAGE = Path(__file__).parents[1]
_SOURCES = ("cann_emulator", "quantization", "graph.py", "quantizable.py")


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
    """What compiled models, the module acl and npu-smi say of themselves: `int8-workbench 0123456789ab`.

    With a refitted time model (CANN_EMULATOR_DEVICE_DATA) ` fit 01234567` follows: its times are others, and what
    was kept of the former ones must not be taken for them.
    """
    fitted = os.environ.get("CANN_EMULATOR_DEVICE_DATA")
    if not fitted:
        return f"{NAME} {source_digest()}"
    try:
        content = Path(fitted).read_bytes()
    except OSError:
        content = fitted.encode()  # whoever loads it says what is wrong
    return f"{NAME} {source_digest()} fit {hashlib.sha256(content).hexdigest()[:8]}"
