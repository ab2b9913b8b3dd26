"""Which emulator this is: a digest of the source that decides what it does and computes."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from workbench.values.system.source_closure import closure_digest

NAME = "int8-workbench"
CANN = "8.5.0"
"""The release that is emulated."""
PACED = "CANN_EMULATOR_PACED"


@functools.cache
def source_digest() -> str:
    """12 hex digits over the emulator's modules, what they import of the workbench, and the device's parameters."""
    return closure_digest("workbench.cann_emulator")[:12]


def emulator() -> str:
    """What compiled models, the module acl and npu-smi say of themselves: `int8-workbench 0123456789ab`.

    With a refitted time model (CANN_EMULATOR_DEVICE_DATA) ` fit 01234567` follows: its times are others, and what
    was kept of the former ones must not be taken for them. With CANN_EMULATOR_PACED ` paced` does: outputs are zeros.
    """
    paced = " paced, most outputs are zeros" if os.environ.get(PACED) else ""
    fitted = os.environ.get("CANN_EMULATOR_DEVICE_DATA")
    if not fitted:
        return f"{NAME} {source_digest()}{paced}"
    try:
        content = Path(fitted).read_bytes()
    except OSError:
        content = fitted.encode()  # whoever loads it says what is wrong
    return f"{NAME} {source_digest()} fit {hashlib.sha256(content).hexdigest()[:8]}{paced}"
