"""Every task of a profile, as columns: operators from op_summary, copies and marks of events from task_time."""

from __future__ import annotations

import math
import re
import statistics
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from workbench.targets.ascend.profiles.tables import Reading, Row, rows, tables
from workbench.values.device_profile import TaskKind

Ints = npt.NDArray[np.int64]
KINDS: tuple[TaskKind, ...] = ("cube", "vector", "mix", "cpu", "copy", "wait", "other")
_OF_TYPE: Mapping[str, TaskKind] = {
    "AI_CORE": "cube",
    "AI_CUBE_CORE": "cube",
    "AI_VECTOR_CORE": "vector",
    "AIV": "vector",
    "AIC": "cube",
    "MIX_AIC": "mix",
    "MIX_AIV": "mix",
    "AI_CPU": "cpu",
    "AICPU": "cpu",
}
"""Task Type → what it occupies. An operator whose type is AI_CORE may well be one of vectors: on chips whose cores are
not apart all are."""
_COPIES = re.compile(r"MEMCPY|MEMSET|SDMA|PCIE|DMA")
_WAITS = re.compile(r"WAIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """Column by column, in order of their start; times are nanoseconds from the first start.

    Attributes:
        kind: index into `KINDS`.
        name, op_type, stream: index into the texts of the same name, `core` into the vendor's types.
        execution: which call of which model; -1 where that is not known.
        int8: 1, 0, or -1 where they do not tell.
        macs: -1 where the shapes do not tell.
        dtype: index into `dtypes`, of the factors; -1 where they do not tell.
        active_percent: cube_utilization(%), NaN without.
        operator: whether it is one of op_summary's.
    """

    start: Ints
    duration: Ints
    kind: Ints
    name: Ints
    op_type: Ints
    core: Ints
    stream: Ints
    execution: Ints
    int8: Ints
    macs: Ints
    dtype: Ints
    active_percent: npt.NDArray[np.float64]
    operator: npt.NDArray[np.bool_]
    names: tuple[str, ...]
    op_types: tuple[str, ...]
    cores: tuple[str, ...]
    streams: tuple[tuple[str, str], ...]
    dtypes: tuple[str, ...]


_COLUMNS = (
    *("start", "duration", "kind", "name", "op_type", "core", "stream", "execution", "model", "int8", "macs", "dtype"),
    "operator",
)
_TEXTS = ("name", "op_type", "core", "stream", "execution", "model", "dtype")
"""Columns that are numbers of texts."""


@dataclass(slots=True)
class _Columns:
    """Rows of `_COLUMNS`, one behind the other: a list of tuples would take five times the memory."""

    ints: array[int] = field(default_factory=lambda: array("q"))
    active: array[float] = field(default_factory=lambda: array("d"))
    texts: dict[str, dict[object, int]] = field(default_factory=lambda: {name: {} for name in _TEXTS})

    def number(self, column: str, text: object) -> int:
        """Each text has one."""
        known = self.texts[column]
        return known.setdefault(text, len(known))

    def told(self, column: str) -> tuple[str, ...]:
        return tuple(map(str, self.texts[column]))


def read_tasks(folders: Iterable[Path], reading: Reading) -> tuple[Tasks, tuple[Path, ...]]:
    """The tasks below PROF_* folders, and the tables that told of them; none where no table has a time.

    Raises:
        MeasureError: a table cannot be read, or is none.
    """
    places, columns, files = list(folders), _Columns(), []
    for file in tables(places, "op_summary_*.csv"):
        files.append(file)
        for row in rows(file, reading):
            _add(columns, row, file, reading, operator=True)
    for file in tables(places, "task_time_*.csv"):
        files.append(file)
        for row in rows(file, reading):
            kind = row.cell("task_type").upper()
            if kind and kind not in _OF_TYPE:
                _add(columns, row, file, reading, operator=False)
    return _finished(columns), tuple(files)


def _add(columns: _Columns, row: Row, file: Path, reading: Reading, *, operator: bool) -> None:
    duration = row.ns("duration")
    task_type, name = row.name("task_type"), row.name("name")
    op_type = row.name("op_type") or (name if operator else task_type)
    if duration is None or not (op_type or name):
        reading.skipped += 1
        return
    start = row.ns("start")
    types = _types(row.cell("input_types"))
    kind = _kind(task_type.upper(), operator=operator)
    ratio = row.number("int8_ratio")
    int8 = -1 if not types and ratio is None else int("INT8" in types[:2] or bool(ratio))
    dtype = _DTYPES.get(types[0], types[0].lower()) if types else ""
    execution = row.cell("execution")
    percent = row.number("active_percent")
    columns.ints.extend(
        (
            -1 if start is None else start,
            duration,
            KINDS.index(kind),
            columns.number("name", name or op_type),
            columns.number("op_type", op_type),
            columns.number("core", task_type),
            columns.number("stream", (row.cell("device") or _device_beside(file), row.cell("stream") or "0")),
            columns.number("execution", (row.cell("model_id"), execution)) if execution else -1,
            columns.number("model", (row.cell("device"), row.cell("model_id"))),
            int8,
            product_macs(op_type, row) if operator else -1,
            columns.number("dtype", "int8" if int8 == 1 else dtype) if dtype else -1,
            int(operator),
        )
    )
    columns.active.append(float("nan") if percent is None else percent)


def _finished(columns: _Columns) -> Tasks:
    table = np.array(columns.ints, dtype=np.int64).reshape(-1, len(_COLUMNS)).T
    order = np.argsort(table[0], kind="stable")
    told = dict(zip(_COLUMNS, table[:, order], strict=True))
    start, operator, model = told["start"], told.pop("operator") > 0, told.pop("model")
    known = start[start >= 0]
    told["start"] = np.where(start >= 0, start - (known.min() if len(known) else 0), -1)
    told["execution"] = _executions(told["execution"], model, told["name"], operator)
    return Tasks(
        **told,
        active_percent=np.array(columns.active, dtype=np.float64)[order],
        operator=operator,
        names=columns.told("name"),
        op_types=columns.told("op_type"),
        cores=columns.told("core"),
        streams=tuple(place for place in columns.texts["stream"] if isinstance(place, tuple)),
        dtypes=columns.told("dtype"),
    )


def _executions(told: Ints, model: Ints, name: Ints, operator: npt.NDArray[np.bool_]) -> Ints:
    """As the table tells them. By default msprof does not (pyacl.md §5.4): then the one after begins where a name of a
    model comes again."""
    if (told[operator] >= 0).any():
        return told
    found, begun = told.copy(), 0
    seen, number = dict[int, set[int]](), dict[int, int]()
    for task in np.flatnonzero(operator):
        own, what = int(model[task]), int(name[task])
        if own not in seen or what in seen[own]:
            seen[own], number[own] = set(), begun
            begun += 1
        seen[own].add(what)
        found[task] = number[own]
    return found


def kernel_us(tasks: Tasks) -> Mapping[str, float]:
    """Operator → microseconds by which it moves the end of its execution, the median over executions.

    That is its duration and the start in front of it; what runs beside another counts as far as it lasts longer. Over
    all operators it adds up to the execution from the first one's start to the last one's end.
    """
    found: dict[int, list[int]] = defaultdict(list)
    reached: dict[int, int] = {}
    for task in np.flatnonzero(tasks.operator & (tasks.start >= 0) & (tasks.execution >= 0)):
        execution, start = int(tasks.execution[task]), int(tasks.start[task])
        end = start + int(tasks.duration[task])
        before = reached.get(execution, start)
        found[int(tasks.name[task])].append(max(0, end - before))
        reached[execution] = max(before, end)
    return {tasks.names[name]: statistics.median(each) / 1000 for name, each in found.items()}


_DTYPES: Mapping[str, str] = {
    "FLOAT": "float32",
    "FLOAT32": "float32",
    "FLOAT16": "float16",
    "HALF": "float16",
    "BF16": "bfloat16",
    "BFLOAT16": "bfloat16",
}


def _types(text: str) -> list[str]:
    """['INT8', 'FLOAT16'] of 'DT_INT8;DT_FLOAT16'."""
    parts = re.split(r"[;,\s]+", text)
    return [part.strip().strip("\"'").upper().removeprefix("DT_") for part in parts] if text else []


def _kind(task_type: str, *, operator: bool) -> TaskKind:
    if task_type in _OF_TYPE:
        return _OF_TYPE[task_type]
    if operator and not task_type:
        return "cube"  # older tables have no column for it and list operators of the cores alone
    if _COPIES.search(task_type):
        return "copy"
    return "wait" if _WAITS.search(task_type) else "other"


def _device_beside(file: Path) -> str:
    """Of a table without a column for it: the one device that the profile has a folder of."""
    found = [folder.name.removeprefix("device_") for folder in file.parents[1].glob("device_*")]
    return found[0] if len(found) == 1 else "0"


# --- multiply-accumulates of an operator, from the shapes beside it --------------------------------------------------


PRODUCTS = re.compile(r"matmul|conv|fullyconnection|gemm", re.IGNORECASE)
_CONVOLUTION = re.compile(r"conv", re.IGNORECASE)
_SEVERAL = re.compile(r"attention", re.IGNORECASE)
_MOST = 1 << 61


def product_macs(op_type: str, row: Row) -> int:
    """-1 for an operator that is no product, and where the shapes do not tell.

    Of a [b, m, k] · [k, n] the elements of factors and result are bmk, kn and bmn, whose product is the square of the
    multiply-accumulates; of stacks of b products on both sides it is b times that square. It holds in ND and, with
    what is padded counted too, in NZ. Of a convolution every result takes a kernel's weights.
    """
    if not PRODUCTS.search(op_type) or _SEVERAL.search(op_type):
        return -1
    inputs, outputs = _shapes(row.cell("input_shapes")), _shapes(row.cell("output_shapes"))
    if len(inputs) < 2 or not outputs or not all((*inputs[:2], outputs[0])):
        return -1
    first, second, result = inputs[0], inputs[1], outputs[0]
    if _CONVOLUTION.search(op_type):
        channels = _output_channels(second, row.cell("input_formats"))
        macs = math.prod(result) * math.prod(second) // channels if channels else -1
    else:
        square = math.prod(first) * math.prod(second) * math.prod(result)
        macs = math.isqrt(square // _stacked(first, second, row.cell("input_formats")))
    return macs if macs < _MOST else -1


def _shapes(text: str) -> list[tuple[int, ...]]:
    """'1,128;128,64' of a table; () for a scalar and for what is no shape."""
    parts = text.split(";")[:16] if text else []
    return [
        tuple(int(size) for size in re.findall(r"\d{1,9}", part)) if re.fullmatch(r"[\[\]\d,\s]*", part) else ()
        for part in parts
    ]


def _stacked(first: tuple[int, ...], second: tuple[int, ...], formats: str) -> int:
    """Products in a stack: the axes in front of the matrices, where both factors have the same."""
    front = first[: len(first) - _axes(formats, 0)]
    return math.prod(front) if front == second[: len(second) - _axes(formats, 1)] else 1


def _axes(formats: str, factor: int) -> int:
    """Of one matrix: NZ cuts it into blocks, [n1, m1, m0, n0]."""
    return 4 if _layout(formats, factor).endswith("NZ") else 2


def _layout(formats: str, factor: int) -> str:
    layouts = formats.split(";")
    return layouts[factor].strip().upper() if factor < len(layouts) else ""


def _output_channels(weight: tuple[int, ...], formats: str) -> int:
    """0 where the weight's layout does not tell them: NCHW has them in front, FRACTAL_Z is [C1HW, N1, N0, C0]."""
    layout = _layout(formats, 1)
    if layout.startswith("FRACTAL_Z") and len(weight) == 4:
        return weight[1] * weight[2]
    return weight[0] if layout in ("NCHW", "NCDHW", "ND", "") else 0
