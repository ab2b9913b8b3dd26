"""Profiles: `acl.prof`, the `profiler` section of acl.json, and msprof (pyacl.md §1.7, §5.4).

A stop or finalize writes `PROF_<n>_<time>_<id>/mindstudio_profiler_output/op_summary_*.csv` from the time model. The
real kit writes raw data that `msprof --export=on` turns into these tables; here the tables are there at once, and
device_<n>/emulated.txt says where the numbers come from. Columns are the vendor's by name; what the model does not
know is N/A.
"""

from __future__ import annotations

import csv
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cann_emulator.acl import clock

if TYPE_CHECKING:
    from workbench.cann_emulator.acl.models import LoadedModel
    from workbench.cann_emulator.om import Kernel, Tensor

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
_TASK_TYPES = {"cube": "AI_CORE", "vector": "AI_VECTOR_CORE", "mix": "MIX_AIC", "aicpu": "AI_CPU", "none": "AI_CORE"}
_DTYPES = {"float32": "FLOAT", "bfloat16": "DT_BF16"}
_FORMATS = {0: "NCHW", 1: "NHWC", 2: "ND", 29: "FRACTAL_NZ"}
_CLOCK_ORIGIN_US = 1e12  # start of the profile's time axis; the real one is a counter since boot
_KEPT = 200_000
"""Executions that are remembered in full; more would only repeat."""


@dataclass(slots=True)
class _Profile:
    """Attributes:
    folder: where PROF_* is made; None while nothing is collected.
    runs: (load, gear, stream, start on the virtual time axis) in order.
    """

    folder: Path | None = None
    collecting: bool = False
    runs: list[tuple[LoadedModel, int, int, float]] = field(default_factory=list)
    time_us: float = _CLOCK_ORIGIN_US
    written: int = 0


PROFILE = _Profile()


def configure(folder: Path | None) -> None:
    """What acl.json asks for, or msprof by its variable."""
    by_msprof = os.environ.get(VARIABLE)
    chosen = Path(by_msprof) if by_msprof else folder
    PROFILE.folder, PROFILE.collecting = chosen, chosen is not None


def executed(entry: LoadedModel, gear: int, stream: int) -> None:
    if not PROFILE.collecting:
        return
    if len(PROFILE.runs) < _KEPT:
        PROFILE.runs.append((entry, gear, stream, PROFILE.time_us))
    PROFILE.time_us += clock.execution_ns(entry.model, gear, entry.times_ns)[1] / 1000


def end() -> Path | None:
    """Stop collecting and write what was collected."""
    PROFILE.collecting = False
    folder = write()
    PROFILE.folder = None
    return folder


def write() -> Path | None:
    """The PROF_* folder with everything since the last one; None when nothing ran."""
    if PROFILE.folder is None or not PROFILE.runs:
        return None
    runs, PROFILE.runs = PROFILE.runs, []
    PROFILE.written += 1
    stamp = time.strftime("%Y%m%d%H%M%S") + f"{time.time_ns() // 1_000_000 % 1000:03d}"
    PROFILE.folder.mkdir(parents=True, exist_ok=True)
    target = PROFILE.folder / f"PROF_{PROFILE.written:06d}_{stamp}_{secrets.token_hex(8).upper()}"
    draft = target.with_name(f".{target.name}")
    tables = draft / "mindstudio_profiler_output"
    tables.mkdir(parents=True)
    for device in sorted({entry.context.device.index for entry, *_ in runs}):
        (draft / f"device_{device}").mkdir()
        note = "Emulated: times come from the emulator's model of Ascend910B3; nothing was measured on a device.\n"
        (draft / f"device_{device}" / "emulated.txt").write_text(note, encoding="utf-8")
    (draft / "host").mkdir()
    (draft / "mindstudio_profiler_log").mkdir()
    rows = [row for number, run in enumerate(runs, 1) for row in _rows(run, number)]
    (tables / f"op_summary_{stamp[:14]}.csv").write_text(_csv(_COLUMNS, rows), encoding="utf-8")
    (tables / f"op_statistic_{stamp[:14]}.csv").write_text(_csv(_STATISTIC, _statistic(rows)), encoding="utf-8")
    return draft.replace(target)


def _rows(run: tuple[LoadedModel, int, int, float], number: int) -> Iterator[list[str]]:
    entry, gear, stream, start_us = run
    kernels = {kernel.name: kernel for kernel in entry.model.gears[gear].kernels}
    for task, times in enumerate(clock.kernel_times(entry.model, gear)):
        kernel = kernels[times.name]
        active = times.duration_us - times.launch_us
        on_vector = kernel.core == "vector"
        core = [f"{active:.3f}", "N/A", "0", "0"] if not on_vector else ["0", "0", f"{active:.3f}", "N/A"]
        yield [
            *(str(entry.context.device.index), entry.name, str(entry.id), str(task), str(stream), str(number)),
            *(times.name, times.op_type, "static", _TASK_TYPES[kernel.core], f"{start_us:.3f}\t"),
            *(f"{times.duration_us:.3f}", f"{times.launch_us:.3f}", "N/A", "0", "NO", *_tensors(kernel), "N/A", *core),
        ]
        start_us += times.duration_us


def _tensors(kernel: Kernel) -> list[str]:
    return [*_described(kernel.inputs), *_described(kernel.outputs)]


def _described(tensors: tuple[Tensor, ...]) -> tuple[str, str, str]:
    """Shapes, data types and formats of several tensors, separated by semicolons."""
    shapes = ";".join(",".join(map(str, t.shape)) for t in tensors)
    types = ";".join(_DTYPES.get(t.dtype, t.dtype.upper()) for t in tensors)
    return f'"{shapes}"', types, ";".join(_FORMATS.get(t.format, "ND") for t in tensors)


def _statistic(rows: list[list[str]]) -> list[list[str]]:
    kinds: dict[tuple[str, str, str, str], list[float]] = {}
    for row in rows:
        kinds.setdefault((row[0], row[1], row[7], row[9]), []).append(float(row[11]))
    total = sum(map(sum, kinds.values())) or 1.0
    ordered = sorted(kinds.items(), key=lambda item: -sum(item[1]))
    return [
        [*key, str(len(t)), *(f"{v:.3f}" for v in (sum(t), min(t), sum(t) / len(t), max(t), 100 * sum(t) / total))]
        for key, t in ordered
    ]


def _csv(header: tuple[str, ...], rows: list[list[str]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
