"""A profile of msprof as a `DeviceProfile`: its operators, and when the cores had nothing to do and why."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby, pairwise
from pathlib import Path

from workbench.targets.ascend.profiles.tasks import Task, read_tasks
from workbench.values.device_profile import (
    COMPUTING,
    Bubble,
    Cause,
    DeviceProfile,
    OperatorTime,
    StreamUse,
    TaskKind,
)
from workbench.values.errors import MeasureError

_PRODUCTS = re.compile(r"matmul|conv|fullyconnection|gemm", re.IGNORECASE)
_CONVERSIONS = frozenset({"cast", "transdata", "transpose", "transposed", "reformat"})
_QUANTIZATION = frozenset(
    {"ascendquant", "ascenddequant", "ascendantiquant", "quantize", "dequantize", "ascendrequant"}
)
_EMULATED = "emulated.txt"
"""In the folder of each device, written by the emulator beside its tables."""
_SHORTEST_NS = 500
"""Shorter gaps are no bubbles: the next task is being started."""
_MOST_BUBBLES = 20
_COMPUTING = frozenset(COMPUTING)
_CAUSES: Mapping[TaskKind, Cause] = {
    "cpu": "host operator",
    "copy": "host copy",
    "wait": "synchronization",
    "other": "scheduling",
}
"""Why the cores had nothing to do, by what ran: what is both a wait and something else counts as the other, an operator
before a copy."""


def read_profile(folders: Iterable[Path], *, chip: str = "") -> DeviceProfile:
    """The tables below PROF_* folders: op_summary and task_time.

    Args:
        chip: what the device calls itself.

    Raises:
        MeasureError: there is none of them, or they hold no operator with a time.
    """
    places = list(folders)
    tasks, files, notes = read_tasks(places)
    operators = [task for task in tasks if task.operator]
    if not operators:
        looked = ", ".join(map(str, places)) or "no PROF_* folder"
        raise MeasureError(f"No op_summary_*.csv with operators in {looked}.")
    timed = [task for task in tasks if task.start_ns >= 0]
    if not timed:
        notes.append("the tables tell no starts, so nothing is known of idle time")
    elif len(operators) == len(tasks):
        notes.append("there is no task_time table, so copies and waits are not told from other idle time")
    total = _us(operators)
    products = [task for task in operators if _PRODUCTS.search(task.op_type)]
    spent, gaps = _idle_time(timed)
    causes = Counter[Cause]()
    for _, _, within in (gap for alike in gaps.values() for gap in alike):
        causes.update(within)
    return DeviceProfile(
        chip=chip,
        modelled=any(next(place.rglob(_EMULATED), None) is not None for place in places),
        executions=len({task.execution for task in tasks if task.execution}),
        span_us=max((task.end_ns for task in timed), default=0) / 1000,
        operators_us=total,
        computing_us=spent["computing"] / 1000,
        idle_us=spent["idle"] / 1000,
        edges_us=spent["edges"] / 1000,
        short_gaps_us=spent["short"] / 1000,
        operators=_by_type(operators, total),
        conversion_share=_us(t for t in operators if t.op_type.lower() in _CONVERSIONS) / (total or 1.0),
        quantization_share=_us(t for t in operators if t.op_type.lower() in _QUANTIZATION) / (total or 1.0),
        product_share=_us(products) / (total or 1.0),
        int8_share=_us(task for task in products if task.int8) / (_us(products) or 1.0)
        if any(task.int8 is not None for task in products)
        else None,
        streams=_stream_uses(timed),
        bubbles=tuple(_bubbles(gaps, timed)),
        causes=_us_of(causes),
        notes=tuple(notes),
        sources=tuple(map(str, files)),
    )


def _by_type(operators: Sequence[Task], total: float) -> tuple[OperatorTime, ...]:
    """Each type on each kind of core, the one that takes most time first."""
    found: dict[tuple[str, str], list[Task]] = {}
    for task in operators:
        found.setdefault((task.op_type, task.core), []).append(task)
    times = [
        OperatorTime(
            op_type=op_type,
            core=core,
            calls=len(group),
            total_us=_us(group),
            share=_us(group) / (total or 1.0),
            int8=any(task.int8 and task.duration_ns for task in group),
        )
        for (op_type, core), group in found.items()
    ]
    return tuple(sorted(times, key=lambda one: (-one.total_us, one.op_type, one.core)))


def _stream_uses(timed: Sequence[Task]) -> tuple[StreamUse, ...]:
    """Of every stream that has a task with a start, in order of device and stream."""
    streams: dict[tuple[str, str], list[Task]] = {}
    for task in timed:
        streams.setdefault((task.device, task.stream), []).append(task)
    found = []
    for (device, stream), own in streams.items():
        intervals = list(_intervals(own))
        busy = sum(end - start for start, end, running in intervals if running - {"wait"})
        computing = sum(end - start for start, end, running in intervals if running & _COMPUTING)
        found.append(
            StreamUse(
                device=device,
                stream=stream,
                tasks=len(own),
                span_us=(max(task.end_ns for task in own) - own[0].start_ns) / 1000,
                busy_us=busy / 1000,
                computing_us=computing / 1000,
            )
        )
    return tuple(sorted(found, key=lambda use: (_natural(use.device), _natural(use.stream))))


_Gap = tuple[int, int, Counter[Cause]]
"""The cores of a device have nothing to do, between two operators on them: start, end, what filled it."""
_Gaps = dict[tuple[str, str, str], list[_Gap]]
"""(device, operator before, operator behind) → every gap between two such."""


def _idle_time(timed: Sequence[Task]) -> tuple[Counter[str], _Gaps]:
    """Nanoseconds of all devices together, and gaps.

    `computing`: an operator ran on the cores of a device; `idle`: none did, of which `edges`: before the first operator
    of a device and after its last, all of a device on which none ran; and `short`: gaps that are no bubbles. What a gap
    holds is looked for on every stream of its device: a copy on one stream holds up the model on another.
    """
    spent, gaps = Counter[str](), _Gaps()
    for device in dict.fromkeys(task.device for task in timed):
        own = [task for task in timed if task.device == device]
        cores = [task for task in reversed(own) if task.kind in _COMPUTING and task.duration_ns]
        started, ended = {task.start_ns: task for task in cores}, {task.end_ns: task for task in cores}
        for computing, intervals in groupby(_intervals(own), lambda interval: bool(interval[2] & _COMPUTING)):
            spans = list(intervals)
            start, end = spans[0][0], spans[-1][1]
            spent["computing" if computing else "idle"] += end - start
            if computing:
                continue
            if start not in ended or end not in started:
                spent["edges"] += end - start
            elif end - start < _SHORTEST_NS:
                spent["short"] += end - start
            else:
                before, after, within = ended[start], started[end], Counter[Cause]()
                for begin, stop, running in spans:
                    for cause in [cause for kind, cause in _CAUSES.items() if kind in running][:1]:
                        within[cause] += stop - begin
                same = before.execution is not None and before.execution == after.execution
                within["scheduling" if same else "host launch"] += end - start - within.total()
                gaps.setdefault((device, before.name, after.name), []).append((start, end, within))
    return spent, gaps


def _bubbles(gaps: _Gaps, timed: Sequence[Task]) -> Iterator[Bubble]:
    """The same pair of neighbours together, those that cost most first."""
    lengths = {pair: [end - start for start, end, _ in alike] for pair, alike in gaps.items()}
    for pair in sorted(gaps, key=lambda pair: (-sum(lengths[pair]), pair))[:_MOST_BUBBLES]:
        (device, before, after), alike = pair, gaps[pair]
        start, end, _ = max(alike, key=lambda gap: gap[1] - gap[0])
        within = sum((gap[2] for gap in alike), Counter[Cause]())
        others = [task for task in timed if task.device == device and task.kind not in _COMPUTING]
        inside = [task for task in others if task.start_ns < end and task.end_ns > start]
        inside.sort(key=lambda task: -task.duration_ns)
        names = (task.name if task.name == task.op_type else f"{task.name} ({task.op_type})" for task in inside[:50])
        yield Bubble(
            device=device,
            before=before,
            after=after,
            times=len(alike),
            total_us=sum(lengths[pair]) / 1000,
            median_us=statistics.median(lengths[pair]) / 1000,
            longest_us=(end - start) / 1000,
            cause=max(within, key=lambda cause: within[cause]),
            within=_us_of(within),
            tasks=tuple(dict.fromkeys(names))[:4],
        )


def _intervals(tasks: Sequence[Task]) -> Iterator[tuple[int, int, Set[TaskKind]]]:
    """Between every start or end and the next one: which kinds of these tasks run."""
    changes: dict[int, Counter[TaskKind]] = {}
    for task in tasks:
        changes.setdefault(task.start_ns, Counter())[task.kind] += 1
        changes.setdefault(task.end_ns, Counter())[task.kind] -= 1
    running: Counter[TaskKind] = Counter()
    for start, end in pairwise(sorted(changes)):
        running.update(changes[start])
        yield start, end, {kind for kind, count in running.items() if count > 0}


def _us(tasks: Iterable[Task]) -> float:
    return sum(task.duration_ns for task in tasks) / 1000


def _us_of(causes: Counter[Cause]) -> dict[Cause, float]:
    return {cause: ns / 1000 for cause, ns in causes.most_common() if ns}


def _natural(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdecimal() and len(text) < 19 else (1 << 62, text)
