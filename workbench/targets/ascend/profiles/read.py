"""A profile of msprof as a `DeviceProfile`: `read_profile`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.targets.ascend.profiles.idle import idle_time, stream_uses, us_of
from workbench.targets.ascend.profiles.tables import MOST_ROWS, Reading
from workbench.targets.ascend.profiles.tasks import KINDS, PRODUCTS, Tasks, read_tasks
from workbench.values.device_profile import CubeUse, DeviceProfile, OperatorTime, ProfiledTask
from workbench.values.errors import MeasureError
from workbench.values.modelled_times.device_data import peak_tops

MOST_TASKS = 50_000
"""Of a profile, that are kept one by one."""
_CONVERSIONS = frozenset({"cast", "transdata", "transpose", "transposed", "reformat"})
_QUANTIZATION = frozenset(
    {"ascendquant", "ascenddequant", "ascendantiquant", "quantize", "dequantize", "ascendrequant"}
)
_EMULATED = "emulated.txt"
"""In the folder of each device, written by the emulator beside its tables."""


def read_profile(folders: Iterable[Path], *, chip: str = "") -> DeviceProfile:
    """The tables below PROF_* folders: op_summary and task_time.

    Args:
        chip: what the device calls itself, for its peaks.

    Raises:
        MeasureError: there is none of them, or they hold no operator with a time.
    """
    places = list(folders)
    reading = Reading(left=MOST_ROWS)
    tasks, files = read_tasks(places, reading)
    operators, told = _of_tasks(tasks)
    if not operators:
        looked = ", ".join(map(str, places)) or "no PROF_* folder"
        raise MeasureError(f"No op_summary_*.csv with operators in {looked}.")
    total = sum(operator.total_us for operator in operators)
    products = [operator for operator in operators if PRODUCTS.search(operator.op_type)]
    product_us = sum(operator.total_us for operator in products)
    idle = idle_time(tasks)
    timed = np.flatnonzero(tasks.start >= 0)
    ends = tasks.start[timed] + tasks.duration[timed]
    notes = list(reading.notes())
    if not len(timed):
        notes.append("the tables tell no starts, so nothing is known of idle time")
    elif not (~tasks.operator).any():
        notes.append("there is no task_time table, so copies and waits are not told from other idle time")
    return DeviceProfile(
        chip=chip,
        modelled=any(next(place.rglob(_EMULATED), None) is not None for place in places),
        executions=len(np.unique(tasks.execution[tasks.execution >= 0])),
        span_us=float(ends.max()) / 1000 if len(timed) else 0.0,
        operators_us=total,
        computing_us=idle.computing_ns / 1000,
        idle_us=idle.idle_ns / 1000,
        edges_us=idle.edges_ns / 1000,
        short_gaps_us=idle.short_gaps_ns / 1000,
        operators=tuple(
            replace(operator, share=_part(operator.total_us, total))
            for operator in sorted(operators, key=lambda o: (-o.total_us, o.op_type, o.core))
        ),
        conversion_share=_share(operators, _CONVERSIONS, total),
        quantization_share=_share(operators, _QUANTIZATION, total),
        product_share=_part(product_us, total),
        int8_share=_part(sum(told), product_us) if told else None,
        streams=stream_uses(tasks),
        bubbles=idle.bubbles,
        causes=us_of(idle.causes_ns),
        cube=_cube_use(tasks, chip),
        tasks=_one_by_one(tasks, timed[:MOST_TASKS].tolist()),
        tasks_left_out=max(0, len(timed) - MOST_TASKS),
        notes=tuple(notes),
        sources=tuple(map(str, files)),
    )


def _of_tasks(tasks: Tasks) -> tuple[list[OperatorTime], list[float]]:
    """(each type of operator on each kind of core; of those products whose types are told, microseconds in INT8)."""
    found, products = [], []
    own = np.flatnonzero(tasks.operator)
    keys, groups = np.unique(np.stack([tasks.op_type[own], tasks.core[own]]), axis=1, return_inverse=True)
    for number, (op_type, core) in enumerate(keys.T):
        group = own[groups.reshape(-1) == number]
        int8_us = float(tasks.duration[group[tasks.int8[group] == 1]].sum()) / 1000
        if (tasks.int8[group] >= 0).any() and PRODUCTS.search(tasks.op_types[op_type]):
            products.append(int8_us)
        total_us = float(tasks.duration[group].sum()) / 1000
        found.append(
            OperatorTime(
                op_type=tasks.op_types[op_type],
                core=tasks.cores[core],
                calls=len(group),
                total_us=total_us,
                share=0.0,
                int8=int8_us > 0,
            )
        )
    return found, products


def _cube_use(tasks: Tasks, chip: str) -> tuple[CubeUse, ...]:
    """By number format of the factors, the one that takes most time first; a format that is not told is left out."""
    found = []
    product = np.array([bool(PRODUCTS.search(name)) for name in tasks.op_types], dtype=bool)
    own = np.flatnonzero(tasks.operator & (tasks.dtype >= 0))
    own = own[product[tasks.op_type[own]]] if len(own) else own
    for number, dtype in enumerate(tasks.dtypes):
        group = own[tasks.dtype[own] == number]
        if not len(group):
            continue
        told = group[tasks.macs[group] >= 0]
        active = group[np.isfinite(tasks.active_percent[group]) & (tasks.duration[group] > 0)]
        found.append(
            CubeUse(
                dtype=dtype,
                peak_tops=peak_tops(chip, dtype),
                macs=sum(map(int, tasks.macs[told])),
                told_us=float(tasks.duration[told].sum()) / 1000,
                total_us=float(tasks.duration[group].sum()) / 1000,
                active_percent=(
                    float(np.average(tasks.active_percent[active], weights=tasks.duration[active]))
                    if len(active)
                    else None
                ),
            )
        )
    return tuple(sorted(found, key=lambda use: -use.total_us))


def _one_by_one(tasks: Tasks, chosen: Sequence[int]) -> tuple[ProfiledTask, ...]:
    numbers = {int(key): place for place, key in enumerate(dict.fromkeys(tasks.execution[tasks.execution >= 0]), 1)}
    return tuple(
        ProfiledTask(
            name=tasks.names[tasks.name[task]],
            op_type=tasks.op_types[tasks.op_type[task]],
            kind=KINDS[tasks.kind[task]],
            device=tasks.streams[tasks.stream[task]][0],
            stream=tasks.streams[tasks.stream[task]][1],
            start_us=int(tasks.start[task]) / 1000,
            duration_us=int(tasks.duration[task]) / 1000,
            execution=numbers.get(int(tasks.execution[task])),
            int8=None if tasks.int8[task] < 0 else bool(tasks.int8[task]),
            macs=None if tasks.macs[task] < 0 else int(tasks.macs[task]),
        )
        for task in chosen
    )


def _share(operators: Iterable[OperatorTime], kinds: frozenset[str], total_us: float) -> float:
    return _part(sum(o.total_us for o in operators if o.op_type.lower() in kinds), total_us)


def _part(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
