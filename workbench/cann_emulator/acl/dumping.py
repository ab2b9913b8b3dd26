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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.cann_emulator.acl.models import LoadedModel
from workbench.cann_emulator.dump_file import Values, dump_bytes
from workbench.cann_emulator.kernel_values import KernelValues
from workbench.cann_emulator.om import Kernel
from workbench.cann_emulator.revision import emulator
from workbench.cann_emulator.rounding import stored

Array = npt.NDArray[Any]
_File = tuple[str, str, Sequence[Values], Sequence[Values]]
"""Its name, that of its operator, and what it holds of it."""


@dataclass(slots=True)
class _Dump:
    """Attributes:
    section: of acl.json, checked; empty where nothing is dumped.
    stamp: folder of this configuration, named when its first file is written.
    """

    section: Mapping[str, Any] = field(default_factory=dict)
    stamp: str = ""


DUMP = _Dump()


def configure(section: Mapping[str, Any]) -> None:
    DUMP.section, DUMP.stamp = section, ""


def on(entry: LoadedModel) -> bool:
    """Whether something of this execution is dumped."""
    return bool(_entries(entry))


def checks_overflow() -> bool:
    return DUMP.section.get("dump_debug") == "on"


def executed(
    entry: LoadedModel, gear: int, stream: int, feeds: Mapping[str, Array], kernels: Sequence[KernelValues]
) -> None:
    """Write what is asked for of an execution that is over and counted."""
    stamp = time.time_ns() // 1000
    files: list[_File] = []

    def add(op_type: str, name: str, task: int, inputs: Sequence[Values], outputs: Sequence[Values]) -> None:
        place = f"{_plain(op_type)}.{_plain(name)}.{task}.{stream}.{stamp + len(files)}"
        files.append((place, name, inputs, outputs))

    mode = DUMP.section.get("dump_mode", "output")
    if entries := _entries(entry):
        chosen = _chosen(entries, kernels)
        read = _read(entry, gear, [found.kernel for found in chosen])
        data = [_data(entry, name, array, task) for task, (name, array) in enumerate(feeds.items()) if name in read]
        for found in (*data, *chosen):
            inputs, outputs = found.inputs if mode != "output" else (), found.outputs if mode != "input" else ()
            if inputs or outputs:
                add(found.kernel.op_type, found.kernel.name, found.task, inputs, outputs)
    for found in kernels if checks_overflow() else ():
        if all(map(_finite, found.inputs)) and not all(map(_finite, (*found.outputs, *found.inside))):
            add(found.kernel.op_type, found.kernel.name, found.task, found.inputs, found.outputs)
            status = Values(array=_status(entry, found, stream), dtype="uint8")
            # the number in this name is not the operator's task (accuracy guide, overflow)
            add("Opdebug", "Node_OpDebug", len(kernels) + 1, (), (status,))
    try:
        if files:
            _write(entry, files, stamp)
    except OSError as error:  # fails no execution [inferred]: log and stderr say so
        trouble = f"the dump of {entry.name} cannot be written: {error}"
        logging.getLogger("acl").error("%s", trouble)
        print(f"[emulated acl] {trouble}", file=sys.stderr, flush=True)


def _entries(entry: LoadedModel) -> list[Mapping[str, Any]]:
    """Those of dump_list about this model; a file's name counts before the model's own (aclInit, 8.0 RC2)."""
    listed = DUMP.section.get("dump_list") or []
    named = [e for e in listed if e.get("model_name") == entry.name]
    named = named or [e for e in listed if e.get("model_name") == entry.model.name]
    return [*named, *(e for e in listed if "model_name" not in e)]


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
    values = Values(array=stored(array, tensor.dtype), dtype=tensor.dtype, format=tensor.format, origin=(name, 0))
    return KernelValues(kernel=kernel, task=task, inputs=(values,), outputs=(values,))


# --- files ---------------------------------------------------------------------------------------------------------

_LONGEST_BYTES = 255


def _plain(name: str) -> str:
    return re.sub(r"[./\\ \0]", "_", name) or "_"


def _write(entry: LoadedModel, files: Iterable[_File], stamp: int) -> None:
    """Under temporary names first, long names by mapping.csv; a note says whose dump it is."""
    DUMP.stamp = DUMP.stamp or time.strftime("%Y%m%d%H%M%S")
    dated = Path(DUMP.section["dump_path"]) / DUMP.stamp
    place = str(entry.context.device.index), _plain(entry.name), str(entry.id), str(entry.executions - 1)
    folder = dated.joinpath(*place)
    folder.mkdir(parents=True, exist_ok=True)
    note = dated / "emulated.txt"
    if not note.exists():
        note.write_text("Emulated: computed on the host, nothing ran on a device.\n", encoding="utf-8")
    for at, (name, operator, inputs, outputs) in enumerate(files, stamp):
        if len(name.encode()) > _LONGEST_BYTES:
            with (folder / "mapping.csv").open("a", encoding="utf-8") as lines:
                lines.write(f"{at:032d},{name}\n")
            name = f"{at:032d}"
        temporary = folder / f".{at}"
        temporary.write_bytes(dump_bytes(operator, inputs, outputs, time_us=at, emulator=emulator()))
        temporary.replace(folder / name)


# --- the overflow check ---

FLOAT_TO_HALF = 0x100
FLOATING_POINT = 0x20
STATUS_BYTES = 2048
AI_CORE_INFO, AI_CORE_STATUS = 256, 1024
"""Where these begin; before them are infos of DHA and L2 atomic addition (128 bytes each), and between them (after 256
bytes of info) their statuses (256 bytes each): msaccucmp.py, _save_op_debug_to_file."""


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
