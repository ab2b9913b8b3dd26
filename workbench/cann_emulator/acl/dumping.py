"""Tensor dump: what acl.json or `acl.mdl.set_dump` asked for.

The emulator checks the configuration and keeps it, with the vendor's codes; it writes no dump files, as it executes
fused kernels whose inner tensors exist nowhere, and says so on stderr, so that nobody waits for them. Overflow files
are another matter: see overflow.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class _Dump:
    """Attributes:
    begun: between `init_dump` and `finalize_dump`.
    """

    path: Path | None = None
    entries: tuple[Mapping[str, Any], ...] = ()
    begun: bool = False


DUMP = _Dump()


def configure(path: Path | None, entries: Sequence[Mapping[str, Any]], begun: bool = False) -> None:
    if path is not None:
        print(
            f"[emulated acl] tensors are not dumped here: nothing will appear in {path}. To compare layers use "
            "`workbench compare`; the overflow check (dump_debug) works",
            file=sys.stderr,
            flush=True,
        )
    DUMP.path, DUMP.entries, DUMP.begun = path, tuple(entries), begun
