"""A baseline file: another platform's figures with the conditions they were taken under, and what must be kept.

`workbench baseline record` writes one from a server; published figures are typed in. Either way no figure is without
its load: clients, length, samples a request.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from workbench.load.result import P99_ANSWERS, LoadResult
from workbench.shipping.acceptance.verdict import Bound, Key, exact
from workbench.values.device_use import Spread
from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.errors import MeasureError
from workbench.values.measurement import Estimate, former_name
from workbench.values.system.files import write_text_atomically

ZONE = "accuracy_zone_pp"
"""Beside the limits: the zone of the gate on the accuracy loss (`values.sequential`), in percentage points."""
Level = Literal["published", "measured"]
ResourceOf = Literal["device", "service", "host"]
"""What a resource is of: the whole card, whoever uses it; what the service itself holds of the card; all processes of
the service on the host."""


_log = logging.getLogger(__name__)


class Limited(NamedTuple):
    """What a limit is on. Attributes: limit: its key; of: the field of `LoadFigures`, or of `Agreement`."""

    limit: str
    name: str
    unit: str
    bound: Bound
    of: str = ""


LIMITED: dict[Key, Limited] = {
    # a share of the baseline's figure under the same load
    "throughput": Limited("throughput_at_least_percent", "throughput", "requests/s", "at least", "throughput_per_s"),
    "p50": Limited("p50_at_most_percent", "P50", "ms", "at most", "p50_ms"),
    "p95": Limited("p95_at_most_percent", "P95", "ms", "at most", "p95_ms"),
    "p99": Limited("p99_at_most_percent", "P99", "ms", "at most", "p99_ms"),
    # of the float model's service as it runs on the new platform today; 176 is 76 % more. For INT8 alone
    "int8 throughput": Limited("int8_throughput_at_least_percent", "INT8 throughput over float's", "%", "at least"),
    # of the primary metric, below the float model
    "accuracy drop": Limited("accuracy_loss_pp", "accuracy loss", "pp", "at most"),
    # samples with another best class than the other platform's answer, in percent of all
    "top-1 change": Limited("top1_change_pp", "top-1 change", "pp", "at most"),
    # worst sample of the float path, before any INT8; and of what ships
    "cosine": Limited("cosine_at_least", "cosine of the float path", "", "at least", "worst_cosine"),
    "served cosine": Limited("served_cosine_at_least", "cosine of what ships", "", "at least", "worst_cosine"),
    "max abs": Limited("max_abs_at_most", "max abs of the float path", "", "at most", "max_abs"),
    "mae": Limited("mae_at_most", "MAE of the float path", "", "at most", "mae"),
    "memory": Limited("memory_at_most_percent", "memory", "GB", "at most"),
    "power": Limited("power_at_most_percent", "power", "W", "at most"),
}
TIMED: tuple[Key, ...] = ("throughput", "p50", "p95", "p99")
TIMES = tuple(LIMITED[key].of for key in TIMED)

USUAL_LIMITS: Mapping[str, float] = {
    "throughput_at_least_percent": 80,
    "p99_at_most_percent": 120,
    "int8_throughput_at_least_percent": 176,
    "accuracy_loss_pp": 0.5,
    "top1_change_pp": 0.5,
    "cosine_at_least": 0.999,
    "max_abs_at_most": 1e-3,
    "mae_at_most": 1e-4,
}
"""What those who move from such a platform ask for; a file of their own takes their place (`--limits-of`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Memory in GB (1e9 bytes) or power in W, under a load.

    Attributes:
        of: None where nobody said it: nothing can be compared with it then.
        source: where it was read, in words.
    """

    value: float
    of: ResourceOf | None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """One closed loop and what it gave: the baseline's, or ours. Without an interval where nobody published one.

    Attributes:
        length: tokens of every text; None for texts of their own lengths, or where nobody said it.
        batch: samples in each request.
        wire: what requests looked like; '' where nobody said it.
        seconds, answers: how much data its figures rest on; None where nobody said it.
        doubt: why the figures must not be relied on; '' where they may.
        memory, power: that were read under this load.
        cards: that they are of together; of several it is not known which served.
    """

    concurrency: int
    length: int | None = None
    batch: int = 1
    wire: str = ""
    seconds: float | None = None
    answers: int | None = None
    throughput_per_s: Estimate | None = None
    p50_ms: Estimate | None = None
    p95_ms: Estimate | None = None
    p99_ms: Estimate | None = None
    doubt: str = ""
    memory: tuple[Resource, ...] = ()
    power: Resource | None = None
    cards: int = 0

    def __str__(self) -> str:
        """'100 clients, length 512, batch 8'."""
        words = [f"{self.concurrency} client{'s' if self.concurrency > 1 else ''}"]
        words += [f"length {self.length}"] if self.length is not None else []
        words += [f"batch {self.batch}"] if self.batch > 1 else []
        return ", ".join(words)

    @property
    def conditions(self) -> tuple[int, int | None, int]:
        """Figures are compared where these are equal: clients, length, batch."""
        return self.concurrency, self.length, self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A baseline file.

    Attributes:
        source: who measured the figures, and what is known about how.
        level: 'published' figures have no intervals, and nobody here saw them measured.
        memory, power: under the load of the throughput.
        limits: what a bundle must keep, by the keys in `LIMITED`; what is not there has no limit. And the `ZONE`.
        answers: what the platform answered (`workbench.inputs.answers`), for `workbench agreement --reference`.
    """

    name: str
    about: str
    source: str
    level: Level
    loads: tuple[LoadFigures, ...]
    memory: Resource | None
    power: Resource | None
    limits: Mapping[str, float]
    answers: Path | None = None


def of_load(result: LoadResult) -> LoadFigures | None:
    """A load's figures; None of an open loop, which other platforms' figures are not of."""
    if result.load.arrivals != "closed" or result.load.concurrency is None:
        return None
    found = LoadFigures(
        concurrency=result.load.concurrency,
        length=result.length,
        batch=result.batch,
        wire=result.wire,
        seconds=result.window_s,
        answers=result.answered,
        throughput_per_s=result.throughput_per_s,
        p50_ms=result.p50_ms,
        p95_ms=result.p95_ms,
        p99_ms=result.p99_ms if result.answered >= P99_ANSWERS else None,
        doubt="" if result.reliable else result.notes[0],
    )
    cards = [use for use in result.device if not use.emulated]

    def of_cards(spreads: Sequence[Spread | None], unit: float) -> Resource | None:
        """The medians of all cards; None where there is none, or one of them does not tell."""
        told = [spread for spread in spreads if spread is not None]
        if not told or len(told) < len(spreads):
            return None
        source = f"{cards[0].source}, median of {told[0].samples} samples with {found}"
        return Resource(value=sum(spread.median for spread in told) / unit, of="device", source=source)

    memory = [of_cards([use.memory_bytes for use in cards], 1e9)]
    if result.server is not None and (held := result.server.device_memory_bytes) is not None:
        memory.append(Resource(value=held / 1e9, of="service", source=f"the service's /metrics with {found}"))
    if (host := result.processes) is not None:
        source = f"resident memory of its {host.processes} processes at most, with {found}"
        memory.append(Resource(value=host.resident_peak_bytes / 1e9, of="host", source=source))
    power = of_cards([use.power_w for use in cards], 1.0)
    return replace(found, memory=tuple(filter(None, memory)), power=power, cards=len(cards))


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file.

    Raises:
        ConfigError: missing, malformed, with an unknown key, or a limit on a share of a figure that is not given; names
            file, line and key.
    """
    with read_yaml(path) as top:
        with top.section("limits") as section:
            former = {former_name(known.limit): known.limit for known in LIMITED.values()} | {ZONE: ZONE}
            asked = {limit: _positive(section, name if section.has(name) else limit) for name, limit in former.items()}
            for name, limit in former.items():
                if name != limit and section.has(name):
                    _log.warning("%s: `%s` is called `%s` now; write that.", path, name, limit)
        loads = []
        for section in top.items("loads"):
            with section:
                loads.append(
                    LoadFigures(
                        concurrency=section.integer("concurrency", minimum=1),
                        length=_whole(section, "length"),
                        batch=section.integer("batch", 1, minimum=1),
                        wire=section.text("wire", ""),
                        seconds=_positive(section, "seconds"),
                        answers=_whole(section, "answers"),
                        **{name: _estimate(section, name) for name in TIMES},  # type: ignore[arg-type]  # these four
                    )
                )
        if len({load.conditions for load in loads}) < len(loads):
            raise top.error("loads", "two entries are of one load.")
        found = Baseline(
            name=top.name("name"),
            about=top.text("about", ""),
            source=top.text("source"),
            level=cast(Level, top.text("level", "published", get_args(Level))),
            loads=tuple(loads),
            memory=_resource(top, "memory_gb"),
            power=_resource(top, "power_w"),
            limits={name: limit for name, limit in asked.items() if limit is not None},
            answers=top.optional("answers", lambda key: top.file_path(key, must_exist=False)),
        )
        given: dict[Key, object] = {"memory": found.memory, "power": found.power}
        for key in TIMED:
            given[key] = any(getattr(load, LIMITED[key].of) for load in loads)
        for key, there in given.items():
            if LIMITED[key].limit in found.limits and not there:
                hint = f"Add {LIMITED[key].of}." if key in TIMED else None
                raise top.section("limits").error(LIMITED[key].limit, "is a share of a figure that is not given.", hint)
    return found


def recorded(
    results: Sequence[LoadResult],
    *,
    name: str,
    about: str,
    source: str,
    limits: Mapping[str, float] = USUAL_LIMITS,
    answers: Path | None = None,
) -> tuple[Baseline, tuple[str, ...]]:
    """(a baseline of loads of another platform's server, what it lacks and why, in sentences).

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
    loads = [figures for result in results if (figures := of_load(result)) is not None]
    lacks = [
        f"no P99 for {load}: {load.answers} answers, it takes {P99_ANSWERS}; record longer"
        for load in loads
        if load.p99_ms is None
    ]
    busiest = max(loads, key=lambda load: load.concurrency)
    memory = next((one for one in busiest.memory if one.of != "device" or busiest.cards == 1), None)
    power = busiest.power if busiest.cards == 1 else None
    unknown: list[Key] = [] if any(load.p99_ms for load in loads) else ["p99"]
    resources: dict[Key, Resource | None] = {"memory": memory, "power": power}
    for key, resource in resources.items():
        if resource is None:
            lacks.append(f"no {key}: nothing told it with {busiest}")
            unknown.append(key)
    left_out = {LIMITED[key].limit for key in unknown}
    baseline = Baseline(
        name=name,
        about=about,
        source=source,
        level="measured",
        loads=tuple(
            replace(load, seconds=round(load.seconds or 0.0, 3), memory=(), power=None, cards=0) for load in loads
        ),
        memory=memory,
        power=power,
        limits={name: limit for name, limit in limits.items() if name not in left_out},
        answers=answers,
    )
    return baseline, tuple(lacks)


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Write a file that `read_baseline` reads; whole or not at all."""

    def as_json(value: object) -> str:
        """YAML reads it alike."""
        return json.dumps(value, ensure_ascii=False)

    def number(value: float) -> float:
        return float(f"{value:.6g}")

    def interval(value: Estimate) -> dict[str, float]:
        return {"value": number(value.value), "low": number(value.low), "high": number(value.high)}

    def resource(value: Resource | None) -> dict[str, Any] | None:
        if value is None:
            return None
        of = {} if value.of is None else {"of": value.of}
        return {"value": number(value.value), **of, "source": value.source}

    loads = []
    for load in baseline.loads:
        plain = {name: getattr(load, name) for name in ("concurrency", "length", "batch", "wire", "seconds", "answers")}
        plain |= {name: interval(value) for name in TIMES if (value := getattr(load, name)) is not None}
        loads.append({name: value for name, value in plain.items() if value not in (None, "")})
    body = {name: getattr(baseline, name) for name in ("name", "about", "source", "level")}
    body |= {"memory_gb": resource(baseline.memory), "power_w": resource(baseline.power)}
    body["answers"] = None if baseline.answers is None else baseline.answers.name
    lines = [
        "# workbench load BUNDLE --baseline THIS judges by it. Limits are yours: change them here.",
        "version: 1",
        *(f"{name}: {as_json(value)}" for name, value in body.items() if value is not None),
        *("loads:", *(f"  - {as_json(load)}" for load in loads)),
        *("limits:", *(f"  {name}: {as_json(value)}" for name, value in baseline.limits.items())),
    ]
    write_text_atomically(path, "\n".join(lines) + "\n")


def _resource(top: Section, key: str) -> Resource | None:
    if not top.has(key):
        return None
    with top.section(key) as section:
        of = section.optional("of", lambda name: section.text(name, choices=get_args(ResourceOf)))
        value = section.number("value", minimum=0.0)
        return Resource(value=value, of=cast(ResourceOf | None, of), source=section.text("source", ""))


def _estimate(section: Section, name: str) -> Estimate | None:
    """A number, or one with the ends of its 95 % interval."""
    if not section.has(name) or section.raw(name) is None:
        return None
    if not isinstance(section.raw(name), dict):
        return exact(section.number(name, minimum=0.0))
    with section.section(name) as inner:
        value, low, high = (inner.number(key, minimum=0.0) for key in ("value", "low", "high"))
        if not low <= value <= high:
            raise inner.error("value", f"{value:g} is outside of its interval, {low:g} to {high:g}.")
    return Estimate(value=value, low=low, high=high)


def _positive(section: Section, key: str) -> float | None:
    return section.optional(key, lambda name: section.number(name, minimum=0.0))


def _whole(section: Section, key: str) -> int | None:
    return section.optional(key, lambda name: section.integer(name, minimum=1))
