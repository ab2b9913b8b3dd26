"""A closed loop's figures with the conditions under which they hold, measured by a load or predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.load.result import P99_ANSWERS, LoadResult
from workbench.shipping.acceptance.verdict import exact
from workbench.values.device_use import Spread
from workbench.values.evidence import Evidence
from workbench.values.measurement import Estimate, ServiceFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """What one closed loop gave.

    Attributes:
        level: 'measured', or 'predicted' and 'modelled' for a rehearsal.
        doubt: why the figures must not be relied on; '' where they may.
        device_memory, service_memory, host_memory: in bytes, of the whole card, of the service on the card, of the
            service's processes on the host.
        power_w: of the card, median.
    """

    concurrency: int
    length: int | None
    batch: int
    throughput_per_s: Estimate
    p50_ms: Estimate | None
    p95_ms: Estimate | None
    p99_ms: Estimate | None
    answers: int
    seconds: float
    level: Evidence = "measured"
    doubt: str = ""
    device_memory: float | None = None
    service_memory: float | None = None
    host_memory: float | None = None
    power_w: Estimate | None = None


def of_load(result: LoadResult) -> LoadFigures | None:
    """A load's figures; None of an open loop, which other platforms' figures are not of."""
    if result.load.arrivals != "closed" or result.load.concurrency is None:
        return None
    cards = [use for use in result.device if not use.emulated]
    power = _together([use.power_w for use in cards])
    few = 0 < result.answered < P99_ANSWERS
    return LoadFigures(
        concurrency=result.load.concurrency,
        length=result.length,
        batch=result.batch,
        throughput_per_s=result.throughput_per_s,
        p50_ms=result.p50_ms,
        p95_ms=result.p95_ms,
        p99_ms=None if few else result.p99_ms,
        answers=result.answered,
        seconds=result.window_s,
        doubt="" if result.reliable else result.notes[0],
        service_memory=result.server.device_memory_bytes if result.server is not None else None,
        device_memory=_together([use.memory_bytes for use in cards]),
        power_w=None if power is None else exact(power),
        host_memory=result.processes.resident_peak_bytes if result.processes is not None else None,
    )


def _together(spreads: Sequence[Spread | None]) -> float | None:
    """The medians of all cards; None where there is none, or one of them does not tell."""
    found = [spread.median for spread in spreads if spread is not None]
    return sum(found) if found and len(found) == len(spreads) else None


def of_prediction(figures: ServiceFigures, length: int | None, *, service_memory: float | None = None) -> LoadFigures:
    """A simulation's figures; by a device's model they are 'modelled'."""
    assert figures.load.concurrency is not None  # asked for closed loops alone
    return LoadFigures(
        concurrency=figures.load.concurrency,
        length=length,
        batch=1,
        throughput_per_s=figures.throughput_per_s,
        p50_ms=figures.p50_ms,
        p95_ms=figures.p95_ms,
        p99_ms=figures.p99_ms,
        answers=figures.requests,
        seconds=figures.requests / max(figures.throughput_per_s.value, 1e-9),
        level="modelled" if figures.clock == "modelled" else "predicted",
        doubt="" if figures.reliable else figures.note,
        service_memory=service_memory,
    )
