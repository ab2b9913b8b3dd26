"""The vendor's profiler and overflow check over one program."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.targets.apart import run_apart
from workbench.targets.ascend.acl.process import ACL_CONFIG, write_acl_config
from workbench.targets.ascend.atc.compile_story import read_story, story_text
from workbench.targets.ascend.atc.om_json import ask_om, operators_in
from workbench.targets.ascend.dump.dump_file import DumpedTensor, OperatorFile, operator_files, read_dump_file
from workbench.targets.ascend.installation import find_installation
from workbench.targets.ascend.npu_smi import VARIABLE
from workbench.targets.ascend.profiles.read import read_profile
from workbench.targets.ascend.profiles.tasks import kernel_us, read_tasks
from workbench.targets.ascend.settings import INTERFACE
from workbench.targets.profiler import KernelTime, Overflows
from workbench.values.artifact import Artifact
from workbench.values.device_profile import DeviceProfile
from workbench.values.documents.json_reader import loads
from workbench.values.errors import MeasureError, ToolchainError

TIMEOUT_S = 900.0
LOG = "msprof.log"


class AscendProfiler:
    """See `workbench.targets.profiler.Profiler`."""

    def where_time_goes(
        self,
        replay: Sequence[str],
        artifact: Artifact,
        directory: Path,
        to: Path,
        *,
        environment: Mapping[str, str],
    ) -> DeviceProfile:
        """By msprof; and what the compiler told of the files, where they were compiled here."""
        folders = run_msprof(replay, to, environment=environment)
        try:
            return _read(folders, artifact, directory)
        except MeasureError as error:
            raise MeasureError(f"{error} See what msprof said.", log_path=to / LOG) from error

    def read(self, folder: Path, artifact: Artifact, directory: Path) -> DeviceProfile:
        inside = sorted(one for one in folder.glob("PROF_*") if one.is_dir()) or [folder]
        return _read(inside, artifact, directory)

    def kernels(
        self,
        replay: Sequence[str],
        artifact: Artifact,
        directory: Path,
        to: Path,
        *,
        environment: Mapping[str, str],
    ) -> tuple[KernelTime, ...]:
        """By msprof, whose names of operators are those of ATC's JSON of the OM [inferred]."""
        (om,) = [directory / file.file for file in artifact.files if file.file != INTERFACE]
        tasks, _, _ = read_tasks(run_msprof(replay, to, environment=environment))
        took, origins = kernel_us(tasks), ask_om(om, operators_in)
        found = ((name, us, origins.get(name)) for name, us in took.items())
        kernels = tuple(
            KernelTime(name=name, op_type=op.op_type if op else "", nodes=op.nodes if op else (), call_us=us)
            for name, us, op in found
        )
        if not any(kernel.nodes for kernel in kernels):
            raise MeasureError(
                f"None of the {len(kernels)} operators in msprof's table is one that ATC tells of {om.name}. "
                "Profile with --task-time=l1, which names them."
            )
        return kernels

    def overflows(
        self, replay: Sequence[str], calls: int, to: Path, *, environment: Mapping[str, str], once: bool = False
    ) -> Overflows:
        to.mkdir(parents=True, exist_ok=True)
        log = to / "run.log"
        surroundings = {**environment, ACL_CONFIG: str(write_acl_config(to, "overflow", {"dump_debug": "on"}))}
        ended = run_apart(replay, environment=surroundings, timeout_s=TIMEOUT_S, log=log)
        if ended.code != 0:
            raise MeasureError(f"the run with the overflow check {ended.words}", log_path=log)
        found = read_overflows(to / "overflow", find_installation().home, to / "decoded", once=once)
        return Overflows(text=overflow_text(found, calls), suspects=suspects(found))

    @staticmethod
    def way_on(nodes: Sequence[str]) -> str:
        """The nodes stand as keep_dtype and modify_mixlist take them."""
        return (
            f"Keep them in float32 with what reads their results: compile.keep_dtype: {' '.join(nodes)} (`workbench "
            "compare onnx:MODEL om:…` names all); or take precision.mode: must_keep_origin_dtype, or "
            "allow_mix_precision with their types on the black list of compile.modify_mixlist; of INT8 layers raise "
            "quantization.keep_float."
        )


def _read(folders: Iterable[Path], artifact: Artifact, directory: Path) -> DeviceProfile:
    """A profile, with what the compiler told of the files, where they were compiled here."""
    found, story = read_profile(folders, chip=artifact.toolchain.device), read_story(directory)
    told = () if story is None else tuple(story_text(story).splitlines())
    modelled = found.modelled or artifact.toolchain.emulated
    return replace(found, modelled=modelled, notes=(*found.notes, *told))


def run_msprof(
    application: Sequence[str],
    output: Path,
    *,
    environment: Mapping[str, str],
    timeout_s: float = TIMEOUT_S,
) -> list[Path]:
    """Run a program under msprof; the PROF_* folders it left. It runs slower than without: time nothing else.

    Args:
        application: argument list of the program.
        output: folder for the PROF_* results; made when missing. The log is `msprof.log` in it.

    Raises:
        ToolchainError: no msprof, or ASCEND_RT_VISIBLE_DEVICES is set, which it cannot work with.
        MeasureError: the program failed or took too long; carries the log.
    """
    program = shutil.which("msprof", path=environment.get("PATH", os.defpath))
    if program is None:
        raise ToolchainError("msprof is not on PATH. It comes with the CANN toolkit: source its set_env.sh.")
    if environment.get(VARIABLE):
        raise ToolchainError(f"msprof does not work while {VARIABLE} is set. Unset it and choose the device by number.")
    output.mkdir(parents=True, exist_ok=True)
    before = {folder.name for folder in output.glob("PROF_*")}
    log = output / LOG
    command = [program, f"--application={shlex.join(application)}", f"--output={output}", "--task-time=on"]
    ended = run_apart(command, environment=environment, timeout_s=timeout_s, log=log)
    if ended.code != 0:
        raise MeasureError(f"msprof {ended.words}", log_path=log, transient=ended.code is None)
    return [folder for folder in output.glob("PROF_*") if folder.name not in before]


# --- overflows of the AI cores: the files of the check, which operator they name, what status bits mean (pyacl.md §5.6)


# Nothing overflowed when no file appears. Of each operator that did there are two: its status, and a dump of what it
# read and wrote under its own name and task.
_CONVERT_TIMEOUT_S = 300.0
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
        operator: as the compiler calls it; '' where no dump of one lies beside the status.
        node: of the model, that its first result stems from; '' where the dump does not say.
        tensors: of those that are not all finite, in words: which, its type, how many elements.
        passed_on: an input holds what is not finite already.
    """

    unit: str
    status: int
    stream_id: int | None
    task_id: int | None
    operator: str = ""
    op_type: str = ""
    node: str = ""
    tensors: tuple[str, ...] = ()
    passed_on: bool = False

    @property
    def causes(self) -> tuple[str, ...]:
        """What the status bits say, in words; bits without a known meaning by their value."""
        if self.unit in _ATOMIC:
            return ("atomic addition",)
        known = [words for bit, words in AI_CORE_BITS.items() if self.status & bit]
        unknown = self.status & ~sum(AI_CORE_BITS)
        return (*known, f"unknown bits {unknown:#x}") if unknown else tuple(known)

    @property
    def suspect(self) -> bool:
        """Whether numbers that the model computes with are affected."""
        return self.unit in _ATOMIC or bool(self.status & SUSPECT_BITS)


def read_overflows(dump: Path, toolkit: Path, results: Path, *, once: bool = False) -> tuple[Overflow, ...]:
    """Convert every status file below `dump` with the toolkit's msaccucmp.py and decode it; empty when nothing
    overflowed.

    Layout: <time>/<device>/<model>/<model id>/<data index>/Opdebug.Node_OpDebug.<task>.<stream>.<time stamp>

    Args:
        once: the first file of each operator will do: each conversion is a program of its own.
        toolkit: root of CANN, ASCEND_HOME_PATH.
        results: folder for the JSON files; made when missing.

    Raises:
        ToolchainError: the toolkit has no msaccucmp.py.
        MeasureError: it fails, or writes something else; carries its log.
    """
    files = sorted((file for file in dump.rglob("Opdebug.Node_OpDebug.*") if file.is_file()), key=_by_time)
    if once:
        named = ((_file_before(file), file) for file in reversed(files))
        files = list({str(file) if before is None else before.op_name: file for before, file in named}.values())
    converter = toolkit / CONVERTER
    if files and not converter.is_file():
        raise ToolchainError(f"{converter} is missing. It belongs to the CANN toolkit package, not to the runtime one.")
    found: list[Overflow] = []
    for index, file in enumerate(files):
        to = results / str(index)
        to.mkdir(parents=True, exist_ok=True)
        log = results / f"{index}.log"
        command = [sys.executable, str(converter), "convert", "-d", str(file), "-out", str(to), "-v", "2"]
        ended = run_apart(command, environment=os.environ, timeout_s=_CONVERT_TIMEOUT_S, log=log)
        written = sorted(to.rglob("*.json"))
        if ended.code != 0 or not written:
            how = "ended with exit code 0" if ended.code == 0 else ended.words
            raise MeasureError(f"msaccucmp.py wrote {len(written)} JSON files of {file}; it {how}", log_path=log)
        for result in written:
            try:
                found += [_with_operator(one, file) for one in decode_overflow(loads(result.read_bytes(), once=False))]
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
        alike.setdefault((one.operator, one.unit, one.task_id, one.stream_id, one.status), []).append(one)
    for one, *more in alike.values():
        node = f", from node {one.node}" if one.node not in ("", one.operator) else ""
        passed = ", which was given an infinity or NaN already" if one.passed_on else ""
        words = f"{one.operator} ({one.op_type}{node}){passed}; " if one.operator else ""
        times = f", {len(more) + 1} times" if more else ""
        place = f"{one.unit}, task {one.task_id}, stream {one.stream_id}, status {one.status:#x}{times}"
        lines.append(f"  {'SUSPECT ' if one.suspect else ''}{words}{place}: {'; '.join(one.causes)}")
        lines += [f"      {words}{' (the first time)' if more else ''}" for words in one.tensors]
    if affected := suspects(found):
        words = "numbers that the model computes with are affected, however well it scores on a small set, and it is"
        lines.append(f"{words} neither recommended nor exported")
        lines.append(AscendProfiler.way_on(tuple(affected)))
    return "\n".join(lines)


def suspects(found: Sequence[Overflow]) -> dict[str, str]:
    """Node, operator where no node is told, or task → what of it is not finite, else why."""
    told: dict[str, str] = {}
    for one in found:
        if one.suspect:
            name = one.node or one.operator or f"{one.unit} task {one.task_id}"
            told.setdefault(name, "; ".join(one.tensors or one.causes))
    return told


def decode_overflow(content: Mapping[str, Any]) -> Iterator[Overflow]:
    """What one JSON file of msaccucmp.py says; units without an overflow are left out.

    Two layouts: objects by unit, and version 2 with `magic` and `acc_list`, a list of objects.

    Raises:
        ValueError: neither.
    """
    if "acc_list" in content:
        # the toolkit writes one object; that it may become a list, or hold the fields directly, is [inferred]
        listed = content["acc_list"] if isinstance(content["acc_list"], list) else [content["acc_list"]]
        entries = [(_UNITS.get(str(e.get("acc_type")), "AI Core"), e.get("data", e)) for e in listed]
    else:
        entries = [(unit, content[unit]) for unit in (*_ATOMIC, "AI Core") if unit in content]
        if not entries:
            raise ValueError(f"keys are {', '.join(map(str, content)) or 'none'}")
    for unit, entry in entries:
        if status := _integer(entry.get("status")):
            stream, task = _integer(entry.get("stream_id")), _integer(entry.get("task_id"))
            yield Overflow(unit=unit, status=status, stream_id=stream, task_id=task)


def _with_operator(found: Overflow, status: Path) -> Overflow:
    """With the operator whose dump lies beside the status: that of its task and stream, else the last one before it.

    Raises:
        MeasureError: that dump is damaged.
    """
    same = [f for f in operator_files(status.parent) if (f.task, f.stream) == (found.task_id, found.stream_id)]
    file = max(same, key=lambda one: one.stamp, default=None) or _file_before(status)
    if file is None:
        return found
    dumped = read_dump_file(file.path)
    inputs, outputs = _broken("input", dumped.inputs), _broken("output", dumped.outputs)
    return replace(
        found,
        operator=dumped.op_name or file.op_name,
        op_type=file.op_type,
        node=next((tensor.origin[0] for tensor in dumped.outputs if tensor.origin), ""),
        tensors=(*inputs, *outputs),
        passed_on=bool(inputs),
    )


def _file_before(status: Path) -> OperatorFile | None:
    """The dump that was written last before a status."""
    before = [one for one in operator_files(status.parent) if one.stamp <= _by_time(status)[0]]
    return max(before, key=lambda one: one.stamp, default=None)


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


def _integer(value: Any) -> int | None:
    """Decimal as a rule; texts such as '0x20' too."""
    if value is None:
        return None
    return int(value, 0) if isinstance(value, str) else int(value)


def _by_time(file: Path) -> tuple[int, str]:
    found = re.search(r"\.(\d+)$", file.name)
    return int(found.group(1)) if found else 0, str(file)
