"""When a device's cores had nothing to do, between which operators, and what went on meanwhile."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.targets.ascend.profiles.tasks import KINDS, Ints, Tasks
from workbench.values.device_profile import COMPUTING, Bubble, Cause, StreamUse

_COMPUTING = [KINDS.index(kind) for kind in COMPUTING]
_WAIT = KINDS.index("wait")
_SHORTEST_NS = 500
"""Shorter gaps are no bubbles: the next task is being started."""
_MOST_BUBBLES = 20
_CAUSES: Mapping[Cause, str] = {
    "host operator": "cpu",
    "host copy": "copy",
    "synchronization": "wait",
    "scheduling": "other",
}
"""Why the cores had nothing to do, by what ran: what is both a wait and something else counts as the other, an operator
before a copy."""


def stream_uses(tasks: Tasks) -> tuple[StreamUse, ...]:
    """Of every stream that has a task with a start, in order of device and stream."""
    found = []
    for number, (device, stream) in enumerate(tasks.streams):
        own = np.flatnonzero((tasks.stream == number) & (tasks.start >= 0))
        if not len(own):
            continue
        times, running = _timeline(tasks, own)
        lengths, waiting = np.diff(times), np.arange(len(KINDS)) == _WAIT
        found.append(
            StreamUse(
                device=device,
                stream=stream,
                tasks=len(own),
                span_us=float(times[-1] - times[0]) / 1000,
                busy_us=float(lengths[running[~waiting].any(axis=0)].sum()) / 1000,
                computing_us=float(lengths[running[_COMPUTING].any(axis=0)].sum()) / 1000,
            )
        )
    return tuple(sorted(found, key=lambda use: (_natural(use.device), _natural(use.stream))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Of all devices together, nanoseconds.

    Attributes:
        computing_ns: in which an operator ran on the cores of a device.
        edges_ns: before the first operator of a device and after its last; all of a device on which none ran.
        short_gaps_ns: between operators, in gaps that are too short to be bubbles.
        bubbles: gaps of the cores, the same pair of neighbours together, those that cost most first.
        causes_ns: of all gaps, listed or not. What a gap holds is looked for on every stream of its device: a copy on
            one stream holds up the model on another.
    """

    computing_ns: int
    idle_ns: int
    edges_ns: int
    short_gaps_ns: int
    bubbles: tuple[Bubble, ...]
    causes_ns: Counter[Cause]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    start_ns: int
    end_ns: int
    within: Counter[Cause]

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


def idle_time(tasks: Tasks) -> Idle:
    """Of every device that has a task with a start."""
    computed = idle = edges = short = 0
    causes: Counter[Cause] = Counter()
    found: dict[tuple[str, int, int], list[_Gap]] = {}
    for device, own in _by_device(tasks):
        times, running = _timeline(tasks, own)
        lengths, busy = np.diff(times), np.any(running[_COMPUTING], axis=0)
        computed += int(lengths[busy].sum())
        idle += int(lengths[~busy].sum())
        at = np.flatnonzero(busy)
        if not len(at):
            edges += int(lengths.sum())
            continue
        edges += int(lengths[: at[0]].sum() + lengths[at[-1] + 1 :].sum())
        apart = np.diff(at) > 1
        begins, ends = at[:-1][apart] + 1, at[1:][apart]
        spent = {cause: ns[ends] - ns[begins] for cause, ns in _spent(lengths, running, np.logical_not(busy)).items()}
        cores = [int(task) for task in own[np.isin(tasks.kind[own], _COMPUTING)] if tasks.duration[task]]
        started = {int(tasks.start[task]): task for task in reversed(cores)}
        ended = {int(tasks.start[task] + tasks.duration[task]): task for task in reversed(cores)}
        for number, (start_ns, end_ns) in enumerate(zip(times[begins].tolist(), times[ends].tolist(), strict=True)):
            if end_ns - start_ns < _SHORTEST_NS:
                short += end_ns - start_ns
                continue
            within = Counter({cause: int(ns[number]) for cause, ns in spent.items()})
            before, after = ended[start_ns], started[end_ns]
            same = tasks.execution[before] == tasks.execution[after] and tasks.execution[before] >= 0
            within["scheduling" if same else "host launch"] += end_ns - start_ns - sum(within.values())
            causes.update(within)
            key = device, int(tasks.name[before]), int(tasks.name[after])
            found.setdefault(key, []).append(_Gap(start_ns=start_ns, end_ns=end_ns, within=within))
    costliest = sorted(found.items(), key=lambda item: (-sum(gap.ns for gap in item[1]), item[0]))[:_MOST_BUBBLES]
    return Idle(
        computing_ns=computed,
        idle_ns=idle,
        edges_ns=edges,
        short_gaps_ns=short,
        bubbles=tuple(_bubble(tasks, *key, gaps) for key, gaps in costliest),
        causes_ns=causes,
    )


def us_of(causes: Counter[Cause]) -> dict[Cause, float]:
    return {cause: ns / 1000 for cause, ns in causes.most_common() if ns}


def _bubble(tasks: Tasks, device: str, before: int, after: int, gaps: list[_Gap]) -> Bubble:
    longest = max(gaps, key=lambda gap: gap.ns)
    within = sum((gap.within for gap in gaps), Counter[Cause]())
    numbers = [number for number, (own, _) in enumerate(tasks.streams) if own == device]
    inside = (tasks.start < longest.end_ns) & (tasks.start + tasks.duration > longest.start_ns) & (tasks.start >= 0)
    inside &= ~np.isin(tasks.kind, _COMPUTING) & np.isin(tasks.stream, numbers)
    by_length = sorted(np.flatnonzero(inside).tolist(), key=lambda task: -int(tasks.duration[task]))
    return Bubble(
        device=device,
        before=tasks.names[before],
        after=tasks.names[after],
        times=len(gaps),
        total_us=sum(gap.ns for gap in gaps) / 1000,
        median_us=statistics.median(gap.ns for gap in gaps) / 1000,
        longest_us=longest.ns / 1000,
        longest_start_us=longest.start_ns / 1000,
        cause=max(within, key=lambda cause: within[cause]),
        within=us_of(within),
        tasks=tuple(dict.fromkeys(_said(tasks, task) for task in by_length[:50]))[:4],
    )


def _by_device(tasks: Tasks) -> Iterator[tuple[str, Ints]]:
    """Device → its tasks that have a start, in order."""
    for device in dict.fromkeys(device for device, _ in tasks.streams):
        numbers = [number for number, (own, _) in enumerate(tasks.streams) if own == device]
        own = np.flatnonzero(np.isin(tasks.stream, numbers) & (tasks.start >= 0))
        if len(own):
            yield device, own


def _timeline(tasks: Tasks, own: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Every start and end, ascending, and which kinds of these tasks run in each interval between two of them."""
    start, kind = tasks.start[own], tasks.kind[own]
    times, places = np.unique(np.concatenate([start, start + tasks.duration[own]]), return_inverse=True)
    change = np.zeros((len(KINDS), len(times)), np.int32)
    np.add.at(change, (kind, places[: len(own)]), 1)
    np.add.at(change, (kind, places[len(own) :]), -1)
    return times, change.cumsum(axis=1, dtype=np.int32)[:, :-1] > 0


def _spent(lengths: Ints, running: npt.NDArray[np.bool_], idle: npt.NDArray[np.bool_]) -> dict[Cause, Ints]:
    """Cause → nanoseconds of it up to each start or end."""
    found: dict[Cause, Ints] = {}
    for cause, kind in _CAUSES.items():
        here = idle & running[KINDS.index(kind)]
        found[cause] = np.concatenate([[0], np.where(here, lengths, 0).cumsum()])
        idle = idle & ~here
    return found


def _said(tasks: Tasks, task: int) -> str:
    name, kind = tasks.names[tasks.name[task]], tasks.op_types[tasks.op_type[task]]
    return kind if name == kind else f"{name} ({kind})"


def _natural(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdecimal() and len(text) < 19 else (1 << 62, text)
