"""Acceptance: measured figures against another platform's published ones, criterion by criterion.

    baseline = read_baseline(Path("experiments/baselines/a100-triton.yaml"))
    verdict = judge(baseline, loads=[at_1, at_100], accuracy_drop_pp=drop)

What was not measured is not passed: a criterion without a figure says so, and the verdict is then not 'passed'. Neither
are figures of an emulator or of a load generator that was itself too busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.load.result import P99_ANSWERS, LoadResult
from workbench.values.documents.canonical import encode
from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.measurement import Estimate

Outcome = Literal["passed", "failed", "not measured", "no limit"]
Bound = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigures:
    """Another platform's figures as published; None where it published none."""

    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    throughput_per_s: float | None = None
    memory_gb: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceLimits:
    """What a bundle must keep; None is no limit.

    Attributes:
        throughput_at_least_percent, p99_at_most_percent: of the published figure.
        accuracy_drop_pp: against the float model.
        cosine_at_least: of the float path's outputs with the reference's, before any INT8.
    """

    throughput_at_least_percent: float | None = None
    p99_at_most_percent: float | None = None
    accuracy_drop_pp: float | None = None
    cosine_at_least: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A baseline file.

    Attributes:
        latency_concurrency, throughput_concurrency: clients of the closed loop in which its figures were taken.
        latency_length: tokens of its requests, None when not known.
    """

    name: str
    about: str
    source: str
    figures: PublishedFigures
    latency_concurrency: int
    throughput_concurrency: int
    latency_length: int | None
    limits: AcceptanceLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One line of a verdict.

    Attributes:
        figure: ours; None when not measured.
        published: theirs; None where the criterion is against our own float model.
        limit: `figure` must be `bound` this; None when nobody set one.
        note: under what condition it was measured, or why it was not.
    """

    name: str
    unit: str
    figure: Estimate | None
    published: float | None
    bound: Bound
    limit: float | None
    outcome: Outcome
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All criteria. 'not decided' when none failed and at least one with a limit was not measured."""

    baseline: str
    source: str
    criteria: tuple[Criterion, ...]

    @property
    def outcome(self) -> Literal["passed", "failed", "not decided"]:
        found = {c.outcome for c in self.criteria if c.limit is not None}
        if "failed" in found:
            return "failed"
        return "passed" if found == {"passed"} else "not decided"

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, "outcome": self.outcome, **encode(self)}


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file.

    Raises:
        ConfigError: missing, malformed, or with an unknown key; names file, line and key.
    """
    with read_yaml(path) as top:
        with top.section("figures") as section:
            figures = PublishedFigures(**{name: _positive(section, name) for name in _names(PublishedFigures)})
        with top.section("limits") as section:
            limits = AcceptanceLimits(**{name: _positive(section, name) for name in _names(AcceptanceLimits)})
        for limit, figure in (("throughput_at_least_percent", "throughput_per_s"), ("p99_at_most_percent", "p99_ms")):
            if getattr(limits, limit) is not None and getattr(figures, figure) is None:
                raise top.section("limits").error(limit, "is a share of a figure that is not given.", f"Add {figure}.")
        conditions = top.section("conditions")
        latency, throughput = conditions.section("latency"), conditions.section("throughput")
        return Baseline(
            name=top.text("name"),
            about=top.text("about", ""),
            source=top.text("source"),
            figures=figures,
            limits=limits,
            latency_concurrency=latency.integer("concurrency", 1, minimum=1),
            latency_length=latency.optional("length", lambda key: latency.integer(key, minimum=1)),
            throughput_concurrency=throughput.integer("concurrency", 100, minimum=1),
        )


def judge(
    baseline: Baseline,
    *,
    loads: Sequence[LoadResult] = (),
    accuracy_drop_pp: Estimate | None = None,
    cosine: float | None = None,
    power_w: float | None = None,
    emulated: bool = False,
) -> Verdict:
    """Compare figures with a baseline's limits.

    A closed loop of the baseline's own number of clients gives throughput and P99; loads of any other kind are not
    looked at. The value decides; a note says where its interval crosses the limit.

    Args:
        emulated: the device was an emulator, so its times are no figures.
    """
    figures, limits = baseline.figures, baseline.limits
    at_latency = _closed(loads, baseline.latency_concurrency)
    at_throughput = _closed(loads, baseline.throughput_concurrency)
    length = f", published at length {baseline.latency_length}" if baseline.latency_length else ""
    rate, rate_note = _timed(at_throughput, "throughput_per_s", baseline.throughput_concurrency, emulated)
    criteria = [
        _criterion(
            "throughput",
            "requests/s",
            rate,
            figures.throughput_per_s,
            "at least",
            _share(figures.throughput_per_s, limits.throughput_at_least_percent),
            rate_note,
        )
    ]
    for name, percent in (("p50_ms", None), ("p95_ms", None), ("p99_ms", limits.p99_at_most_percent)):
        published = getattr(figures, name)
        if published is None and percent is None:
            continue
        found, note = _timed(at_latency, name, baseline.latency_concurrency, emulated)
        criteria.append(
            _criterion(name[:3].upper(), "ms", found, published, "at most", _share(published, percent), note + length)
        )
    criteria += [
        _criterion(
            "accuracy drop",
            "pp",
            accuracy_drop_pp,
            None,
            "at most",
            limits.accuracy_drop_pp,
            "against the float model" if accuracy_drop_pp is not None else "the bundle has no comparison of accuracy",
        ),
        _criterion(
            "cosine of the float path",
            "",
            _exact(cosine),
            None,
            "at least",
            limits.cosine_at_least,
            "" if cosine is not None else "no load measures it: workbench compare does",
        ),
    ]
    if figures.memory_gb is not None:
        resident = next((r.processes for r in (at_throughput, at_latency) if r is not None and r.processes), None)
        gigabytes = _exact(resident.resident_peak_bytes / 1e9) if resident is not None and not emulated else None
        note = "all processes of the service together, on the host" if gigabytes else ""
        criteria.append(_criterion("memory", "GB", gigabytes, figures.memory_gb, "at most", None, note))
    if figures.power_w is not None:
        power = None if emulated else _exact(power_w)
        criteria.append(_criterion("power", "W", power, figures.power_w, "at most", None, ""))
    return Verdict(baseline=baseline.name, source=baseline.source, criteria=tuple(criteria))


def _criterion(
    name: str,
    unit: str,
    figure: Estimate | None,
    published: float | None,
    bound: Bound,
    limit: float | None,
    note: str,
) -> Criterion:
    outcome: Outcome
    if figure is None:
        outcome = "not measured"
    elif limit is None:
        outcome = "no limit"
    else:
        kept = figure.value >= limit if bound == "at least" else figure.value <= limit
        outcome = "passed" if kept else "failed"
        if figure.low <= limit <= figure.high and figure.low < figure.high:
            note = f"{note}; its interval crosses the limit".removeprefix("; ")
    return Criterion(
        name=name,
        unit=unit,
        figure=figure,
        published=published,
        bound=bound,
        limit=limit,
        outcome=outcome,
        note=note.removeprefix(", "),
    )


def _closed(loads: Sequence[LoadResult], concurrency: int) -> LoadResult | None:
    found = (r for r in loads if r.load.arrivals == "closed" and r.load.concurrency == concurrency)
    return next(found, None)


def _timed(load: LoadResult | None, name: str, concurrency: int, emulated: bool) -> tuple[Estimate | None, str]:
    """(the figure, its condition), or (None, why there is none)."""
    if emulated:
        return None, "the device is emulated: its times are no figures"
    if load is None:
        return None, f"needs a load with --concurrency {concurrency}"
    if not load.reliable:
        return None, load.notes[0]
    if name == "p99_ms" and load.answered < P99_ANSWERS:
        return None, f"{load.answered} answers give no P99; it takes {P99_ANSWERS}"
    clients = f"{concurrency} client{'s' if concurrency > 1 else ''}"
    return getattr(load, name), clients


def _exact(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(value=value, low=value, high=value)


def _share(published: float | None, percent: float | None) -> float | None:
    return None if published is None or percent is None else published * percent / 100


def _names(kind: type[PublishedFigures] | type[AcceptanceLimits]) -> tuple[str, ...]:
    return tuple(kind.__dataclass_fields__)


def _positive(section: Section, key: str) -> float | None:
    return section.optional(key, lambda name: section.number(name, minimum=0.0))
