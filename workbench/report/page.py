"""The Pareto page: one HTML file with everything inside, to be opened offline or in MLflow's artifact viewer."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from workbench.report.brief import figures as tiles
from workbench.report.recommendation import headline
from workbench.report.summary import Standing, Summary
from workbench.report.table import _heads, figure, shown
from workbench.report.text import damage_words, lines, reproduce, verdict_sentences
from workbench.report.words import ACCURACY, count_of, differing_parameters, interval, scored, scored_by
from workbench.values.documents.templates import rendered
from workbench.values.evidence import (
    GLYPHS,
    LEVELS,
    MEANINGS,
    SHORT,
    Evidence,
    level_for,
    level_of,
    service_level,
    sources_of,
)
from workbench.values.metrics import METRICS, intervals, metrics
from workbench.values.modelled_times.figures import interval as by_errors
from workbench.values.modelled_times.figures import latency_figures
from workbench.values.results import Evaluation

_SHORT = re.compile(r"(?<=\.)|(?<=,) ")
"""Where a heading is broken: columns are as wide as their numbers, so that more of them are seen at once."""
_PAGE = Path(__file__).with_name("templates") / "pareto.html.j2"


_LOOKS: dict[Standing, tuple[str, str, str, int, float]] = {
    "stopped": ("stopped early", "#b9a27a", "triangle-up-open", 9, 1.0),
    "infeasible": ("breaks a constraint", "#c0392b", "x-thin-open", 9, 1.0),
    "dominated": ("feasible, dominated", "#9aa3ad", "circle", 8, 0.8),
    "front": ("Pareto front", "#2457c5", "circle", 11, 1.0),
}
"""How the points of one standing are drawn: name, colour, symbol, size, opacity; a level of evidence that is no fresh
measurement is drawn hollow."""


def pareto_html(summary: Summary) -> str:
    """A self-contained page (about 5 MB, nearly all of it plotly.js); makes no request of any kind."""
    chosen = summary.chosen
    x, *others = (o.metric for o in summary.objectives)
    axes = [(x, y) for y in others or ["latency_p50_ms" if x in ACCURACY else "accuracy"]]
    missing = len(summary.evaluations) - len(_drawn(summary, *axes[0]))
    evaluations = shown(summary)
    differing = differing_parameters([e.candidate for e in evaluations])
    rows = [_front_row(summary, e, differing) for e in evaluations]
    known = {level for row in rows for words, level in row["figures"] if words}
    goals = ", ".join(f"{o.direction} {o.metric}" for o in summary.objectives)
    limits = f", with {', '.join(map(str, summary.constraints))}" if summary.constraints else ""
    found = f"{count_of(len(summary.evaluations), 'candidate')}, {len(summary.front)} on the front."
    return rendered(
        _PAGE,
        title=f"{summary.experiment_name}: Pareto front",
        summary=summary,
        question=f"{goals}{limits}. {found}",
        damage=damage_words(summary),
        headline=headline(summary),
        tiles=tiles(summary, chosen) if chosen else (),
        said=verdict_sentences(summary) if chosen else (),
        again=reproduce(summary, chosen) if chosen else "",
        plots=[
            _figure(summary, x, y).to_html(
                full_html=False,
                include_plotlyjs=at == 0,  # into the first
                div_id=f"pareto-{at}",
                config={"displaylogo": False, "responsive": True},
            )
            for at, (x, y) in enumerate(axes)
        ],
        missing=count_of(missing, "candidate") if missing else "",
        heads=[(_SHORT.split(name), kind) for name, kind in _columns(summary, evaluations)],
        rows=rows,
        levels=[level for level in LEVELS if level in known],
        glyphs=GLYPHS,
        meanings=MEANINGS,
        text=lines(summary),
    )


# --- the scatter: one per pair of the first objective with another ----------------------------------------------------


def _drawn(summary: Summary, x: str, y: str) -> list[tuple[Evaluation, Evaluation]]:
    """(in the search, by the strongest evidence) of each that has both metrics."""
    pairs = ((e, summary.strongest(e)) for e in summary.evaluations)
    return [(e, known) for e, known in pairs if {x, y} <= summary.numbers(known).keys()]


def _figure(summary: Summary, x: str, y: str) -> go.Figure:
    figure, drawn = go.Figure(), _drawn(summary, x, y)

    def add(points: Sequence[Evaluation], name: str, marker: dict[str, Any], **look: Any) -> None:
        values = [summary.numbers(e) for e in points]
        figure.add_scatter(
            x=[v[x] for v in values],
            y=[v[y] for v in values],
            mode="markers",
            name=name,
            marker=marker | {"line": {"width": 2}},
            hovertext=[_hover(summary, e) for e in points],
            hoverinfo="text",
            **look,
        )

    for standing, (name, color, symbol, size, opacity) in _LOOKS.items():
        for level in LEVELS:
            points = [
                known for e, known in drawn if summary.standing(e) == standing and level_for(known, (x, y)) == level
            ]
            if points:
                marker = {"color": color, "symbol": _symbol(symbol, level), "size": size}
                bars = {"error_x": _bars(points, x, color), "error_y": _bars(points, y, color), "opacity": opacity}
                add(points, f"{name}, {level} ({len(points)})", marker, **bars)
    mark = summary.recommended.mark.lower() if summary.recommended is not None else ""
    for one, name, color, symbol, size in (
        (summary.baseline, "float baseline", "#111", "square-open", 17),
        (summary.chosen, mark, "#0a7d43", "star-open", 26),
    ):
        points = [known for e, known in drawn if e is one]
        if points:
            add(points, name, {"color": color, "symbol": symbol, "size": size}, opacity=1.0)
    for draw, metric in ((figure.add_vline, x), (figure.add_hline, y)):
        limit = _limit(summary, metric)
        if limit is not None:
            line = {"line_dash": "dash", "line_width": 1, "line_color": "#c0392b", "annotation_text": "limit"}
            draw(limit, **line, annotation_position="top right")
    figure.update_layout(
        template="plotly_white",
        height=560,
        margin={"l": 70, "r": 20, "t": 20, "b": 60},
        xaxis_title=_axis_title(x, summary),
        yaxis_title=_axis_title(y, summary),
        legend={"orientation": "h", "y": -0.16, "yanchor": "top"},
        hoverlabel={"align": "left", "bgcolor": "white"},
    )
    return figure


def _bars(points: Sequence[Evaluation], metric: str, color: str) -> dict[str, object]:
    below, above = zip(*(_margins(e, metric) for e in points), strict=True)
    return {
        "type": "data",
        "symmetric": False,
        "arrayminus": list(below),
        "array": list(above),
        "thickness": 1,
        "width": 3,
        "color": color,
        "visible": any((*below, *above)),
    }


def _margins(evaluation: Evaluation, metric: str) -> tuple[float, float]:
    """(below, above) the value; zeros for a number that carries no interval."""
    m = evaluation.measurement
    found = intervals(evaluation).get(metric)
    if metric == "throughput_per_s" and m.latency is not None and m.latency.modelled is not None:
        found = by_errors(latency_figures(m.latency)[metric])
    if found is not None:
        return found.value - found.low, found.high - found.value
    if metric == "accuracy" and m.accuracy is not None and m.accuracy.comparison is not None:
        drop, by, at = m.accuracy.comparison.drop_pp, scored_by(m.accuracy), metrics(evaluation)["accuracy"]
        return by.own(at, drop.high - drop.value), by.own(at, drop.value - drop.low)
    return 0.0, 0.0


def _hover(summary: Summary, evaluation: Evaluation) -> str:
    numbers = summary.numbers(evaluation)
    rows = [f"<b>{evaluation.candidate.short_id}</b> {html.escape(summary.title(evaluation.candidate))}"]
    if evaluation.stop is not None:
        rows.append(html.escape(f"stopped at {evaluation.stop.stage}: {evaluation.stop.reason}"))
    rows += [f"{name} {numbers[name]:.4g} {METRICS[name].unit}".rstrip() for name in METRICS if name in numbers]
    settings = evaluation.candidate.parameters().items()
    return "<br>".join([*rows, "", *(html.escape(f"{name} = {value}") for name, value in settings)])


_SYMBOLS: dict[Evidence, str] = {"shared": "square-open", "predicted": "diamond-open", "modelled": "hexagon-open"}


def _symbol(plain: str, level: Evidence) -> str:
    """Full for what was measured on held-out data, hollow for the search, another form for what was not measured."""
    if plain.endswith("-open") or level == "measured held-out":
        return plain
    return _SYMBOLS.get(level, f"{plain}-open")


def _limit(summary: Summary, metric: str) -> float | None:
    """Where a constraint cuts this axis; a limit on the drop cuts the axis of accuracy below the baseline, by the
    strongest evidence on that."""
    limits, baseline = {c.metric: c.limit for c in summary.constraints}, summary.baseline
    by = scored(summary.evaluations)
    if metric in limits or metric != "accuracy" or by.loss_metric not in limits or baseline is None:
        return limits.get(metric)
    numbers = summary.numbers(summary.strongest(baseline))
    if metric not in numbers:
        return None
    return numbers[metric] + by.own(numbers[metric], numbers.get(by.loss_metric, 0.0) - limits[by.loss_metric])


def _axis_title(metric: str, summary: Summary) -> str:
    known = METRICS[metric]
    arrow = "less is better" if known.direction == "minimize" else "more is better"
    drawn = {level_for(summary.strongest(e), (metric,)) for e in summary.evaluations if e.status == "complete"}
    levels = [level for level in LEVELS if level in drawn]
    facts = [arrow, *([" or ".join(levels)] if levels else []), *(["EMULATED"] if summary.emulated else [])]
    return f"{metric} ({', '.join(facts)})"


# --- the tables ----------------------------------------------------------------------------------------------------


def _columns(summary: Summary, rows: Sequence[Evaluation]) -> list[tuple[str, str]]:
    """(name, class) of each column."""
    heads = [("id", ""), ("evidence", ""), *((head, "n") for head in _heads(summary).values())]
    simulated = "modelled" if summary.emulated else "predicted"
    if any(summary.service(e) is not None for e in rows):
        heads += [(f"{what} {how}", "n") for what in ("served /s,", "P99 ms,") for how in (simulated, "measured")]
    return heads


def _front_row(summary: Summary, evaluation: Evaluation, differing: Sequence[str]) -> dict[str, Any]:
    member = summary.member(evaluation.candidate.id)
    known = summary.strongest(evaluation)
    figures = [(figure(known, name), level_of(known, name)) for name in _heads(summary)]
    settings: list[str] = []
    service = summary.service(evaluation)
    if service is not None:
        best, confirmed = service.best or service.closest, service.confirmed
        simulated = service_level(known, replace(service, confirmed=None))
        loaded = service_level(known, service)
        figures += [
            (interval(best.throughput_per_s, "", 0) if service.best is not None else "keeps no limit", simulated),
            (f"{confirmed.throughput_per_s.value:.0f}" if confirmed is not None else "", loaded),
            (interval(best.p99_ms, "", 1), simulated),
            (f"{confirmed.p99_ms.value:.1f}" if confirmed is not None else "", loaded),
        ]
        settings.append(f"served with {best.settings}")
    values = evaluation.candidate.parameters()
    name = evaluation.candidate.short_id + (" (float)" if evaluation.candidate.id == summary.baseline_id else "")
    name += " (off the front)" if any(m.id == evaluation.candidate.id for m in summary.fallen) else ""
    reused = sources_of(known).items()  # a front of predictions has its own level, and its curve may be another's
    return {
        "chosen": summary.chose(evaluation),
        "name": name,
        "letters": member.letters if member is not None else "",
        "level": summary.evidence(evaluation),
        "reused": ", ".join(f"{what} of {source[:SHORT]}" for what, source in reused),
        "figures": figures,
        "settings": "; ".join([*settings, *(f"{key} {values[key]}" for key in differing if key in values)]),
    }
