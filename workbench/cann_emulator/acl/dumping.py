"""Tensor dump: what acl.json or `acl.mdl.set_dump` asked for, at the boundaries of kernels (pyacl.md §5.5, §5.6).

    <dump_path>/<time>/<device>/<model>/<model id>/<data index>/<op type>.<op name>.<task>.<stream>.<time stamp>

A point, slash, backslash or blank in a type or name becomes an underscore. A name that the file system cannot take
becomes digits, and mapping.csv beside it says which (accuracy guide 8.5.0, dump of offline models).

Fused operators have one file, with what the kernel reads and writes; what stays inside is nowhere. Views, constants
and single operators have none. An input of the model is dumped as its Data operator where a reader of it is.
"""

from __future__ import annotations

import csv
import logging
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.cann_emulator.acl.config import TensorDump
from workbench.cann_emulator.acl.models import LoadedModel
from workbench.cann_emulator.dump_file import Values, dump_bytes
from workbench.cann_emulator.kernel_values import KernelValues, in_dtype
from workbench.cann_emulator.om import Kernel
from workbench.cann_emulator.revision import emulator

Array = npt.NDArray[Any]


@dataclass(slots=True)
class _Dump:
    """Attributes:
    begun: between `init_dump` and `finalize_dump`.
    stamp: folder of this configuration, named when its first file is written.
    """

    request: TensorDump | None = None
    begun: bool = False
    stamp: str = ""


DUMP = _Dump()


def configure(request: TensorDump | None, begun: bool = False) -> None:
    DUMP.request, DUMP.begun, DUMP.stamp = request, begun, ""


def on(entry: LoadedModel) -> bool:
    """Whether something of this execution is dumped."""
    request = DUMP.request
    if request is None or not _entries(request, entry):
        return False
    return not request.steps or any(low <= entry.executions <= high for low, high in request.steps)


def executed(
    entry: LoadedModel, gear: int, stream: int, feeds: Mapping[str, Array], kernels: Sequence[KernelValues]
) -> None:
    """Write what is asked for of an execution that is over and counted."""
    request = DUMP.request
    assert request is not None  # `on` was asked
    chosen = _chosen(_entries(request, entry), kernels)
    read = _read(entry, gear, [found.kernel for found, _ in chosen])
    data = [_data(entry, name, array, task) for task, (name, array) in enumerate(feeds.items()) if name in read]
    stamp = time.time_ns() // 1000
    try:
        DUMP.stamp = DUMP.stamp or time_folder()
        folder = folder_of(request.path, DUMP.stamp, entry)
        for count, (found, blocked) in enumerate([*((d, frozenset[str]()) for d in data), *chosen]):
            inputs = _kept("input", found.inputs if request.inputs else (), blocked)
            outputs = _kept("output", found.outputs if request.outputs else (), blocked)
            if not inputs and not outputs:
                continue
            kernel, at = found.kernel, stamp + count
            name = file_name(kernel.op_type, kernel.name, task=found.task, stream=stream, stamp=at)
            if request.statistics is None:
                content = dump_bytes(kernel.name, inputs, outputs, time_us=at, emulator=emulator())
                write(folder, name, content, stamp=at)
            else:
                table = _table(inputs, outputs, request.statistics)
                write(folder, f"{name}.csv", table.encode(), stamp=at)
    except OSError as error:
        told(error, f"the dump of {entry.name}")
        print(f"[emulated acl] the dump of {entry.name} cannot be written: {error}", file=sys.stderr, flush=True)


def _entries(request: TensorDump, entry: LoadedModel) -> list[Mapping[str, Any]]:
    """Those of dump_list about this model; a file's name counts before the model's own (aclInit, 8.0 RC2)."""
    named = [e for e in request.entries if e.get("model_name") == entry.name]
    named = named or [e for e in request.entries if e.get("model_name") == entry.model.name]
    return [*named, *(e for e in request.entries if "model_name" not in e)]


def _chosen(
    entries: Iterable[Mapping[str, Any]], kernels: Sequence[KernelValues]
) -> list[tuple[KernelValues, frozenset[str]]]:
    """Kernels that an entry lists, by their own name or that of a node in them, with the tensors that it blocks."""
    found: dict[int, tuple[KernelValues, frozenset[str]]] = {}
    for entry in entries:
        layers, ranges = entry.get("layer"), entry.get("opname_range")
        for place, values in enumerate(kernels):
            names = {values.kernel.name, *values.kernel.nodes}
            listed = layers is None or bool(names & set(map(str, layers)))
            if listed and (ranges is None or _within(place, ranges, kernels)):
                found.setdefault(values.task, (values, _blocked(entry, values.kernel)))
    return [found[task] for task in sorted(found)]


def _within(place: int, ranges: Iterable[Any], kernels: Sequence[KernelValues]) -> bool:
    places: dict[str, int] = {}
    for index, values in enumerate(kernels):
        for name in (values.kernel.name, *values.kernel.nodes):
            places.setdefault(name, index)
    ends = [(places.get(str(r.get("begin"))), places.get(str(r.get("end")))) for r in ranges if isinstance(r, dict)]
    return any(first is not None and last is not None and first <= place <= last for first, last in ends)


def _blocked(entry: Mapping[str, Any], kernel: Kernel) -> frozenset[str]:
    """`input0`, `output1` and so on; an entry without positions blocks all."""
    blocked: set[str] = set()
    for key, names in (("optype_blacklist", {kernel.op_type}), ("opname_blacklist", {kernel.name, *kernel.nodes})):
        for one in entry.get(key, ()):
            if isinstance(one, dict) and one.get("name") in names:
                blocked.update(map(str, one.get("pos") or ("input", "output")))
    return frozenset(blocked)


def _kept(kind: str, tensors: Sequence[Values], blocked: frozenset[str]) -> list[Values]:
    if kind in blocked:
        return []
    return [values for index, values in enumerate(tensors) if f"{kind}{index}" not in blocked]


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


_COLUMNS: Mapping[str, str] = {
    "Max": "Max Value",
    "Min": "Min Value",
    "Avg": "Avg Value",
    "Nan": "Nan Count",
    "Negative Inf": "Negative Inf Count",
    "Positive Inf": "Positive Inf Count",
    "L2norm": "l2norm",
}
"""Of dump_stats; headers as the vendor's own readers of these tables expect them (mstt, AclDumpDataProcessor.cpp)."""


def _table(inputs: Sequence[Values], outputs: Sequence[Values], statistics: Sequence[str]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ("Input/Output", "Index", "Data Size", "Data Type", "Format", "Shape")
    writer.writerow([*head, *(_COLUMNS[s] for s in statistics)])
    for kind, tensors in (("Input", inputs), ("Output", outputs)):
        for index, values in enumerate(tensors):
            shape = "x".join(map(str, values.array.shape))
            known = [kind, index, values.array.nbytes, f"DT_{values.dtype.upper()}", values.format, shape]
            writer.writerow([*known, *(_statistic(values, name) for name in statistics)])
    return text.getvalue()


def _statistic(values: Values, name: str) -> float | int:
    numbers = values.array.astype(np.float64)
    if values.dtype == "bfloat16":
        numbers = (values.array.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if not numbers.size:
        return 0
    with np.errstate(all="ignore"):
        match name:
            case "Nan":
                return int(np.isnan(numbers).sum())
            case "Negative Inf":
                return int(np.isneginf(numbers).sum())
            case "Positive Inf":
                return int(np.isposinf(numbers).sum())
            case "Max":
                return float(numbers.max())
            case "Min":
                return float(numbers.min())
            case "Avg":
                return float(numbers.mean())
            case _:
                return float(np.sqrt((numbers * numbers).sum()))


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
