"""Profiles: `acl.prof`, the `profiler` section of acl.json, and msprof (pyacl.md §1.7, §5.4).

A stop or finalize writes `PROF_<n>_<time>_<id>/mindstudio_profiler_output/`: every operator in op_summary, its types in
op_statistic, and in task_time every task of every stream, copies and marks of events among them. The real kit writes
raw data that `msprof --export=on` turns into these tables; here the tables are there at once, and
device_<n>/emulated.txt says where the numbers come from. Columns are the vendor's by name; what the model does not
know is N/A.

Starts are those of the streams' own clock, so idle time is there as it would be on a device: the host's launch in front
of an execution, copies, a stream that waits for another. What a kernel of a compiled shape costs to start is part of
its duration. A synchronous copy runs on no stream and leaves only its gap [inferred].
"""

from __future__ import annotations

import csv
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from workbench.cann_emulator.acl import clock, contexts, errors, handles
from workbench.cann_emulator.acl.call import call, site
from workbench.cann_emulator.acl.errors import Failed
from workbench.cann_emulator.acl.handles import Made
from workbench.cann_emulator.state import soc_version

if TYPE_CHECKING:
    from workbench.cann_emulator.acl.models import LoadedModel
    from workbench.cann_emulator.om import Kernel, Tensor
    from workbench.cann_emulator.timing import KernelTime

VARIABLE = "CANN_EMULATOR_PROFILE"
"""Set by the emulated msprof: profile from `acl.init` on, into this folder."""

_COLUMNS = (
    *("Device_id", "Model Name", "Model ID", "Task ID", "Stream ID", "Infer ID", "Op Name", "OP Type", "OP State"),
    *("Task Type", "Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Block Dim", "Mix Block Dim"),
    *("HF32 Eligible", "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types"),
    *("Output Formats", "Context ID", "aicore_time(us)", "aic_total_cycles", "aiv_time(us)", "aiv_total_cycles"),
)
_STATISTIC = (
    *("Device_id", "Model Name", "OP Type", "Core Type", "Count", "Total Time(us)", "Min Time(us)", "Avg Time(us)"),
    *("Max Time(us)", "Ratio(%)"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What of a model's execution a profile tells.

    Attributes:
        duration_ns: on the stream, without the host's launch in front of it.
    """

    entry: LoadedModel
    gear: int
    duration_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """A task of a stream; `execution` where it is a model's."""

    device: int
    stream: int
    kind: str
    start_ns: int
    end_ns: int
    execution: Execution | None


@dataclass(slots=True)
class _Profile:
    """Attributes:
    folder: where PROF_* is made; None while nothing is collected.
    origin_ns: of the epoch, at zero of the streams' clock.
    """

    folder: Path | None = None
    collecting: bool = False
    done: list[_Done] = field(default_factory=list)
    origin_ns: int = 0
    written: int = 0


PROFILE = _Profile()


def configure(folder: Path | None) -> None:
    """What acl.json asks for, or msprof by its variable."""
    by_msprof = os.environ.get(VARIABLE)
    chosen = Path(by_msprof) if by_msprof else folder
    PROFILE.folder, PROFILE.collecting = chosen, chosen is not None
    if by_msprof:  # its profile is of the device: what this machine does between two calls is no time of one
        clock.STANDING.__enter__()


def done(device: int, stream: int, kind: str, start_ns: int, end_ns: int, execution: Execution | None = None) -> None:
    """A task is over; times are those of clock.py."""
    if not PROFILE.collecting or not kind or len(PROFILE.done) >= _KEPT:
        return
    if not PROFILE.origin_ns:
        PROFILE.origin_ns = time.time_ns() - clock.now_ns()
    PROFILE.done.append(
        _Done(device=device, stream=stream, kind=kind, start_ns=start_ns, end_ns=end_ns, execution=execution)
    )


def end() -> Path | None:
    """Stop collecting and write what was collected."""
    PROFILE.collecting = False
    folder = write()
    PROFILE.folder = None
    return folder


def write() -> Path | None:
    """The PROF_* folder with everything since the last one; None when nothing ran."""
    if PROFILE.folder is None or not any(task.execution for task in PROFILE.done):
        return None
    tasks, PROFILE.done = sorted(PROFILE.done, key=lambda task: task.start_ns), []
    PROFILE.written += 1
    stamp = time.strftime("%Y%m%d%H%M%S") + f"{time.time_ns() // 1_000_000 % 1000:03d}"
    PROFILE.folder.mkdir(parents=True, exist_ok=True)
    target = PROFILE.folder / f"PROF_{PROFILE.written:06d}_{stamp}_{secrets.token_hex(8).upper()}"
    draft = target.with_name(f".{target.name}")
    tables = draft / "mindstudio_profiler_output"
    tables.mkdir(parents=True)
    for device in sorted({task.device for task in tasks}):
        (draft / f"device_{device}").mkdir()
        note = f"Emulated: times come from the emulator's model of {soc_version()}; nothing was measured on a device.\n"
        (draft / f"device_{device}" / "emulated.txt").write_text(note, encoding="utf-8")
    (draft / "host").mkdir()
    (draft / "mindstudio_profiler_log").mkdir()
    _write(tables / f"op_summary_{stamp[:14]}.csv", _COLUMNS, _operators(_launches(tasks)))
    _write(tables / f"op_statistic_{stamp[:14]}.csv", _STATISTIC, _statistic(_launches(tasks)))
    _write(tables / f"task_time_{stamp[:14]}.csv", _TASK_TIME, _task_times(_launches(tasks)))
    return draft.replace(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """One task as the device's scheduler sees it; `kernel` where it is an operator's.

    Attributes:
        number: of the execution, from 1.
        active_ns: of the duration, what the cores compute or load.
    """

    of: _Done
    task: int
    kind: str
    start_ns: int
    duration_ns: int
    number: int = 0
    active_ns: int = 0
    kernel: Kernel | None = None


def _launches(tasks: Iterable[_Done]) -> Iterator[_Launch]:
    numbers, ids = count(1), dict[tuple[int, int], Iterator[int]]()
    plans: dict[tuple[int, int], tuple[KernelTime, ...]] = {}
    for task in tasks:
        own = ids.setdefault((task.device, task.stream), count())
        if task.execution is None:
            yield _Launch(
                of=task, task=next(own), kind=task.kind, start_ns=task.start_ns, duration_ns=task.end_ns - task.start_ns
            )
        else:
            execution = task.execution
            plan = id(execution.entry), execution.gear
            if plan not in plans:
                plans[plan] = clock.kernel_times(execution.entry.model, execution.gear)
            yield from _kernels(task, execution, plans[plan], next(numbers), own)


def _kernels(
    task: _Done, execution: Execution, plan: Sequence[KernelTime], number: int, ids: Iterator[int]
) -> Iterator[_Launch]:
    """Back to back up to the end of the execution; in front of them the choice of a gear, and of the host's launches
    of a shape-range model what they take longer than a start on the device."""
    model, gear = execution.entry.model, execution.gear
    kernels = {kernel.name: kernel for kernel in model.gears[gear].kernels}
    at_ns = task.end_ns - execution.duration_ns
    if (chosen_ns := clock.gear_ns(model)) > 0:
        yield _Launch(of=task, task=next(ids), kind=_GEAR_CHOICE, start_ns=at_ns, duration_ns=chosen_ns)
        at_ns += chosen_ns
    for times in plan:
        host_ns = clock.host_launch_ns(model, times)
        whole_ns = round(1000 * times.duration_us)
        yield _Launch(
            of=task,
            task=next(ids),
            kind=_TASK_TYPES[kernels[times.name].core],
            start_ns=at_ns + host_ns,
            duration_ns=whole_ns - host_ns,
            number=number,
            active_ns=round(1000 * (times.duration_us - times.launch_us)),
            kernel=kernels[times.name],
        )
        at_ns += whole_ns


def _operators(launches: Iterable[_Launch]) -> Iterator[list[str]]:
    """Rows of op_summary. A wait is the time since the operator before it on its stream ended [inferred]."""
    ends: dict[tuple[int, int], int] = {}
    for launch in launches:
        kernel, execution = launch.kernel, launch.of.execution
        if kernel is None or execution is None:
            continue
        place = launch.of.device, launch.of.stream
        wait_ns = max(0, launch.start_ns - ends.get(place, launch.start_ns))
        ends[place] = launch.start_ns + launch.duration_ns
        active = _us(launch.active_ns)
        cores = [active, "N/A", "0", "0"] if kernel.core != "vector" else ["0", "0", active, "N/A"]
        yield [
            *(str(launch.of.device), execution.entry.name, str(execution.entry.id), str(launch.task)),
            *(str(launch.of.stream), str(launch.number), kernel.name, kernel.op_type, "static", launch.kind),
            *(_instant(launch.start_ns), _us(launch.duration_ns), _us(wait_ns), "N/A", "0", "NO"),
            *(*_tensors(kernel), "N/A", *cores),
        ]


def _task_times(launches: Iterable[_Launch]) -> Iterator[list[str]]:
    for launch in launches:
        yield [
            *(str(launch.of.device), "N/A" if launch.kernel is None else launch.kernel.name, launch.kind),
            *(str(launch.of.stream), str(launch.task), _us(launch.duration_ns), _instant(launch.start_ns)),
            _instant(launch.start_ns + launch.duration_ns),
        ]


def _us(duration_ns: int) -> str:
    return f"{duration_ns // 1000}.{duration_ns % 1000:03d}"


def _instant(time_ns: int) -> str:
    """Of the epoch, in microseconds; the tab behind it keeps spreadsheets from rounding it."""
    return f"{_us(PROFILE.origin_ns + time_ns)}\t"


def _tensors(kernel: Kernel) -> list[str]:
    return [*_described(kernel.inputs), *_described(kernel.outputs)]


def _described(tensors: tuple[Tensor, ...]) -> tuple[str, str, str]:
    """Shapes, data types and formats of several tensors, separated by semicolons."""
    shapes = ";".join(",".join(map(str, t.shape)) for t in tensors)
    types = ";".join(_DTYPES.get(t.dtype, t.dtype.upper()) for t in tensors)
    return f'"{shapes}"', types, ";".join(_FORMATS.get(t.format, "ND") for t in tensors)


def _statistic(launches: Iterable[_Launch]) -> Iterator[list[str]]:
    kinds: dict[tuple[str, str, str, str], list[int]] = {}  # count, sum, least and most
    for launch in launches:
        if launch.kernel is not None and launch.of.execution is not None:
            key = str(launch.of.device), launch.of.execution.entry.name, launch.kernel.op_type, launch.kind
            took = launch.duration_ns
            calls, total, least, most = kinds.get(key, (0, 0, took, took))
            kinds[key] = [calls + 1, total + took, min(least, took), max(most, took)]
    whole = sum(total for _, total, _, _ in kinds.values()) or 1
    for key, (calls, total, least, most) in sorted(kinds.items(), key=lambda item: -item[1][1]):
        yield [*key, str(calls), *map(_us, (total, least, total // calls, most)), f"{100 * total / whole:.3f}"]


def _write(file: Path, header: tuple[str, ...], rows: Iterable[list[str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


# --- the module `acl.prof` (pyacl.md §1.7) ---

_LONGEST_PATH = 4096
_METRICS = (*range(9), 0xFF)


@dataclass(slots=True, kw_only=True, eq=False)
class _Config(Made):
    KIND: ClassVar[str] = "profiling configurations"
    devices: tuple[int, ...]
    started: bool = False


@dataclass(slots=True)
class _Session:
    begun: bool = False
    used: bool = False


_SESSION = _Session()


@call("s", "r", device=False)
def init(path: str) -> None:
    """Where results go; after `acl.init`, before the load, at most once in a process."""
    contexts.require(errors.FAILURE)
    if PROFILE.folder is not None:
        raise Failed(errors.REPEAT_INITIALIZE if _SESSION.begun else errors.PROF_ALREADY_RUN)
    if not path or len(path.encode()) > _LONGEST_PATH:
        why = "it is empty or longer than 4096 bytes"
        raise errors.refused(errors.INVALID_PARAM, "EH0003", path=path, reason=why)
    if _SESSION.used:
        raise Failed(errors.REPEAT_INITIALIZE)  # [inferred]: "at most once per process"
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise errors.refused(errors.INVALID_PARAM, "EH0003", path=path, reason=error.strerror) from error
    PROFILE.folder = Path(path).absolute()
    _SESSION.begun = _SESSION.used = True


@call("OikK", "k", device=False)
def create_config(device_list: list[int], aicore_metrics: int, aicore_events: int, data_type_config: int) -> int:
    """0 for devices that do not exist, unknown metrics, or nothing to collect."""
    if not isinstance(device_list, list):
        raise TypeError("argument 1 is not list")
    if not all(isinstance(device, int) for device in device_list):
        raise TypeError("the first argument is not list of int")
    known = range(len(contexts.devices()))
    wrong = any(device not in known for device in device_list) or aicore_metrics not in _METRICS
    if wrong or aicore_events or not data_type_config or len(set(device_list)) < len(device_list):
        raise errors.invalid("config", device_list, "devices, metrics or data mask are wrong")
    return handles.give(_Config(devices=tuple(device_list), site=site()))


@call("k", "r", device=False)
def destroy_config(config: int) -> None:
    handles.need(config, _Config)
    handles.drop(config)


@call("k", "r", device=False)
def start(config: int) -> None:
    found = handles.need(config, _Config)
    if not _SESSION.begun:
        raise errors.refused(errors.PROF_NOT_RUN, "EK0002", second="aclprofStart", first="aclprofInit")
    busy = {device for other in handles.alive(_Config) if other.started for device in other.devices}
    if busy & set(found.devices):
        raise Failed(errors.PROF_ALREADY_RUN)
    found.started = PROFILE.collecting = True


@call("k", "r", device=False)
def stop(config: int) -> None:
    found = handles.need(config, _Config)
    if not found.started:
        raise Failed(errors.PROF_NOT_RUN)
    found.started = False
    PROFILE.collecting = any(other.started for other in handles.alive(_Config))


@call("", "r", device=False)
def finalize() -> None:
    """The collected data becomes a PROF_* folder."""
    if not _SESSION.begun:
        raise Failed(errors.PROF_NOT_RUN)
    _SESSION.begun = False
    for config in handles.alive(_Config):
        config.started = False
    end()


__all__ = ["create_config", "destroy_config", "finalize", "init", "start", "stop"]


def __dir__() -> list[str]:
    return sorted(__all__)
