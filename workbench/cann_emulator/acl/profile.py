"""Profiles of msprof (pyacl.md §5.4), which switches them on by a variable; `acl.finalize` writes them.

`PROF_<n>_<time>_<id>/mindstudio_profiler_output/` holds every operator in op_summary, and in task_time every task of
every stream, copies and marks of events among them. The real kit writes raw data that `msprof --export=on` turns into
these tables; here the tables are there at once, with the columns that the model knows, by the vendor's names, and
device_<n>/emulated.txt says where the numbers come from.

Starts are those of the streams' own clock, so idle time is there as it would be on a device: the host's launch in front
of an execution, copies, a stream that waits for another. What a kernel of a compiled shape costs to start is part of
its duration. A synchronous copy runs on no stream and leaves only its gap [inferred].
"""

from __future__ import annotations

import csv
import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from workbench.cann_emulator.acl import clock
from workbench.cann_emulator.state import soc_version

if TYPE_CHECKING:
    from workbench.cann_emulator.acl.execution import Run
    from workbench.cann_emulator.om import Tensor

VARIABLE = "CANN_EMULATOR_PROFILE"
"""Set by the emulated msprof: profile from `acl.init` on, into this folder."""

_OP_SUMMARY = (
    *("Device_id", "Model Name", "Model ID", "Task ID", "Stream ID", "Infer ID", "Op Name", "OP Type", "Task Type"),
    *("Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Input Shapes", "Input Data Types"),
    *("Input Formats", "Output Shapes", "Output Data Types", "Output Formats"),
)
_TASK_TIME = (
    *("Device_id", "kernel_name", "kernel_type", "stream_id", "task_id", "task_time(us)", "task_start(us)"),
    "task_stop(us)",
)
_TASK_TYPES = {"cube": "AI_CORE", "vector": "AI_VECTOR_CORE", "mix": "MIX_AIC", "aicpu": "AI_CPU", "none": "AI_CORE"}
_DTYPES = {"float32": "FLOAT", "bfloat16": "DT_BF16"}
_FORMATS = {0: "NCHW", 1: "NHWC", 2: "ND", 29: "FRACTAL_NZ"}
_GEAR_CHOICE = "STREAM_LABEL_SWITCH_BY_INDEX"
"""How a model with gears goes to the branch of one; name of the runtime's task [inferred]."""
_KEPT = 200_000
"""Tasks that are remembered, an execution being one; more would only repeat."""


class _Done(NamedTuple):
    """A task of a stream; `run` where it is a model's execution."""

    device: int
    stream: int
    kind: str
    start_ns: int
    end_ns: int
    run: Run | None


DONE: list[_Done] = []
_ON = {"since_ns": 0}
"""Of the epoch, at zero of the streams' clock; 0 while nothing is collected."""
_WRITTEN = count(1)


def begin() -> None:
    """Collect, where msprof asks for it."""
    _ON["since_ns"] = time.time_ns() - clock.now_ns() if os.environ.get(VARIABLE) else 0
    DONE.clear()


def done(device: int, stream: int, kind: str, start_ns: int, end_ns: int, run: Run | None = None) -> None:
    """A task is over; times are those of clock.py."""
    if _ON["since_ns"] and kind and len(DONE) < _KEPT:
        DONE.append(_Done(device, stream, kind, start_ns, end_ns, run))


def end() -> None:
    """Write what was collected into a PROF_* folder; none where no model ran."""
    tasks = sorted(DONE, key=lambda task: task.start_ns)
    DONE.clear()
    if not any(task.run for task in tasks):
        return
    stamp = time.strftime("%Y%m%d%H%M%S") + f"{time.time_ns() // 1_000_000 % 1000:03d}"
    target = Path(os.environ[VARIABLE]) / f"PROF_{next(_WRITTEN):06d}_{stamp}_{secrets.token_hex(8).upper()}"
    draft = target.with_name(f".{target.name}")
    tables = draft / "mindstudio_profiler_output"
    tables.mkdir(parents=True)
    note = f"Emulated: times come from the emulator's model of {soc_version()}; nothing was measured on a device.\n"
    for device in {task.device for task in tasks}:
        (draft / f"device_{device}").mkdir()
        (draft / f"device_{device}" / "emulated.txt").write_text(note, encoding="utf-8")
    operators, every = _rows(tasks)
    for name, header, rows in (("op_summary", _OP_SUMMARY, operators), ("task_time", _TASK_TIME, every)):
        with (tables / f"{name}_{stamp[:14]}.csv").open("w", encoding="utf-8", newline="") as lines:
            csv.writer(lines, lineterminator="\n").writerows([header, *rows])
    draft.replace(target)


def _rows(tasks: Iterable[_Done]) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
    """Of op_summary and of task_time. Kernels lie back to back up to the end of their execution; in front of them is
    the choice of a gear. A wait is the time since the operator before it on its stream ended [inferred]."""
    operators: list[Sequence[str]] = []
    every: list[Sequence[str]] = []
    numbers = count(1)
    ids: dict[tuple[int, int], Iterator[int]] = defaultdict(count)
    ends: dict[tuple[int, int], int] = {}

    def add(task: _Done, kind: str, start_ns: int, duration_ns: int, name: str = "N/A") -> str:
        number = str(next(ids[task.device, task.stream]))
        times = _us(duration_ns), _instant(start_ns), _instant(start_ns + duration_ns)
        every.append((str(task.device), name, kind, str(task.stream), number, *times))
        return number

    for task in tasks:
        if task.run is None:
            add(task, task.kind, task.start_ns, task.end_ns - task.start_ns)
            continue
        entry, execution, place = task.run.entry, str(next(numbers)), (task.device, task.stream)
        at_ns = task.end_ns - task.run.duration_ns
        model, device = clock.time_model()
        if entry.model.gear_kind and (chosen_ns := round(1000 * device.gear_us)) > 0:
            add(task, _GEAR_CHOICE, at_ns, chosen_ns)
            at_ns += chosen_ns
        for times in model.kernel_times(entry.model, task.run.gear, device):
            kernel, duration_ns = times.kernel, round(1000 * times.duration_us)
            kind = _TASK_TYPES[kernel.core]
            number = add(task, kind, at_ns, duration_ns, kernel.name)
            wait_ns = max(0, at_ns - ends.get(place, at_ns))
            ran = str(task.device), entry.name, str(entry.handle), number, str(task.stream), execution, kernel.name
            spent = kernel.op_type, kind, _instant(at_ns), _us(duration_ns), _us(wait_ns)
            at_ns = ends[place] = at_ns + duration_ns
            operators.append((*ran, *spent, *_described(kernel.inputs), *_described(kernel.outputs)))
    return operators, every


def _us(duration_ns: int) -> str:
    return f"{duration_ns // 1000}.{duration_ns % 1000:03d}"


def _instant(time_ns: int) -> str:
    """Of the epoch, in microseconds; the tab behind it keeps spreadsheets from rounding it."""
    return f"{_us(_ON['since_ns'] + time_ns)}\t"


def _described(tensors: tuple[Tensor, ...]) -> tuple[str, str, str]:
    """Shapes, data types and formats of several tensors, separated by semicolons."""
    shapes = ";".join(",".join(map(str, t.shape)) for t in tensors)
    types = ";".join(_DTYPES.get(t.dtype, t.dtype.upper()) for t in tensors)
    return f'"{shapes}"', types, ";".join(_FORMATS.get(t.format, "ND") for t in tensors)
