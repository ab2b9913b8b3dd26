"""The overflow check of the AI cores: its acl.json, the files it leaves, which operator they name, and what status bits
mean.

Nothing overflowed when no file appears. Of each operator that did there are two: its status, and a dump of what it read
and wrote under its own name and task. Source of steps, files and bits: pyacl.md §5.6.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.targets.apart import run_apart
from workbench.targets.ascend.acl.process import write_acl_config
from workbench.targets.ascend.dump.dump_file import DumpedTensor, operator_files, read_dump_file
from workbench.values.documents.json_reader import loads
from workbench.values.errors import MeasureError, ToolchainError

TIMEOUT_S = 300.0
CONVERTER = "tools/operator_cmp/compare/msaccucmp.py"
"""Below the toolkit's root."""

AI_CORE_BITS = {
    0x8: "negation of the smallest integer",
    0x10: "integer addition, subtraction, multiplication or multiply-add",
    0x20: "floating-point arithmetic",
    0x80: "negative float to unsigned integer",
    0x100: "float32 or int32 to float16",
    0x400: "accumulation in the cube unit",
}
SUSPECT_BITS = 0x100 | 0x20
"""A candidate in INT8 or FP16 with one of these is suspect, even if a small set scores well."""

_ATOMIC = ("DHA Atomic Add", "L2 Atomic Add")
_UNITS = {"AIC": "AI Core", "AIV": "AI Core (vector)", "AICPU": "AI CPU", "SDMA": "SDMA"}
"""acc_type of the newer layout (toolkit, dump_data_parser.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """One operator that overflowed.

    Attributes:
        unit: 'AI Core', 'DHA Atomic Add', 'L2 Atomic Add', or what the newer layout adds.
        operator: whose dump lies beside the status; None where there is none.
        causes: what the status bits say, in words.
        suspect: True when numbers that the model computes with are affected.
    """

    unit: str
    status: int
    causes: tuple[str, ...]
    suspect: bool
    stream_id: int | None
    task_id: int | None
    file: Path | None = None
    operator: OverflowedOperator | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowedOperator:
    """Attributes:
    name: as the compiler calls it.
    node: of the model, that its first result stems from; '' where the dump does not say.
    tensors: of those that are not all finite, in words: which, its type, how many elements.
    beyond_already: an input holds what is not finite, so that the operator only passed it on.
    file: its dump.
    """

    name: str
    op_type: str
    node: str
    tensors: tuple[str, ...]
    beyond_already: bool
    file: Path


def write_overflow_config(directory: Path) -> Path:
    """acl.json that switches the check on; its files go to `directory`/overflow."""
    return write_acl_config(directory, "overflow", {"dump_debug": "on"})


def overflow_files(dump: Path) -> tuple[Path, ...]:
    """The check's own files below the dump folder, the oldest first.

    Layout: <time>/<device>/<model>/<model id>/<data index>/Opdebug.Node_OpDebug.<task>.<stream>.<time stamp>
    """
    found = [file for file in dump.rglob("Opdebug.Node_OpDebug.*") if file.is_file()]
    return tuple(sorted(found, key=lambda file: (_stamp(file), str(file))))


def read_overflows(dump: Path, toolkit: Path, results: Path, *, once: bool = False) -> tuple[Overflow, ...]:
    """Convert every file below `dump` with the toolkit's msaccucmp.py and decode it; empty when nothing overflowed.

    Args:
        once: the first file of each operator will do: each conversion is a program of its own.
        toolkit: root of CANN, ASCEND_HOME_PATH.
        results: folder for the JSON files; made when missing.

    Raises:
        ToolchainError: the toolkit has no msaccucmp.py.
        MeasureError: it fails, or writes something else; carries its log.
    """
    files = overflow_files(dump)
    if once:
        files = tuple({_operator_before(file): file for file in reversed(files)}.values())
    if not files:
        return ()
    converter = toolkit / CONVERTER
    if not converter.is_file():
        raise ToolchainError(f"{converter} is missing. It belongs to the CANN toolkit package, not to the runtime one.")
    found: list[Overflow] = []
    for index, file in enumerate(files):
        to = results / str(index)
        to.mkdir(parents=True, exist_ok=True)
        log = results / f"{index}.log"
        command = [sys.executable, str(converter), "convert", "-d", str(file), "-out", str(to), "-v", "2"]
        ended = run_apart(command, environment=os.environ, timeout_s=TIMEOUT_S, log=log)
        written = sorted(to.rglob("*.json"))
        if ended.code != 0 or not written:
            how = "took too long" if ended.code is None else f"ended with exit code {ended.code}"
            raise MeasureError(f"msaccucmp.py {how} on {file} and wrote {len(written)} JSON files.", log_path=log)
        for result in written:
            try:
                found += [_with_operator(one) for one in decode_overflow(loads(result.read_bytes(), once=False), file)]
            except (ValueError, TypeError, AttributeError) as error:
                raise MeasureError(f"{result}: no overflow status of a known layout: {error}", log_path=log) from error
    return tuple(found)


def overflow_text(found: Sequence[Overflow], feeds: int) -> str:
    """For the terminal: each overflow with its causes, and what they mean for the candidate."""
    if not found:
        return f"nothing overflowed in {feeds} calls"
    lines = [f"{len(found)} overflows in {feeds} calls"]
    alike: dict[tuple[object, ...], list[Overflow]] = {}
    for one in found:
        name = None if one.operator is None else one.operator.name
        alike.setdefault((name, one.unit, one.task_id, one.stream_id, one.status), []).append(one)
    for one, *more in alike.values():
        mark = "SUSPECT " if one.suspect else ""
        times = f", {len(more) + 1} times" if more else ""
        place = f"{one.unit}, task {one.task_id}, stream {one.stream_id}, status {one.status:#x}{times}"
        lines.append(f"  {mark}{_operator_words(one.operator)}{place}: {'; '.join(one.causes)}")
        if one.operator is not None:
            lines += [f"      {words}{' (the first time)' if more else ''}" for words in one.operator.tensors]
    if affected := suspects(found):
        words = "numbers that the model computes with are affected, however well it scores on a small set, and it is"
        lines.append(f"{words} neither recommended nor exported")
        lines.append(way_on(tuple(affected)))
    return "\n".join(lines)


def suspects(found: Sequence[Overflow]) -> dict[str, str]:
    """Node, operator where no node is told, or task → what of it is not finite, else why."""
    told: dict[str, str] = {}
    for one in (one for one in found if one.suspect):
        operator = one.operator
        name = f"{one.unit} task {one.task_id}" if operator is None else operator.node or operator.name
        told.setdefault(name, "; ".join((operator and operator.tensors) or one.causes))
    return told


def way_on(nodes: Sequence[str]) -> str:
    """What a user may change: the nodes stand as keep_dtype and modify_mixlist take them."""
    return (
        f"Keep them in float32 with what reads their results: compile.keep_dtype: {' '.join(nodes)} (`workbench "
        "compare onnx:MODEL om:…` names all); or take precision.mode: must_keep_origin_dtype, or allow_mix_precision "
        "with their types on the black list of compile.modify_mixlist; of INT8 layers raise quantization.keep_float."
    )


def decode_overflow(content: Mapping[str, Any], file: Path | None = None) -> tuple[Overflow, ...]:
    """What one JSON file of msaccucmp.py says; units without an overflow are left out.

    Two layouts: objects by unit, and version 2 with `magic` and `acc_list`, a list of objects.

    Raises:
        ValueError: neither.
    """
    if "acc_list" in content:
        # the toolkit writes one object; that it may become a list, or hold the fields directly, is [inferred]
        listed = content["acc_list"]
        told = listed if isinstance(listed, list) else [listed]
        entries = [(_UNITS.get(str(e.get("acc_type")), "AI Core"), e.get("data", e)) for e in told]
    else:
        entries = [(unit, content[unit]) for unit in (*_ATOMIC, "AI Core") if unit in content]
        if not entries:
            raise ValueError(f"keys are {', '.join(map(str, content)) or 'none'}")
    return tuple(_overflow(unit, entry, file) for unit, entry in entries if _integer(entry.get("status")))


def causes_of(status: int) -> tuple[str, ...]:
    """AI Core status bits in words; bits without a known meaning by their value."""
    known = [words for bit, words in AI_CORE_BITS.items() if status & bit]
    unknown = status & ~sum(AI_CORE_BITS)
    return (*known, f"unknown bits {unknown:#x}") if unknown else tuple(known)


def _overflow(unit: str, entry: Mapping[str, Any], file: Path | None) -> Overflow:
    status = _integer(entry.get("status")) or 0
    atomic = unit in _ATOMIC
    return Overflow(
        unit=unit,
        status=status,
        causes=("atomic addition",) if atomic else causes_of(status),
        suspect=atomic or bool(status & SUSPECT_BITS),
        stream_id=_integer(entry.get("stream_id")),
        task_id=_integer(entry.get("task_id")),
        file=file,
    )


def _with_operator(found: Overflow) -> Overflow:
    """With the operator whose dump lies beside the status: that of its task and stream, else the last one before it.

    Raises:
        MeasureError: that dump is damaged.
    """
    if found.file is None:
        return found
    beside = sorted(operator_files(found.file.parent), key=lambda file: file.stamp)
    same = [file for file in beside if (file.task, file.stream) == (found.task_id, found.stream_id)]
    before = [file for file in beside if file.stamp <= _stamp(found.file)]
    if not same and not before:
        return found
    chosen = (same or before)[-1]
    dumped = read_dump_file(chosen.path)
    origin = next((tensor.origin for tensor in dumped.outputs if tensor.origin), None)
    inputs, outputs = _broken("input", dumped.inputs), _broken("output", dumped.outputs)
    operator = OverflowedOperator(
        name=dumped.op_name or chosen.op_name,
        op_type=chosen.op_type,
        node=origin[0] if origin else "",
        tensors=(*inputs, *outputs),
        beyond_already=bool(inputs),
        file=chosen.path,
    )
    return replace(found, operator=operator)


def _operator_before(file: Path) -> str:
    """Whose dump was written last before a status; the status itself where there is none."""
    before = [one for one in operator_files(file.parent) if one.stamp <= _stamp(file)]
    return max(before, key=lambda one: one.stamp).op_name if before else str(file)


def _broken(kind: str, tensors: Sequence[DumpedTensor]) -> tuple[str, ...]:
    words = []
    for index, tensor in enumerate(tensors):
        if tensor.dtype not in ("float16", "float32", "float64", "bfloat16"):
            continue
        values = tensor.load()
        infinite, nan = int(np.isinf(values).sum()), int(np.isnan(values).sum())
        if infinite or nan:
            words.append(f"{kind} {index}, {tensor.dtype}: {infinite} infinite and {nan} NaN of {values.size}")
    return tuple(words)


def _operator_words(operator: OverflowedOperator | None) -> str:
    if operator is None:
        return ""
    node = f", from node {operator.node}" if operator.node not in ("", operator.name) else ""
    passed = ", which was given an infinity or NaN already" if operator.beyond_already else ""
    return f"{operator.name} ({operator.op_type}{node}){passed}; "


def _integer(value: Any) -> int | None:
    """Decimal as a rule; texts such as '0x20' too."""
    if value is None:
        return None
    return int(value, 0) if isinstance(value, str) else int(value)


def _stamp(file: Path) -> int:
    found = re.search(r"\.(\d+)$", file.name)
    return int(found.group(1)) if found else 0
