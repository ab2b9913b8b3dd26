"""Every task of a profile: operators from msprof's op_summary, copies and marks of events from its task_time.

Columns are found by name, whatever the version called them (pyacl.md §5.4). Cells may be quoted, padded with tabs, or
`N/A` where a switch was off. A profile of a long run has gigabytes: `MOST_ROWS` rows are read at most.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from workbench.values.device_profile import TaskKind
from workbench.values.errors import MeasureError

MOST_ROWS = 500_000
"""Of all tables of a profile together."""
_LONGEST_NAME = 300
_MOST_NS = 1 << 62
_NUMBER = re.compile(r"(\d{1,18})(?:\.(\d+))?$")

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "device": ("device_id", "device id"),
    "model_id": ("model id",),
    "stream": ("stream id", "stream_id"),
    "execution": ("infer id", "step id"),
    "name": ("op name", "name", "kernel_name"),
    "op_type": ("op type", "type"),
    "task_type": ("task type", "accelerator core", "core type", "kernel_type"),
    "start": ("task start time(us)", "task start time", "start time(us)", "task_start(us)"),
    "duration": ("task duration(us)", "duration(us)", "task_time(us)"),
    "input_types": ("input data types",),
    "int8_ratio": ("aic_mac_int8_ratio", "mac_int8_ratio"),
}
"""What is read → the names it has had, lower case, by version, and in the tables that torch_npu makes of them."""
_OF_TYPE: Mapping[str, TaskKind] = {
    **{"AI_CORE": "cube", "AI_CUBE_CORE": "cube", "AIC": "cube", "AI_VECTOR_CORE": "vector", "AIV": "vector"},
    **{"MIX_AIC": "mix", "MIX_AIV": "mix", "AI_CPU": "cpu", "AICPU": "cpu"},
}
"""Task Type → what it occupies. An operator whose type is AI_CORE may well be one of vectors: on chips whose cores are
not apart all are."""
_COPIES = re.compile(r"MEMCPY|MEMSET|SDMA|PCIE|DMA")


@dataclass(slots=True, kw_only=True)
class Task:
    """One task of one stream.

    Attributes:
        core: the vendor's type of it.
        start_ns: from the first start of the profile; -1 where the table tells none.
        execution: which call of which model; None where that is not known.
        int8: None where the table does not tell.
        operator: whether it is one of op_summary's.
    """

    name: str
    op_type: str
    core: str
    kind: TaskKind
    device: str
    stream: str
    model: tuple[str, str]
    start_ns: int
    duration_ns: int
    execution: object
    int8: bool | None
    operator: bool

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


def read_tasks(folders: Iterable[Path]) -> tuple[list[Task], list[Path], list[str]]:
    """The tasks below PROF_* folders in order of their start, the tables that told of them, and what could not be read.

    Raises:
        MeasureError: a table cannot be read, or is none.
    """
    places, met = list(folders), Counter[str]()
    tasks, files = list[Task](), list[Path]()
    for pattern in ("op_summary_*.csv", "task_time_*.csv"):
        operator = pattern.startswith("op")
        for file in sorted({file for folder in places for file in islice(folder.rglob(pattern), 10_000)}):
            files.append(file)
            for row in _rows(file, met):
                kind = row.get("task_type", "").upper()
                if operator or (kind and kind not in _OF_TYPE):
                    if (task := _task(row, file, operator=operator)) is None:
                        met["skipped"] += 1
                    else:
                        tasks.append(task)
    tasks.sort(key=lambda task: task.start_ns)
    first = next((task.start_ns for task in tasks if task.start_ns >= 0), 0)
    for task in tasks:
        task.start_ns -= first if task.start_ns >= 0 else 0
    _count_executions([task for task in tasks if task.operator])
    notes = {
        "cut": f"the tables are longer: the first {MOST_ROWS:,} rows were read",
        "skipped": f"{met['skipped']:,} rows have no time that can be read and were left out",
        "unfinished": "a table ends within a row, as of a run that was cut off; that row was left out",
    }
    return tasks, files, [words for what, words in notes.items() if met[what]]


def kernel_us(tasks: Sequence[Task]) -> Mapping[str, float]:
    """Operator → microseconds by which it moves the end of its execution, the median over executions.

    That is its duration and the start in front of it; what runs beside another counts as far as it lasts longer. Over
    all operators it adds up to the execution from the first one's start to the last one's end.
    """
    found: dict[str, list[int]] = defaultdict(list)
    reached: dict[object, int] = {}
    for task in tasks:
        if task.operator and task.start_ns >= 0 and task.execution is not None:
            before = reached.get(task.execution, task.start_ns)
            found[task.name].append(max(0, task.end_ns - before))
            reached[task.execution] = max(before, task.end_ns)
    return {name: statistics.median(each) / 1000 for name, each in found.items()}


def _rows(file: Path, met: Counter[str]) -> Iterator[dict[str, str]]:
    """What is read → its cell, row by row; `N/A` and columns that the table lacks are left out."""
    try:
        with file.open("rb") as content:
            content.seek(max(0, content.seek(0, 2) - 1))
            cut_off = content.read() not in (b"", b"\n", b"\r")
        with file.open(encoding="utf-8-sig", errors="replace", newline="") as text:
            table = csv.reader(text)
            header = [" ".join(name.lower().split()) for name in next(table, [])]
            named = ((column, next((n for n in names if n in header), "")) for column, names in _COLUMNS.items())
            places = {column: header.index(name) for column, name in named if name}
            for cells in table:
                if met["rows"] == MOST_ROWS:
                    met["cut"] += 1
                    return
                met["rows"] += 1
                if cut_off and len(cells) < len(header):
                    met["unfinished"] += 1
                    continue
                told = {column: cells[at].strip(" \t\n\"'") for column, at in places.items() if at < len(cells)}
                yield {column: cell for column, cell in told.items() if cell.upper() != "N/A"}
    except (csv.Error, OSError) as error:
        raise MeasureError(f"{file} is no table of msprof: {error}.") from error


def _task(row: Mapping[str, str], file: Path, *, operator: bool) -> Task | None:
    """None for a row without a time or a name."""
    task_type, name = row.get("task_type", "")[:_LONGEST_NAME], row.get("name", "")[:_LONGEST_NAME]
    op_type = row.get("op_type", "")[:_LONGEST_NAME] or (name if operator else task_type)
    duration, start = _ns(row.get("duration", "")), _ns(row.get("start", ""))
    if duration is None or not (op_type or name):
        return None
    types = [part.upper().removeprefix("DT_") for part in re.split(r"[;,\s\"']+", row.get("input_types", "")) if part]
    ratio = _NUMBER.match(row.get("int8_ratio", ""))
    execution, model_id = row.get("execution"), row.get("model_id", "")
    return Task(
        name=name or op_type,
        op_type=op_type,
        core=task_type,
        kind=_kind(task_type.upper(), operator=operator),
        device=row.get("device") or _device_beside(file),
        stream=row.get("stream") or "0",
        model=(row.get("device", ""), model_id),
        start_ns=-1 if start is None else start,
        duration_ns=duration,
        execution=(model_id, execution) if execution else None,
        int8="INT8" in types[:2] or bool(ratio and float(ratio[0])) if types or ratio else None,
        operator=operator,
    )


def _ns(text: str) -> int | None:
    """Microseconds as whole nanoseconds: a start of the epoch has more digits than a float; None for no number."""
    found = _NUMBER.match(text)
    value = _MOST_NS if found is None else int(found[1]) * 1000 + int(f"{found[2] or ''}000"[:3])
    return value if value < _MOST_NS else None


def _kind(task_type: str, *, operator: bool) -> TaskKind:
    if operator and not task_type:
        return "cube"  # older tables have no column for it and list operators of the cores alone
    if task_type not in _OF_TYPE and _COPIES.search(task_type):
        return "copy"
    return _OF_TYPE.get(task_type, "wait" if "WAIT" in task_type else "other")


def _device_beside(file: Path) -> str:
    """Of a table without a column for it: the one device that the profile has a folder of."""
    found = [folder.name.removeprefix("device_") for folder in file.parents[1].glob("device_*")]
    return found[0] if len(found) == 1 else "0"


def _count_executions(operators: Sequence[Task]) -> None:
    """By default msprof does not tell executions (pyacl.md §5.4): then the one after begins where a name of a model
    comes again."""
    if any(task.execution is not None for task in operators):
        return
    seen: dict[object, set[str]] = {}
    begun = Counter[object]()
    for task in operators:
        if task.name in seen.setdefault(task.model, set()):
            seen[task.model], begun[task.model] = set(), begun[task.model] + 1
        seen[task.model].add(task.name)
        task.execution = task.model, begun[task.model]
