"""When a device's cores had nothing to do, between which operators, and what went on meanwhile."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.targets.ascend.profiles.tasks import KINDS, Ints, Tasks
from workbench.values.device_profile import COMPUTING, Bubble, Cause, StreamUse

_COMPUTING = np.array([KINDS.index(kind) for kind in COMPUTING])
_WAIT = KINDS.index("wait")
_SHORTEST_NS = 500
"""Shorter gaps are no bubbles: the next task is being started."""
_MOST_BUBBLES = 20


def stream_uses(tasks: Tasks) -> tuple[StreamUse, ...]:
    """Of every stream that has a task with a start, in order of device and stream."""
    found = []
    for number, (device, stream) in enumerate(tasks.streams):
        own = np.flatnonzero((tasks.stream == number) & (tasks.start >= 0))
        if not len(own):
            continue
        start, end = tasks.start[own], tasks.start[own] + tasks.duration[own]
        working = tasks.kind[own] != _WAIT
        computing = np.isin(tasks.kind[own], _COMPUTING)
        found.append(
            StreamUse(
                device=device,
                stream=stream,
                tasks=len(own),
                span_us=float(end.max() - start.min()) / 1000,
                busy_us=_covered_ns(start[working], end[working]) / 1000,
                computing_us=_covered_ns(start[computing], end[computing]) / 1000,
            )
        )
    return tuple(sorted(found, key=lambda use: (_natural(use.device), _natural(use.stream))))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """Of one device: nanoseconds between its first start and its last end, and those in which its cores computed.

    Attributes:
        edges_ns: before the first operator and after the last; all of it where none ran on the cores.
        short_gaps_ns: between operators, in gaps that are too short to be bubbles.
    """

    device: str
    span_ns: int
    computing_ns: int
    edges_ns: int
    short_gaps_ns: int


def device_times(tasks: Tasks) -> tuple[DeviceTime, ...]:
    """Of every device that has a task with a start."""
    found = []
    for device, own in _by_device(tasks):
        start, end = tasks.start[own], tasks.start[own] + tasks.duration[own]
        computing = np.isin(tasks.kind[own], _COMPUTING)
        span_ns, first, last = int(end.max() - start.min()), start[computing], end[computing]
        gaps = _gaps_ns(first, last)
        found.append(
            DeviceTime(
                device=device,
                span_ns=span_ns,
                computing_ns=_covered_ns(first, last),
                edges_ns=span_ns - int(last.max() - first.min()) if len(first) else span_ns,
                short_gaps_ns=int(gaps[gaps < _SHORTEST_NS].sum()),
            )
        )
    return tuple(found)


@dataclass(slots=True)
class _Gaps:
    each_ns: list[int] = field(default_factory=list)
    longest_ns: int = 0
    longest_start_ns: int = 0
    within: Counter[Cause] = field(default_factory=Counter)
    tasks: tuple[str, ...] = ()


def bubbles(tasks: Tasks) -> tuple[tuple[Bubble, ...], Mapping[Cause, float]]:
    """Gaps of the cores, the same pair of neighbours together, those that cost most first; and cause → microseconds of
    all gaps, listed or not.

    What a gap holds is looked for on every stream of its device: a copy on one stream holds up the model on another.
    """
    found: dict[tuple[str, int, int], _Gaps] = {}
    for device, own in _by_device(tasks):
        computing = own[np.isin(tasks.kind[own], _COMPUTING)]
        others = own[~np.isin(tasks.kind[own], _COMPUTING) & (tasks.duration[own] > 0)]
        for before, after, start_ns, end_ns, inside in _gaps(tasks, computing, others):
            key = device, int(tasks.name[before]), int(tasks.name[after])
            gaps = found.setdefault(key, _Gaps())
            gaps.each_ns.append(end_ns - start_ns)
            within = _within(tasks, inside, start_ns, end_ns)
            same = tasks.execution[before] == tasks.execution[after] and tasks.execution[before] >= 0
            rest = end_ns - start_ns - sum(within.values())
            within["scheduling" if same else "host launch"] += max(0, rest)
            gaps.within.update(within)
            if end_ns - start_ns > gaps.longest_ns:
                gaps.longest_ns, gaps.longest_start_ns = end_ns - start_ns, start_ns
                longest = sorted(inside, key=lambda task: -int(tasks.duration[task]))
                gaps.tasks = tuple(dict.fromkeys(_said(tasks, task) for task in longest[:50]))[:4]
    costliest = sorted(found.items(), key=lambda item: (-sum(item[1].each_ns), item[0]))[:_MOST_BUBBLES]
    causes = sum((gaps.within for gaps in found.values()), Counter[Cause]())
    listed = tuple(
        Bubble(
            device=device,
            before=tasks.names[before],
            after=tasks.names[after],
            times=len(gaps.each_ns),
            total_us=sum(gaps.each_ns) / 1000,
            median_us=statistics.median(gaps.each_ns) / 1000,
            longest_us=gaps.longest_ns / 1000,
            longest_start_us=gaps.longest_start_ns / 1000,
            cause=max(gaps.within, key=lambda cause: gaps.within[cause]),
            within={cause: ns / 1000 for cause, ns in gaps.within.most_common() if ns},
            tasks=gaps.tasks,
        )
        for (device, before, after), gaps in costliest
    )
    return listed, {cause: ns / 1000 for cause, ns in causes.most_common() if ns}


def _by_device(tasks: Tasks) -> Iterator[tuple[str, Ints]]:
    """Device → its tasks that have a start, in order."""
    for device in dict.fromkeys(device for device, _ in tasks.streams):
        numbers = [number for number, (own, _) in enumerate(tasks.streams) if own == device]
        own = np.flatnonzero(np.isin(tasks.stream, numbers) & (tasks.start >= 0))
        if len(own):
            yield device, own


def _gaps(tasks: Tasks, computing: Ints, others: Ints) -> Iterator[tuple[int, int, int, int, list[int]]]:
    """(operator before, operator after, start, end, other tasks that overlap) of each gap, in order."""
    reached, last = -1, -1
    at, alive = 0, list[int]()
    for task in map(int, computing):
        start_ns = int(tasks.start[task])
        if last >= 0 and start_ns - reached >= _SHORTEST_NS:
            while at < len(others) and tasks.start[others[at]] < start_ns:
                alive.append(int(others[at]))
                at += 1
            alive = [other for other in alive if tasks.start[other] + tasks.duration[other] > reached]
            yield last, task, reached, start_ns, list(alive)
        end_ns = start_ns + int(tasks.duration[task])
        if end_ns > reached:
            reached, last = end_ns, task


def _within(tasks: Tasks, inside: Sequence[int], start_ns: int, end_ns: int) -> Counter[Cause]:
    """Cause → nanoseconds: what is both a wait and something else counts as the other, an operator before a copy."""
    found: Counter[Cause] = Counter()
    taken: list[tuple[int, int]] = []
    for cause, kinds in _CAUSES.items():
        spans = [
            (max(start_ns, int(tasks.start[t])), min(end_ns, int(tasks.start[t] + tasks.duration[t])))
            for t in inside
            if KINDS[tasks.kind[t]] in kinds
        ]
        before = _covered_ns(*_ends(taken))
        taken += spans
        if (more := _covered_ns(*_ends(taken)) - before) > 0:
            found[cause] = more
    return found


_CAUSES: Mapping[Cause, tuple[str, ...]] = {
    "host operator": ("cpu",),
    "host copy": ("copy",),
    "synchronization": ("wait",),
    "scheduling": ("other",),
}
"""What ran → why the cores had nothing to do; the first that applies."""


def _ends(spans: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    table = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _gaps_ns(start: Ints, end: Ints) -> Ints:
    """Lengths of what lies between intervals and in none of them."""
    order = np.argsort(start, kind="stable")
    gaps: Ints = np.maximum(0, start[order][1:] - np.maximum.accumulate(end[order])[:-1])
    return gaps


def _covered_ns(start: Ints, end: Ints) -> int:
    """Length of the union of intervals."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    begins, ends = start[order], np.maximum.accumulate(end[order])
    reached = np.concatenate([begins[:1], ends[:-1]])
    return int(np.maximum(0, ends - np.maximum(begins, reached)).sum())


def _said(tasks: Tasks, task: int) -> str:
    name, kind = tasks.names[tasks.name[task]], tasks.op_types[tasks.op_type[task]]
    return kind if name == kind else f"{name} ({kind})"


def _natural(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdecimal() and len(text) < 19 else (1 << 62, text)
