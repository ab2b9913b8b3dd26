"""acl.json, the argument of `acl.init`, and what it asks for: tensor dumps and the overflow check, at the boundaries of
kernels (pyacl.md §2.5, §5.5, §5.6).

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
import os
import re
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.cann_emulator.acl import errors
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.models import LoadedModel
from workbench.cann_emulator.dump_file import KernelValues, Values, dump_bytes
from workbench.cann_emulator.om import Kernel
from workbench.cann_emulator.revision import emulator
from workbench.cann_emulator.rounding import stored
from workbench.values.documents.json_reader import loads

Array = npt.NDArray[Any]

# --- acl.json ---

_DEEPEST = 10
_DUMP_VALUES: Mapping[str, tuple[str, ...]] = {
    "dump_mode": ("input", "output", "all"),
    "dump_level": ("op", "kernel", "all"),
    "dump_op_switch": ("on", "off"),
    "dump_data": ("tensor",),
    "dump_debug": ("on", "off"),
}
_NOT_EMULATED = ("dump_scene", "dump_step", "dump_stats", "optype_blacklist", "opname_blacklist", "opname_range")
"""Keys of a dump section and of its entries that choose less than a whole model's tensors, or something else."""


def read_config(path: str) -> tuple[dict[str, Any], bytes]:
    """What a file says of dumps, and its content."""
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise errors.refused(errors.INVALID_FILE, "EH0003", path=path, reason="it cannot be read") from error
    # an empty file counts as no configuration [inferred]
    return parse_config(content, path) if content.strip() else {}, content


def parse_config(content: bytes, path: str) -> dict[str, Any]:
    """The section `dump`, checked; empty where there is none."""

    def refuse(code: int, why: str) -> Failed:
        return errors.refused(code, "EH0004", path=path, reason=why)

    try:
        body = loads(content, once=False)
    except ValueError as error:
        raise refuse(errors.PARSE_FILE, f"it is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise refuse(errors.PARSE_FILE, "it is no JSON object")
    if _depth(body) > _DEEPEST:
        raise refuse(errors.PARSE_FILE, f"it is nested deeper than {_DEEPEST}")
    dump: dict[str, Any] = body.get("dump", {})
    if "dump" in body and (wrong := _wrong(dump)):
        raise refuse(errors.INVALID_DUMP_CONFIG, f"dump: {wrong}")
    for key in ("defaultDevice", "err_msg_mode", "profiler"):
        section = body.get(key, "0")
        if section != "0" and not (isinstance(section, dict) and section.get("switch") == "off"):
            remedy = "; run the program under msprof" if key == "profiler" else ""
            raise refuse(errors.INVALID_PARAM, f"{key} is not emulated{remedy}")
    return dump


def _wrong(dump: object) -> str:
    """What is wrong with a dump section."""
    if not isinstance(dump, dict):
        return "it is no object"
    for key, allowed in _DUMP_VALUES.items():
        if key in dump and dump[key] not in allowed:
            return f"{key} is {dump[key]!r}, not one of {', '.join(allowed)}"
    debug, listed = dump.get("dump_debug") == "on", dump.get("dump_list")
    if listed is not None and not (isinstance(listed, list) and all(isinstance(entry, dict) for entry in listed)):
        return "dump_list is no list of objects"
    for section in (dump, *(listed or [])):
        if unknown := next((key for key in _NOT_EMULATED if key in section), None):
            return f"{unknown} is not emulated"
        if not isinstance(section.get("layer", []), list) or not isinstance(section.get("model_name", ""), str):
            return "layer of an entry of dump_list is no list, or its model_name no text"
    # an empty list dumps single operators alone, where their switch is on
    if bool(listed) == debug and not (listed == [] and not debug and dump.get("dump_op_switch") == "on"):
        return "dump_debug excludes dump_list" if debug else "dump_list is missing or empty"
    folder = dump.get("dump_path")
    # os.path and not Path: a name that is too long is no folder, and no exception
    if not (isinstance(folder, str) and folder and os.path.isdir(folder) and os.access(folder, os.W_OK)):  # noqa: PTH112
        return f"dump_path {folder} does not exist or cannot be written"
    return ""


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


# --- what is dumped ---


_SECTION: dict[str, Any] = {}
"""Of acl.json, checked, and `stamp`, the folder of its files."""


def configure(section: Mapping[str, Any]) -> None:
    _SECTION.clear()
    _SECTION.update(section, stamp=time.strftime("%Y%m%d%H%M%S"))


def on(entry: LoadedModel) -> bool:
    """Whether something of this execution is dumped, or checked."""
    return bool(_entries(entry)) or _checks_overflow()


def _checks_overflow() -> bool:
    return bool(_SECTION.get("dump_debug") == "on")


def executed(
    entry: LoadedModel, gear: int, stream: int, feeds: Mapping[str, Array], kernels: Sequence[KernelValues]
) -> None:
    """Write what is asked for of an execution that is over and counted."""
    mode = _SECTION.get("dump_mode", "output")
    files: list[KernelValues] = []
    if entries := _entries(entry):
        # kernels that an entry lists, by their own name or that of a node in them
        layers = [named.get("layer") for named in entries]
        listed = {str(name) for names in layers for name in names or ()}
        chosen = [v for v in kernels if None in layers or listed & {v.kernel.name, *v.kernel.nodes}]
        read = _read(entry, gear, [found.kernel for found in chosen])
        data = []  # an input of the model, as the operator Data that stands for it
        for task, tensor in enumerate(entry.model.inputs):
            array, origin = stored(feeds[tensor.name], tensor.dtype), (tensor.name, 0)
            values = (Values(array=array, dtype=tensor.dtype, format=tensor.format, origin=origin),)
            data += [_alone(tensor.name, "Data", task, values, values)] if tensor.name in read else []
        for found in (*data, *chosen):
            inputs, outputs = found.inputs if mode != "output" else (), found.outputs if mode != "input" else ()
            files += [replace(found, inputs=inputs, outputs=outputs)] if inputs or outputs else []
    for found in kernels if _checks_overflow() else ():
        if all(map(_finite, found.inputs)) and not all(map(_finite, (*found.outputs, *found.inside))):
            status = Values(array=_status(entry, found, stream), dtype="uint8")
            # the number in this name is not the operator's task (accuracy guide, overflow)
            files += [found, _alone("Node_OpDebug", "Opdebug", len(kernels) + 1, (), (status,))]
    try:
        if files:
            _write(entry, files, stream)
    except OSError as error:  # fails no execution [inferred]: log and stderr say so
        trouble = f"the dump of {entry.name} cannot be written: {error}"
        logging.getLogger("acl").error("%s", trouble)
        print(f"[emulated acl] {trouble}", file=sys.stderr, flush=True)


def _entries(entry: LoadedModel) -> list[Mapping[str, Any]]:
    """Those of dump_list about this model; a file's name counts before the model's own (aclInit, 8.0 RC2)."""
    listed = _SECTION.get("dump_list") or []
    named = [e for e in listed if e.get("model_name") == entry.name]
    named = named or [e for e in listed if e.get("model_name") == entry.model.name]
    return [*named, *(e for e in listed if "model_name" not in e)]


def _read(entry: LoadedModel, gear: int, kernels: Iterable[Kernel]) -> set[str]:
    """Tensors that kernels read, and those that they see through views."""
    views = {t.name: k for k in entry.model.gears[gear].kernels if k.core == "none" for t in k.outputs}
    waiting = [tensor.name for kernel in kernels for tensor in kernel.inputs]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [tensor.name for tensor in views[name].inputs] if name in views else []
    return found


def _alone(name: str, kind: str, task: int, inputs: tuple[Values, ...], outputs: tuple[Values, ...]) -> KernelValues:
    """What is no kernel of the model."""
    kernel = Kernel(name=name, op_type=kind, core="none", nodes=(), dtype="uint8", inputs=(), outputs=())
    return KernelValues(kernel=kernel, task=task, inputs=inputs, outputs=outputs)


# --- files ---

_LONGEST_BYTES = 255


def _plain(name: str) -> str:
    return re.sub(r"[./\\ \0]", "_", name) or "_"


def _write(entry: LoadedModel, files: Iterable[KernelValues], stream: int) -> None:
    """Under temporary names first, long names by mapping.csv; a note says whose dump it is."""
    dated = Path(_SECTION["dump_path"]) / _SECTION["stamp"]
    place = str(entry.context.device.index), _plain(entry.name), str(entry.handle), str(entry.executions - 1)
    folder = dated.joinpath(*place)
    folder.mkdir(parents=True, exist_ok=True)
    note = dated / "emulated.txt"
    if not note.exists():
        note.write_text("Emulated: computed on the host, nothing ran on a device.\n", encoding="utf-8")
    for at, found in enumerate(files, time.time_ns() // 1000):
        operator = found.kernel.name
        name = f"{_plain(found.kernel.op_type)}.{_plain(operator)}.{found.task}.{stream}.{at}"
        if len(name.encode()) > _LONGEST_BYTES:
            with (folder / "mapping.csv").open("a", encoding="utf-8") as lines:
                lines.write(f"{at:032d},{name}\n")
            name = f"{at:032d}"
        temporary = folder / f".{at}"
        temporary.write_bytes(dump_bytes(operator, found.inputs, found.outputs, time_us=at, emulator=emulator()))
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


def _status(entry: LoadedModel, values: KernelValues, stream: int) -> npt.NDArray[np.uint8]:
    """2048 bytes as the device writes them; only the AI Core's part says something here."""
    content = bytearray(STATUS_BYTES)
    struct.pack_into("<6Q", content, AI_CORE_INFO, entry.handle, stream, values.task, 0, 0, 0)
    narrow = any(tensor.dtype == "float16" and not _finite(tensor) for tensor in (*values.outputs, *values.inside))
    struct.pack_into("<3Q", content, AI_CORE_STATUS, 0, 0, FLOAT_TO_HALF if narrow else FLOATING_POINT)
    return np.frombuffer(bytes(content), np.uint8)
