"""The overflow check (acl.json with `dump_debug: on`): files appear only when something overflowed (pyacl.md §5.6).

For each operator that did there are two, in the folders of `dumping`: its inputs and outputs under its own name, and

    Opdebug.Node_OpDebug.<task>.<stream>.<time stamp>

What counts: an output of a kernel, or a half inside of it, that is not finite (an infinity, or what became of one)
although all its inputs are. A device also sees other overflows inside of a kernel, so this tells less. That 910B3
needs no code for it in the model (--status_check) is [inferred] from atc.md §2.5, which has that flag for other chips.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from workbench.cann_emulator.acl import dumping
from workbench.cann_emulator.dump_file import Values, dump_bytes
from workbench.cann_emulator.kernel_values import KernelValues
from workbench.cann_emulator.revision import emulator

if TYPE_CHECKING:
    from workbench.cann_emulator.acl.models import LoadedModel

FLOAT_TO_HALF = 0x100
FLOATING_POINT = 0x20
STATUS_BYTES = 2048
AI_CORE_INFO, AI_CORE_STATUS = 256, 1024
"""Where these begin; before them are infos of DHA and L2 atomic addition (128 bytes each), and between them (after 256
bytes of info) their statuses (256 bytes each): msaccucmp.py, _save_op_debug_to_file."""


@dataclass(slots=True)
class _Check:
    folder: Path | None = None
    stamp: str = ""


_CHECK = _Check()


def configure(folder: Path | None) -> None:
    _CHECK.folder, _CHECK.stamp = folder, ""


def on() -> bool:
    return _CHECK.folder is not None


def watch(entry: LoadedModel, stream: int, kernels: Sequence[KernelValues]) -> list[Path]:
    """The status files that were written, one for each kernel that overflowed."""
    if _CHECK.folder is None:
        return []
    found = [v for v in kernels if _all_finite(v.inputs) and not _all_finite((*v.outputs, *v.inside))]
    if not found:
        return []
    stamp, written = time.time_ns() // 1000, []
    try:
        _CHECK.stamp = _CHECK.stamp or dumping.time_folder()
        folder = dumping.folder_of(_CHECK.folder, _CHECK.stamp, entry)
        for count, values in enumerate(found):
            at, kernel = stamp + 2 * count, values.kernel
            name = dumping.file_name(kernel.op_type, kernel.name, task=values.task, stream=stream, stamp=at)
            content = dump_bytes(kernel.name, values.inputs, values.outputs, time_us=at, emulator=emulator())
            dumping.write(folder, name, content, stamp=at)
            # the number in this name is not the operator's task (accuracy guide, overflow)
            name = dumping.file_name("Opdebug", "Node_OpDebug", task=len(kernels) + 1, stream=stream, stamp=at + 1)
            status = Values(array=_status(entry, values, stream), dtype="uint8")
            content = dump_bytes("Node_OpDebug", (), (status,), time_us=at + 1, emulator=emulator())
            written.append(dumping.write(folder, name, content, stamp=at + 1))
    except OSError as error:
        dumping.told(error, f"the overflow check of {entry.name}")
        print(f"[emulated acl] overflows of {entry.name} cannot be written: {error}", file=sys.stderr, flush=True)
    return written


def _all_finite(tensors: Iterable[Values]) -> bool:
    return all(_finite(values) for values in tensors)


def _finite(values: Values) -> bool:
    if values.dtype == "bfloat16":
        return not bool(((values.array & np.uint16(0x7F80)) == 0x7F80).any())
    return values.array.dtype.kind != "f" or bool(np.isfinite(values.array).all())


def _status(entry: LoadedModel, values: KernelValues, stream: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """2048 bytes as the device writes them; only the AI Core's part says something here."""
    content = bytearray(STATUS_BYTES)
    struct.pack_into("<6Q", content, AI_CORE_INFO, entry.id, stream, values.task, 0, 0, 0)
    narrow = any(tensor.dtype == "float16" and not _finite(tensor) for tensor in (*values.outputs, *values.inside))
    bits = FLOAT_TO_HALF if narrow else FLOATING_POINT
    struct.pack_into("<3Q", content, AI_CORE_STATUS, 0, 0, bits)
    return np.frombuffer(bytes(content), np.uint8)
