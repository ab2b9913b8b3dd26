"""Where dump files lie and what they are called (pyacl.md §5.6; accuracy guide 8.5.0, dump of offline models).

    <dump_path>/<time>/<device>/<model>/<model id>/<data index>/<op type>.<op name>.<task>.<stream>.<time stamp>

A point, slash, backslash or blank in a type or name becomes an underscore. A name that the file system cannot take
becomes digits, and mapping.csv beside it says which.
"""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.cann_emulator.acl.models import LoadedModel

MAPPING = "mapping.csv"
EMULATED = "emulated.txt"
_LONGEST_BYTES = 255
_log = logging.getLogger("acl")


def folder_of(root: Path, stamp: str, entry: LoadedModel) -> Path:
    """The folder of an execution, made when missing; a note says whose dump it is."""
    dated = root / stamp
    index = str(entry.executions - 1)
    folder = dated / str(entry.context.device.index) / plain(entry.name) / str(entry.id) / index
    folder.mkdir(parents=True, exist_ok=True)
    note = dated / EMULATED
    if not note.exists():
        note.write_text("Emulated: computed on the host, nothing ran on a device.\n", encoding="utf-8")
    return folder


def time_folder() -> str:
    return time.strftime("%Y%m%d%H%M%S")


def plain(name: str) -> str:
    return re.sub(r"[./\\ ]", "_", name).replace("\0", "_") or "_"


def file_name(op_type: str, op_name: str, *, task: int, stream: int, stamp: int) -> str:
    return f"{plain(op_type)}.{plain(op_name)}.{task}.{stream}.{stamp}"


def write(folder: Path, name: str, content: bytes, *, stamp: int) -> Path:
    """Under a temporary name first; a long name by mapping.csv."""
    if len(name.encode()) > _LONGEST_BYTES:
        short = f"{stamp:032d}"
        with (folder / MAPPING).open("a", encoding="utf-8") as lines:
            lines.write(f"{short},{name}\n")
        name = short
    temporary = folder / f".{stamp}"
    temporary.write_bytes(content)
    return temporary.replace(folder / name)


def told(error: OSError, what: str) -> None:
    """A dump that cannot be written fails no execution [inferred]: the log says so."""
    _log.error("%s cannot be written: %s", what, error)
