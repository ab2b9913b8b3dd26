"""A baseline made of loads of another platform's server: every figure with its conditions and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from workbench.load.result import P99_ANSWERS, LoadResult
from workbench.shipping.acceptance.baseline import (
    AcceptanceLimits,
    Baseline,
    BaselineLoad,
    Resource,
    conditions_words,
)
from workbench.values.device_use import Spread
from workbench.values.errors import MeasureError

USUAL_LIMITS = AcceptanceLimits(
    throughput_at_least_percent=80,
    p99_at_most_percent=120,
    int8_throughput_at_least_percent=176,
    accuracy_drop_pp=0.5,
    top1_change_pp=0.5,
    cosine_at_least=0.999,
    max_abs_at_most=1e-3,
    mae_at_most=1e-4,
)
"""What those who move from such a platform ask for; a file of their own takes their place (`--limits-of`)."""


def recorded(
    results: Sequence[LoadResult],
    *,
    name: str,
    about: str,
    source: str,
    limits: AcceptanceLimits = USUAL_LIMITS,
    answers: Path | None = None,
) -> tuple[Baseline, tuple[str, ...]]:
    """(the baseline, what it lacks and why, in sentences).

    Args:
        results: closed loops, at least one.
        limits: those on figures that were not recorded are left out, with a word.

    Raises:
        MeasureError: a load's figures must not be relied on, or it was ended before its time.
    """
    for result in results:
        if not result.reliable or result.interrupted:
            why = result.notes[0] if result.notes else "it was interrupted"
            raise MeasureError(f"{result.url}, {result.load}: not recorded, since {why}.", transient=True)
    loads, lacks = [], []
    for result in results:
        load = _load(result)
        loads.append(load)
        if load.p99_ms is None:
            lacks.append(f"no P99 for {load}: {result.answered} answers, it takes {P99_ANSWERS}; record longer")
    busiest = max(results, key=lambda result: result.load.concurrency or 0)
    memory, power = _memory(busiest), _power(busiest)
    words = conditions_words(busiest.load.concurrency or 0, busiest.length, busiest.batch)
    told = (("memory", memory), ("power", power))
    lacks += [f"no {what}: nothing told it with {words}" for what, resource in told if resource is None]
    kept = limits
    if not any(load.p99_ms for load in loads):
        kept = _without(kept, "p99_at_most_percent")
    kept = kept if memory is not None else _without(kept, "memory_at_most_percent")
    kept = kept if power is not None else _without(kept, "power_at_most_percent")
    baseline = Baseline(
        name=name,
        about=about,
        source=source,
        level="measured",
        loads=tuple(loads),
        memory=memory,
        power=power,
        limits=kept,
        answers=answers,
    )
    return baseline, tuple(lacks)


def _load(result: LoadResult) -> BaselineLoad:
    assert result.load.concurrency is not None  # closed loops alone are recorded
    return BaselineLoad(
        concurrency=result.load.concurrency,
        length=result.length,
        batch=result.batch,
        wire=result.wire,
        seconds=round(result.window_s, 3),
        answers=result.answered,
        throughput_per_s=result.throughput_per_s,
        p50_ms=result.p50_ms,
        p95_ms=result.p95_ms,
        p99_ms=result.p99_ms if result.answered >= P99_ANSWERS else None,
    )


def _memory(result: LoadResult) -> Resource | None:
    """Of the card, of the service on it, or of its processes on the host: the first that is told."""
    words = conditions_words(result.load.concurrency or 0, result.length, result.batch)
    spread = _of_one_card([use.memory_bytes for use in result.device if not use.emulated])
    if spread is not None:
        source = f"{result.device[0].source}, median of {spread.samples} samples with {words}"
        return Resource(value=spread.median / 1e9, of="device", source=source)
    if result.server is not None and result.server.device_memory_bytes is not None:
        return Resource(
            value=result.server.device_memory_bytes / 1e9, of="service", source=f"the service's /metrics with {words}"
        )
    if result.processes is not None:
        return Resource(
            value=result.processes.resident_peak_bytes / 1e9,
            of="host",
            source=f"resident memory of its {result.processes.processes} processes at most, with {words}",
        )
    return None


def _power(result: LoadResult) -> Resource | None:
    spread = _of_one_card([use.power_w for use in result.device if not use.emulated])
    if spread is None:
        return None
    words = conditions_words(result.load.concurrency or 0, result.length, result.batch)
    source = f"{result.device[0].source}, median of {spread.samples} samples with {words}"
    return Resource(value=spread.median, of="device", source=source)


def _of_one_card(spreads: Sequence[Spread | None]) -> Spread | None:
    """None where there are several: which of them serve is not known."""
    return spreads[0] if len(spreads) == 1 else None


def _without(limits: AcceptanceLimits, name: str) -> AcceptanceLimits:
    return replace(limits, **{name: None})
