"""Tensor dump and overflow check, as acl.json asks for them, at the boundaries of kernels (pyacl.md §5.5, §5.6).

    <dump_path>/<time>/<device>/<model>/<model id>/<data index>/<op type>.<op name>.<task>.<stream>.<time stamp>

A point, slash, backslash or blank in a type or name becomes an underscore. A name that the file system cannot take
becomes digits, and mapping.csv beside it says which (accuracy guide 8.5.0, dump of offline models).

Fused operators have one file, with what the kernel reads and writes; what stays inside is nowhere. Views, constants
and single operators have none. An input of the model is dumped as its Data operator where a reader of it is.

The overflow check (`dump_debug: on`) writes only when something overflowed: for each operator that did there are two
files, its inputs and outputs under its own name, and Opdebug.Node_OpDebug.<task>.<stream>.<time stamp>. What counts: an
output of a kernel, or a half inside of it, that is not finite (an infinity, or what became of one) although all its
inputs are. A device also sees other overflows inside of a kernel, so this tells less. That 910B3 needs no code for it
in the model (--status_check) is [inferred] from atc.md §2.5, which has that flag for other chips.
"""

from __future__ import annotations

import logging
import re
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from workbench.cann_emulator.acl.config import TensorDump
from workbench.cann_emulator.acl.models import LoadedModel
from workbench.cann_emulator.dump_file import Values, dump_bytes
from workbench.cann_emulator.kernel_values import KernelValues, in_dtype
from workbench.cann_emulator.om import Kernel
from workbench.cann_emulator.revision import emulator

if TYPE_CHECKING:
    from workbench.cann_emulator.acl.models import LoadedModel

Array = npt.NDArray[Any]


@dataclass(slots=True)
class _Dump:
    """Attributes:
    stamp: folder of this configuration, named when its first file is written.
    """

    request: TensorDump | None = None
    stamp: str = ""


DUMP = _Dump()


def configure(request: TensorDump | None) -> None:
    DUMP.request, DUMP.stamp = request, ""


def on(entry: LoadedModel) -> bool:
    """Whether something of this execution is dumped."""
    return DUMP.request is not None and bool(_entries(DUMP.request, entry))


def executed(
    entry: LoadedModel, gear: int, stream: int, feeds: Mapping[str, Array], kernels: Sequence[KernelValues]
) -> None:
    """Write what is asked for of an execution that is over and counted."""
    request = DUMP.request
    assert request is not None  # `on` was asked
    chosen = _chosen(_entries(request, entry), kernels)
    read = _read(entry, gear, [found.kernel for found in chosen])
    data = [_data(entry, name, array, task) for task, (name, array) in enumerate(feeds.items()) if name in read]
    stamp = time.time_ns() // 1000
    try:
        DUMP.stamp = DUMP.stamp or time_folder()
        folder = folder_of(request.path, DUMP.stamp, entry)
        for at, found in enumerate([*data, *chosen], stamp):
            inputs = found.inputs if request.inputs else ()
            outputs = found.outputs if request.outputs else ()
            if inputs or outputs:
                kernel = found.kernel
                name = file_name(kernel.op_type, kernel.name, task=found.task, stream=stream, stamp=at)
                content = dump_bytes(kernel.name, inputs, outputs, time_us=at, emulator=emulator())
                write(folder, name, content, stamp=at)
    except OSError as error:
        _tell(f"the dump of {entry.name} cannot be written: {error}")


def _entries(request: TensorDump, entry: LoadedModel) -> list[Mapping[str, Any]]:
    """Those of dump_list about this model; a file's name counts before the model's own (aclInit, 8.0 RC2)."""
    named = [e for e in request.entries if e.get("model_name") == entry.name]
    named = named or [e for e in request.entries if e.get("model_name") == entry.model.name]
    return [*named, *(e for e in request.entries if "model_name" not in e)]


def _chosen(entries: Iterable[Mapping[str, Any]], kernels: Sequence[KernelValues]) -> list[KernelValues]:
    """Kernels that an entry lists, by their own name or that of a node in them."""
    layers = [entry.get("layer") for entry in entries]
    listed = set(map(str, (name for names in layers for name in names or ())))
    return [v for v in kernels if None in layers or listed & {v.kernel.name, *v.kernel.nodes}]


def _read(entry: LoadedModel, gear: int, kernels: Iterable[Kernel]) -> set[str]:
    """Tensors that kernels read, and those that they see through views."""
    views = {
        t.name: kernel for kernel in entry.model.gears[gear].kernels if kernel.core == "none" for t in kernel.outputs
    }
    waiting = [tensor.name for kernel in kernels for tensor in kernel.inputs]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [tensor.name for tensor in views[name].inputs] if name in views else []
    return found


def _data(entry: LoadedModel, name: str, array: Array, task: int) -> KernelValues:
    """An input of the model, as the operator Data that stands for it."""
    tensor = next(tensor for tensor in entry.model.inputs if tensor.name == name)
    kernel = Kernel(
        name=name,
        op_type="Data",
        core="none",
        nodes=(),
        dtype=tensor.dtype,
        inputs=(),
        outputs=(replace(tensor, shape=array.shape),),
    )
    values = Values(array=in_dtype(array, tensor.dtype), dtype=tensor.dtype, format=tensor.format, origin=(name, 0))
    return KernelValues(kernel=kernel, task=task, inputs=(values,), outputs=(values,))


# --- files ---------------------------------------------------------------------------------------------------------

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


def write(folder: Path, name: str, content: bytes, *, stamp: int) -> None:
    """Under a temporary name first; a long name by mapping.csv."""
    if len(name.encode()) > _LONGEST_BYTES:
        short = f"{stamp:032d}"
        with (folder / MAPPING).open("a", encoding="utf-8") as lines:
            lines.write(f"{short},{name}\n")
        name = short
    temporary = folder / f".{stamp}"
    temporary.write_bytes(content)
    temporary.replace(folder / name)


def _tell(trouble: str) -> None:
    """A dump that cannot be written fails no execution [inferred]: log and stderr say so."""
    _log.error("%s", trouble)
    print(f"[emulated acl] {trouble}", file=sys.stderr, flush=True)


# --- the overflow check ---

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


def configure_overflow(folder: Path | None) -> None:
    _CHECK.folder, _CHECK.stamp = folder, ""


def checks_overflow() -> bool:
    return _CHECK.folder is not None


def watch(entry: LoadedModel, stream: int, kernels: Sequence[KernelValues]) -> None:
    """Write a status file for each kernel that overflowed."""
    if _CHECK.folder is None:
        return
    found = [v for v in kernels if _all_finite(v.inputs) and not _all_finite((*v.outputs, *v.inside))]
    if not found:
        return
    stamp = time.time_ns() // 1000
    try:
        _CHECK.stamp = _CHECK.stamp or time_folder()
        folder = folder_of(_CHECK.folder, _CHECK.stamp, entry)
        for count, values in enumerate(found):
            at, kernel = stamp + 2 * count, values.kernel
            name = file_name(kernel.op_type, kernel.name, task=values.task, stream=stream, stamp=at)
            content = dump_bytes(kernel.name, values.inputs, values.outputs, time_us=at, emulator=emulator())
            write(folder, name, content, stamp=at)
            # the number in this name is not the operator's task (accuracy guide, overflow)
            name = file_name("Opdebug", "Node_OpDebug", task=len(kernels) + 1, stream=stream, stamp=at + 1)
            status = Values(array=_status(entry, values, stream), dtype="uint8")
            content = dump_bytes("Node_OpDebug", (), (status,), time_us=at + 1, emulator=emulator())
            write(folder, name, content, stamp=at + 1)
    except OSError as error:
        _tell(f"overflows of {entry.name} cannot be written: {error}")


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
