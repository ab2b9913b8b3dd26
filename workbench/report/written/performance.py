"""Times and throughput: against the old platform, against the float model of today, and where a speed-up comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from workbench.report.factors import taken_apart
from workbench.report.rests_on import REFIT, modelled_errors
from workbench.report.summary import Summary
from workbench.report.table import shown
from workbench.report.written.document import Bar, Block, Cell, Commands, Figure, Section
from workbench.report.written.drawing import PointKind, bars_figure, points
from workbench.report.written.material import Material
from workbench.report.written.wording import (
    DASH,
    Row,
    candidate_name,
    chinese,
    criterion_name,
    figure,
    heading,
    in_pictures,
    metric_name,
    paragraph,
    say,
    section,
    spoken,
    table,
    unit_words,
)
from workbench.shipping.acceptance.verdict import Criterion
from workbench.values.evidence import level_of, service_level
from workbench.values.metrics import INFORMING, METRICS, Source, declared, intervals, metrics
from workbench.values.results import Evaluation
from workbench.values.setting_groups import Group

_OLD, _CALLS, _FRONT = "Against the old platform", "One call", "The Pareto front"
_CHARTS = {"requests/s": "Throughput", "ms": "Latency of a request"}
"""Unit → what is drawn of it."""
_CALLED: tuple[Source, ...] = ("latency", "files", "device")
"""Sources of what is said of a call."""
_NAMES: dict[PointKind, str] = {
    "other": "other candidates",
    "front": "front",
    "baseline": "float baseline",
    "chosen": "what ships",
}
_GROUPS: dict[Group, str] = {
    "engine": "engine",
    "lengths": "length bins",
    "precision": "precision",
    "graph": "graph settings",
    "threads": "threads",
    "batch": "batch",
}


def performance(m: Material) -> Section:
    blocks: list[Block] = [heading(_OLD), *_old_platform(m)]
    blocks += [heading(_CALLS), *_calls(m), *_apart(m)]
    blocks.append(heading(_FRONT))
    if m.summary is None:
        blocks.append(paragraph("A bundle does not hold the search; see the report of its experiment."))
    else:
        blocks += [*_front(m, m.summary), *on_the_model(m.summary)]
    return section("Performance", blocks)


def _old_platform(m: Material) -> Iterator[Block]:
    if m.verdict is None:
        yield paragraph("No verdict was given (--verdict): nothing was compared with the old platform.")
        return
    yield paragraph("Old platform: {name}. Source: {source}.", name=m.verdict.baseline, source=m.verdict.source)
    if m.verdict.answers:
        yield paragraph("File of its answers: {file}.", kind="note", file=m.verdict.answers)
    compared = [each for each in m.verdict.criteria if each.published is not None]
    if not compared:
        return
    rows = [
        (
            criterion_name(each),
            figure(each.published, unit=each.unit),
            figure(each.figure, each.level, unit=each.unit),
            figure(each.share_percent, each.level, digits=1, unit="%"),
        )
        for each in compared
    ]
    yield table(_OLD, "figure|old platform|new platform|new over old", rows)
    for unit, name in _CHARTS.items():
        drawn = [each for each in compared if each.unit == unit and each.figure is not None]
        if drawn:
            yield _old_chart(say("{name}: new and old platform", name=say(name)), name, drawn)


@in_pictures()
def _old_chart(caption: str, name: str, drawn: list[Criterion]) -> Figure:
    """Criteria of one unit, theirs and ours below each other; the limit is drawn where there is one alone."""
    bars: list[Bar] = []
    for each in drawn:
        found, of = each.figure, f"{criterion_name(each)} " if len(drawn) > 1 else ""
        assert found is not None, "only measured figures are drawn"
        bars.append(Bar(label=of + say("old"), value=each.published or 0.0))
        new = of + say("new")
        bars.append(Bar(label=new, value=found.value, low=found.low, high=found.high, evidence=each.level, strong=True))
    limits = [each.limit for each in drawn if each.limit is not None]
    limit = (say("limit {value}", value=f"{limits[0]:,.4g}"), limits[0]) if len(limits) == 1 == len(drawn) else None
    digits = 0 if max(bar.value for bar in bars) >= 100 else 2
    return bars_figure(caption, f"{say(name)} ({unit_words(drawn[0].unit)})", bars, digits=digits, limit=limit)


def _calls(m: Material) -> Iterator[Block]:
    evaluations = [m.best] if m.is_baseline or m.best_baseline is None else [m.best_baseline, m.best]

    def cell(metric: str, evaluation: Evaluation) -> Cell:
        found = intervals(evaluation).get(metric, metrics(evaluation).get(metric))
        known, declaration = level_of(evaluation, metric), declared(metric)
        unit = "" if declaration is None else declaration.unit
        return figure(found, known, digits=2 if metric == "speedup" else None, unit=unit)

    rows: list[Row] = [
        (metric_name(metric), *(cell(metric, e) for e in evaluations))
        for metric, known in (METRICS | INFORMING).items()
        if known.source in _CALLED
        # a device's are not there, of a target that computes on the host
        and (known.source == "latency" or any(metric in metrics(e) for e in evaluations))
    ]
    heads = "figure|float baseline (today)|what ships"
    heads = heads if len(evaluations) == 2 else "figure|what ships (the float baseline)"
    yield table(_CALLS, heads, rows, note=_how_timed(m))


def _how_timed(m: Material) -> str:
    latency = m.best.measurement.latency
    if latency is None:
        return ""
    if latency.clock == "modelled":
        return say("Batch {batch}. Times come from a model of the device; nothing was timed.", batch=latency.batch)
    quiet = "The machine was quiet." if latency.quiet else "The machine was disturbed: absolute times are a guide only."
    return say(
        "Batch {batch}, {calls} timed calls, in turns with the float baseline in one process; the speed-up "
        "is paired by round. {quiet}",
        batch=latency.batch,
        calls=latency.samples,
        quiet=say(quiet),
    )


def _apart(m: Material) -> Iterator[Block]:
    found = None if m.summary is None or m.named or m.none_fits else taken_apart(m.summary)
    if found is None:
        return
    known = level_of(m.chosen, "speedup")
    quantized = m.chosen.candidate.quantization.scheme != "none"
    rows = []
    for factor in found.factors:
        names = ("INT8" if group == "precision" and quantized else _GROUPS[group] for group in factor.groups)
        words = say(", ¦list").join(map(say, names))
        words += say(" (together, not measured apart)") if len(factor.groups) > 1 else ""
        rows.append((words, figure(factor.gain, known, digits=2, unit="x")))
    rows.append((say("all together"), figure(found.total, known, digits=2, unit="x")))
    heads = "from (each on top of those before)|factor [95 %]"
    yield table("Where the speed comes from", heads, rows, strong=(len(rows) - 1,))


def _front(m: Material, summary: Summary) -> Iterator[Block]:
    members, chosen = shown(summary, fallen=False), m.chosen.candidate.id
    if all(e.candidate.id != chosen for e in members):
        members.append(m.chosen)
    yield table(
        _FRONT,
        "id|what|speed-up|loss|service /s|service P99 ms",
        [_front_row(summary, e) for e in members],
        strong=(i for i, e in enumerate(members) if e.candidate.id == chosen),
        note=say("Every figure by the strongest evidence on it; bold is what this report is about."),
    )
    if (chart := _scatter(summary, chosen)) is not None:
        yield Figure(caption=say("All candidates"), draw=chart)


def _front_row(summary: Summary, evaluation: Evaluation) -> Row:
    known, service = summary.strongest(evaluation), summary.service(evaluation)
    is_baseline, accuracy = evaluation.candidate.id == summary.baseline_id, known.measurement.accuracy
    served = None if service is None else service.confirmed or service.best
    level = None if service is None else service_level(known, service)
    unit = "pp" if accuracy is None else accuracy.unit or "pp"
    drop = figure(summary.drop(evaluation), level_of(known, "accuracy"), signed=True, digits=2, unit=unit)
    return (
        evaluation.candidate.short_id,
        candidate_name(evaluation.candidate) + (say(" (float baseline)") if is_baseline else ""),
        figure(summary.speedup(evaluation), level_of(known, "speedup"), digits=2),
        DASH if is_baseline else drop,
        figure(None if served is None else served.throughput_per_s.value, level),
        figure(None if served is None else served.p99_ms.value, level),
    )


@in_pictures()
def _scatter(summary: Summary, chosen: str) -> Callable[[Any], None] | None:
    """The first two objectives, or the first and accuracy."""
    x, *others = (o.metric for o in summary.objectives)
    y = others[0] if others else "accuracy" if x != "accuracy" else "latency_p50_ms"
    found: list[tuple[PointKind, float, float]] = []
    for evaluation in summary.evaluations:
        numbers, at = summary.numbers(summary.strongest(evaluation)), evaluation.candidate.id
        if x not in numbers or y not in numbers:
            continue
        kinds: list[PointKind] = ["other" if summary.member(at) is None else "front"]
        kinds += ["baseline"] if at == summary.baseline_id else []
        kinds += ["chosen"] if at == chosen else []
        found += [(kind, numbers[x], numbers[y]) for kind in kinds]
    if len({each[1:] for each in found}) < 2:
        return None
    return partial(
        points,
        x_axis=_axis(x, summary.emulated),
        y_axis=_axis(y, summary.emulated),
        found=found,
        names={kind: say(name) for kind, name in _NAMES.items()},
    )


def _axis(metric: str, emulated: bool) -> str:
    unit = unit_words(METRICS[metric].unit) if metric in METRICS else ""
    facts = [*([unit] if unit else []), *([say("modelled")] if emulated else [])]
    return metric_name(metric) + (f" ({', '.join(facts)})" if facts else "")


_TITLE = "What modelled times rest on"


def on_the_model(summary: Summary) -> Iterator[Block]:
    """What modelled times rest on; nothing where times were measured."""
    named = chinese()["clock"] if spoken() == "zh" else {}
    rows = [
        (
            figure(str(index)),
            str(named.get(one.unknown, one.about)),
            figure(f"{one.share:.0%}"),
            figure(f"{one.factor_95:.2f}"),
            one.source,
        )
        for index, one in enumerate(modelled_errors(summary), 1)
    ]
    if rows:
        yield heading(_TITLE)
        yield table(_TITLE, "no.|part|share of the time|95 % within a factor of|found on", rows)
        yield Commands(lines=(REFIT,))
