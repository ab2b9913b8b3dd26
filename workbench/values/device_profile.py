"""What a device did in a profiled run, as a value: its operators, the time nothing was computed, and why.

The target that profiled fills it in; who shows it knows no vendor. Times are microseconds from the first task's start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.values.documents.canonical import encode

TaskKind = Literal["cube", "vector", "mix", "cpu", "copy", "wait", "other"]
"""What a task occupies: the matrix unit, the vector unit, both, a processor beside the cores, a copy, or nothing."""
COMPUTING: tuple[TaskKind, ...] = ("cube", "vector", "mix")
"""Kinds that keep the device's cores busy."""

Cause = Literal["host launch", "host copy", "host operator", "synchronization", "scheduling"]
"""Why the cores had nothing to do.

host launch: nothing was queued; host copy: data came or went; host operator: an operator ran on a processor beside the
cores; synchronization: a stream waited for another; scheduling: between operators of one execution, nothing else ran.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """One type of operator over the whole run.

    Attributes:
        share: of the time of all operators, 0..1.
        int8: True when one of its calls takes INT8.
    """

    op_type: str
    core: str
    calls: int
    total_us: float
    share: float
    int8: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUse:
    """One stream from its first task's start to its last task's end.

    Attributes:
        stream: device and number.
        busy_us: time in which any task of it ran, waiting for another stream excepted.
        computing_us: in which an operator of it ran on the cores.
    """

    device: str
    stream: str
    tasks: int
    span_us: float
    busy_us: float
    computing_us: float

    @property
    def idle_share(self) -> float:
        return 1.0 - self.busy_us / self.span_us if self.span_us else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """The same gap, between the same two operators on the cores, in however many executions.

    Attributes:
        total_us, median_us, longest_us: in which no operator ran on the device's cores, on any stream of the device.
        within: cause → microseconds of `total_us`; the sum may lie below, as what overlaps counts once.
        tasks: names of what ran in the longest one, longest first, at most a few.
    """

    device: str
    before: str
    after: str
    times: int
    total_us: float
    median_us: float
    longest_us: float
    cause: Cause
    within: Mapping[Cause, float]
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """A profiled run.

    Attributes:
        chip: as the device calls itself; empty where it is not known.
        modelled: its times come from a model of the device, not from one.
        span_us: first start to last end, over all devices.
        operators_us: of all operators, one after the other.
        computing_us: in which an operator ran on the cores of a device, summed over devices; `idle_us` the rest of
            their spans, which is `edges_us`, `short_gaps_us` and the sum of `causes`.
        edges_us: idle before the first operator of a device and after its last, where copies mostly are.
        short_gaps_us: idle in gaps of less than half a microsecond, which are no bubbles.
        bubbles: those that cost most.
        causes: why the cores idled → microseconds, over all gaps of half a microsecond and longer, listed or not.
        conversion_share, quantization_share, product_share: of `operators_us`: what only changes types and layouts,
            what only quantizes, and matrix products with convolutions.
        int8_share: of the products' time, what ran on INT8; None where the tables have no data types.
        notes: what could not be read, and what the compiler told of the files.
        sources: tables that were read.
    """

    chip: str
    modelled: bool
    executions: int
    span_us: float
    operators_us: float
    computing_us: float
    idle_us: float
    edges_us: float
    short_gaps_us: float
    operators: tuple[OperatorTime, ...]
    conversion_share: float
    quantization_share: float
    product_share: float
    int8_share: float | None
    streams: tuple[StreamUse, ...]
    bubbles: tuple[Bubble, ...]
    causes: Mapping[Cause, float]
    notes: tuple[str, ...]
    sources: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        streams = [{**encode(use), "idle_share": use.idle_share} for use in self.streams]
        evidence = "modelled" if self.modelled else "measured"
        return {"version": 1, "evidence": evidence, **encode(self), "streams": streams}
