"""A baseline file: another platform's figures with the conditions they were taken under, and what must be kept.

`workbench baseline record` writes one from a server; published figures are typed in. Either way no figure is without
its load: clients, length, samples a request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.measurement import Estimate
from workbench.values.system.files import write_text_atomically

Level = Literal["published", "measured"]
ResourceOf = Literal["device", "service", "host"]
"""What a resource is of: the whole card, whoever uses it; what the service itself holds of the card; all processes of
the service on the host."""

TIMES = ("throughput_per_s", "p50_ms", "p95_ms", "p99_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceLimits:
    """What a bundle must keep; None is no limit.

    Attributes:
        throughput_at_least_percent … power_at_most_percent: of the baseline's figure under the same load.
        int8_throughput_at_least_percent: of the float model's service as it runs on the new platform today, under the
            same load; 176 is 76 % more. For INT8 alone.
        accuracy_drop_pp: of the primary metric, below the float model.
        top1_change_pp: samples with another best class than the other platform's answer, in percent of all.
        cosine_at_least: worst sample of the float path, before any INT8; `served_cosine_at_least`: of what ships.
        max_abs_at_most, mae_at_most: of the float path's outputs.
    """

    throughput_at_least_percent: float | None = None
    p50_at_most_percent: float | None = None
    p95_at_most_percent: float | None = None
    p99_at_most_percent: float | None = None
    memory_at_most_percent: float | None = None
    power_at_most_percent: float | None = None
    int8_throughput_at_least_percent: float | None = None
    accuracy_drop_pp: float | None = None
    top1_change_pp: float | None = None
    cosine_at_least: float | None = None
    served_cosine_at_least: float | None = None
    max_abs_at_most: float | None = None
    mae_at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineLoad:
    """One closed loop and what it gave; without an interval where nobody published one.

    Attributes:
        length: tokens of every text; None for texts of their own lengths, or where nobody said it.
        batch: samples in each request.
        wire: what requests looked like; '' where nobody said it.
        seconds, answers: how much data its figures rest on; None where nobody said it.
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

    def __str__(self) -> str:
        return conditions_words(self.concurrency, self.length, self.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Memory in GB (1e9 bytes) or power in W, under the load of the throughput.

    Attributes:
        of: None where nobody said it: nothing can be compared with it then.
        source: where it was read, in words.
    """

    value: float
    of: ResourceOf | None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A baseline file.

    Attributes:
        source: who measured the figures, and what is known about how.
        level: 'published' figures have no intervals, and nobody here saw them measured.
        answers: what the platform answered (`workbench.inputs.answers`), for `workbench fidelity --reference`.
    """

    name: str
    about: str
    source: str
    level: Level
    loads: tuple[BaselineLoad, ...]
    memory: Resource | None
    power: Resource | None
    limits: AcceptanceLimits
    answers: Path | None = None


def conditions_words(concurrency: int, length: int | None, batch: int) -> str:
    """'100 clients, length 512, batch 8'."""
    words = [f"{concurrency} client{'s' if concurrency > 1 else ''}"]
    words += [f"length {length}"] if length is not None else []
    words += [f"batch {batch}"] if batch > 1 else []
    return ", ".join(words)


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file: `loads`, or `figures` with their `conditions` where there is one load for latencies and one
    for the throughput.

    Raises:
        ConfigError: missing, malformed, with an unknown key, or a limit on a share of a figure that is not given; names
            file, line and key.
    """
    with read_yaml(path) as top:
        with top.section("limits") as section:
            names = AcceptanceLimits.__dataclass_fields__
            limits = AcceptanceLimits(**{name: _positive(section, name) for name in names})
        loads, memory, power = _listed(top) if top.has("loads") else _two(top)
        answers = top.optional("answers", lambda key: top.file_path(key, must_exist=False))
        found = Baseline(
            name=top.name("name"),
            about=top.text("about", ""),
            source=top.text("source"),
            level=cast(Level, top.text("level", "published", get_args(Level))),
            loads=loads,
            memory=memory,
            power=power,
            limits=limits,
            answers=answers,
        )
        of_times = zip(("throughput_at_least", "p50_at_most", "p95_at_most", "p99_at_most"), TIMES, strict=True)
        for limit, name in ((f"{limit}_percent", name) for limit, name in of_times):
            if getattr(limits, limit) is not None and not any(getattr(load, name) for load in loads):
                raise top.section("limits").error(limit, "is a share of a figure that is not given.", f"Add {name}.")
        for limit, resource in (("memory_at_most_percent", memory), ("power_at_most_percent", power)):
            if getattr(limits, limit) is not None and resource is None:
                raise top.section("limits").error(limit, "is a share of a figure that is not given.")
    return found


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Write a file that `read_baseline` reads; whole or not at all."""
    lines = ["# workbench load BUNDLE --baseline THIS judges by it. Limits are yours: change them here.", "version: 1"]
    for name in ("name", "about", "source", "level"):
        lines.append(f"{name}: {_scalar(getattr(baseline, name))}")
    lines.append("loads:")
    for load in baseline.loads:
        first, *rest = (f"{name}: {_flow(value)}" for name, value in _plain_load(load).items())
        lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    for name, resource in (("memory_gb", baseline.memory), ("power_w", baseline.power)):
        if resource is not None:
            entry = {"value": float(f"{resource.value:.6g}"), "of": resource.of, "source": resource.source}
            lines.append(f"{name}: {_flow({key: value for key, value in entry.items() if value is not None})}")
    if baseline.answers is not None:
        lines.append(f"answers: {_scalar(baseline.answers.name)}")
    lines.append("limits:")
    for name in AcceptanceLimits.__dataclass_fields__:
        if (value := getattr(baseline.limits, name)) is not None:
            lines.append(f"  {name}: {_scalar(value)}")
    write_text_atomically(path, "\n".join(lines) + "\n")


def _listed(top: Section) -> tuple[tuple[BaselineLoad, ...], Resource | None, Resource | None]:
    loads = []
    for section in top.items("loads"):
        with section:
            loads.append(
                BaselineLoad(
                    concurrency=section.integer("concurrency", minimum=1),
                    length=_whole(section, "length"),
                    batch=section.integer("batch", 1, minimum=1),
                    wire=section.text("wire", ""),
                    seconds=_positive(section, "seconds"),
                    answers=_whole(section, "answers"),
                    **{name: _estimate(section, name) for name in TIMES},
                )
            )
    if len({(load.concurrency, load.length, load.batch) for load in loads}) < len(loads):
        raise top.error("loads", "two entries are of one load.")
    return tuple(loads), _resource(top, "memory_gb"), _resource(top, "power_w")


def _two(top: Section) -> tuple[tuple[BaselineLoad, ...], Resource | None, Resource | None]:
    """Latencies under one load and throughput under another, as platforms are published."""
    with top.section("figures") as figures:
        rate, p50, p95, p99 = (_estimate(figures, name) for name in TIMES)
        memory, power = (_positive(figures, name) for name in ("memory_gb", "power_w"))
    of: ResourceOf | None = None
    with top.section("conditions") as conditions:
        latency, throughput = _conditions(conditions, "latency", 1), _conditions(conditions, "throughput", 100)
        if conditions.has("memory"):
            with conditions.section("memory") as section:
                of = _of(section)
    loads: tuple[BaselineLoad, ...]
    timed = replace(latency, p50_ms=p50, p95_ms=p95, p99_ms=p99)
    loads = (timed, replace(throughput, throughput_per_s=rate))
    if latency == throughput:
        loads = (replace(timed, throughput_per_s=rate),)
    used = None if memory is None else Resource(value=memory, of=of, source="as the other figures")
    drawn = None if power is None else Resource(value=power, of="device", source="as the other figures")
    return loads, used, drawn


def _conditions(conditions: Section, kind: str, concurrency: int) -> BaselineLoad:
    with conditions.section(kind) as section:
        return BaselineLoad(
            concurrency=section.integer("concurrency", concurrency, minimum=1),
            length=_whole(section, "length"),
            batch=section.integer("batch", 1, minimum=1),
        )


def _resource(top: Section, key: str) -> Resource | None:
    if not top.has(key):
        return None
    with top.section(key) as section:
        return Resource(value=section.number("value", minimum=0.0), of=_of(section), source=section.text("source", ""))


def _of(section: Section) -> ResourceOf | None:
    found = section.optional("of", lambda key: section.text(key, choices=get_args(ResourceOf)))
    return cast(ResourceOf | None, found)


def _estimate(section: Section, name: str) -> Estimate | None:
    """A number, or one with the ends of its 95 % interval."""
    if not section.has(name) or section.raw(name) is None:
        return None
    if not isinstance(section.raw(name), dict):
        value = section.number(name, minimum=0.0)
        return Estimate(value=value, low=value, high=value)
    with section.section(name) as inner:
        value, low, high = (inner.number(key, minimum=0.0) for key in ("value", "low", "high"))
        if not low <= value <= high:
            raise inner.error("value", f"{value:g} is outside of its interval, {low:g} to {high:g}.")
    return Estimate(value=value, low=low, high=high)


def _plain_load(load: BaselineLoad) -> dict[str, object]:
    plain: dict[str, object] = {"concurrency": load.concurrency, "length": load.length, "batch": load.batch}
    plain |= {"wire": load.wire, "seconds": load.seconds, "answers": load.answers}
    for name in TIMES:
        estimate: Estimate | None = getattr(load, name)
        if estimate is not None:
            plain[name] = {key: float(f"{getattr(estimate, key):.6g}") for key in ("value", "low", "high")}
    return {key: value for key, value in plain.items() if value not in (None, "")}


def _flow(value: object) -> str:
    """A mapping on one line, or a scalar."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_scalar(item)}" for key, item in value.items()) + "}"
    return _scalar(value)


def _scalar(value: object) -> str:
    """Text in quotes and numbers as JSON has them, which YAML reads alike."""
    return f"{value:.10g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _positive(section: Section, key: str) -> float | None:
    return section.optional(key, lambda name: section.number(name, minimum=0.0))


def _whole(section: Section, key: str) -> int | None:
    return section.optional(key, lambda name: section.integer(name, minimum=1))
