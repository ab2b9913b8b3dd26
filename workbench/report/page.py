"""The Pareto page: one HTML file with everything inside, to be opened offline or in MLflow's artifact viewer."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace

import plotly.graph_objects as go

from workbench.report.factors import float_alike
from workbench.report.importance import Importance
from workbench.report.reading import ACCURACY
from workbench.report.recommendation import headline
from workbench.report.scored import scored, scored_by
from workbench.report.summary import (
    Standing,
    Summary,
    best_known_drop,
    best_known_service,
    best_known_speedup,
)
from workbench.report.text import damage_words, lines, reproduce, verdict_sentences
from workbench.report.words import count_of, differing_parameters, interval, p50_words
from workbench.values.clocks.figures import interval_of
from workbench.values.evidence import (
    GLYPHS,
    LEVELS,
    MEANINGS,
    SHORT,
    Evidence,
    lenders_of,
    level_for,
    level_of,
    service_level,
)
from workbench.values.metrics import intervals, metrics
from workbench.values.objectives import METRICS
from workbench.values.results import Evaluation

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1f24; background: #fff; margin: 1.5rem auto;
       max-width: 1180px; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 1.8rem 0 .5rem; }
p { margin: .4rem 0; max-width: 60rem; } .muted { color: #5b6470; }
.verdict { border-left: 4px solid #0a7d43; background: #f1f8f4; padding: .6rem 1rem; }
.none { border-color: #b3261e; background: #fcf1f0; } .warn { color: #8a4b00; }
.emulated { max-width: none; background: #b3261e; color: #fff; padding: .4rem 1rem; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; } th, td { text-align: left; vertical-align: bottom;
        padding: .3rem .7rem; border-bottom: 1px solid #d9dee5; white-space: nowrap; } td.n, th.n { text-align: right; }
tr.chosen td { background: #e5f4ec; font-weight: 600; } code { font-size: 13px; }
.evidence { display: inline-block; padding: 0 .5rem; border-radius: .7rem; border: 1px solid #9aa3ad; font-size: 12px; }
.evidence.measured-held-out { background: #0a7d43; border-color: #0a7d43; color: #fff; }
.evidence.measured { border-color: #0a7d43; } .evidence.shared { border-style: dashed; border-color: #2457c5; }
.evidence.predicted { border-style: dashed; border-color: #8a4b00; color: #8a4b00; }
.evidence.modelled { border-style: dotted; border-color: #b3261e; color: #b3261e; }
.figure { white-space: nowrap; } .figure::before { content: attr(data-glyph) " "; font-weight: 400; color: #0a7d43; }
.figure.shared::before { color: #2457c5; } .figure.predicted, .figure.modelled { font-style: italic; }
.figure.predicted, .figure.predicted::before { color: #8a4b00; }
.figure.modelled, .figure.modelled::before { color: #b3261e; }
.key span { margin-right: .5rem; }
.bar { display: inline-block; height: .7em; background: #4269d0; }
pre { font-size: 12px; line-height: 1.35; overflow-x: auto; background: #f6f7f9; padding: .8rem; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trace:
    """How the points of one standing are drawn; a level of evidence that is no fresh measurement is drawn hollow."""

    name: str
    color: str
    symbol: str
    size: int
    opacity: float = 1.0


_TRACES: dict[Standing, _Trace] = {
    "stopped": _Trace(name="stopped early", color="#b9a27a", symbol="triangle-up-open", size=9),
    "infeasible": _Trace(name="breaks a constraint", color="#c0392b", symbol="x-thin-open", size=9),
    "dominated": _Trace(name="feasible, dominated", color="#9aa3ad", symbol="circle", size=8, opacity=0.8),
    "front": _Trace(name="Pareto front", color="#2457c5", symbol="circle", size=11),
}


def pareto_html(summary: Summary, importance: Importance | None = None) -> str:
    """A self-contained page (about 5 MB, nearly all of it plotly.js); makes no request of any kind."""
    body = [
        f"<h1>{_text(summary.experiment_name)}</h1>",
        f'<p class="muted">{_text(_question(summary))}</p>',
        '<p class="emulated">Emulated: no number here was measured on a real device.</p>' if summary.emulated else "",
        f'<p class="emulated">Damaged: {_text(damage_words(summary))}</p>' if summary.damage else "",
        _verdict(summary),
        *_plots(summary),
        '<h2>The front, and where its members differ</h2><div class="wide">' + _front_table(summary) + "</div>",
        _importance(importance),
        f"<h2>The report as text</h2><pre>{_text(lines(summary))}</pre>",
    ]
    return document(f"{summary.experiment_name}: Pareto front", body)


def document(name: str, body: Sequence[str]) -> str:
    """The frame of every page: one file, its style inside, nothing loaded from anywhere."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(name)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body>\n{''.join(part for part in body if part)}\n</body></html>\n"
    )


def _question(summary: Summary) -> str:
    goals = ", ".join(f"{o.direction} {o.metric}" for o in summary.objectives)
    limits = f", with {', '.join(map(str, summary.constraints))}" if summary.constraints else ""
    return f"{goals}{limits}. {count_of(len(summary.evaluations), 'candidate')}, {len(summary.front)} on the front."


def _verdict(summary: Summary) -> str:
    recommended = summary.recommended
    if recommended is None:
        return f'<p class="verdict none">{_text(headline(summary))}</p>'
    chosen = summary.find(recommended.candidate_id)
    assert chosen is not None, "the recommended candidate was evaluated"
    warnings = "".join(f'<p class="warn">{_text(w)}</p>' for w in recommended.warnings)
    said = "".join(f"<p>{_text(sentence)}</p>" for sentence in verdict_sentences(summary))
    return (
        f'<div class="verdict"><p><b>{_text(headline(summary))}</b></p>{said}{warnings}'
        f"<p><code>{_text(reproduce(summary, chosen))}</code></p></div>"
    )


def _kind(level: Evidence) -> str:
    """The class by which the style tells levels apart."""
    return f"evidence {_css(level)}"


def _css(level: Evidence) -> str:
    return level.replace(" ", "-")


# --- the scatter ---------------------------------------------------------------------------------------------------


def _plots(summary: Summary) -> list[str]:
    """One scatter per pair of the first objective with another; plotly.js goes into the first."""
    found = []
    for index, (x, y) in enumerate(_axes(summary)):
        figure = _figure(summary, x, y)
        found.append(
            figure.to_html(
                full_html=False,
                include_plotlyjs=index == 0,
                div_id=f"pareto-{index}",
                config={"displaylogo": False, "responsive": True},
            )
        )
    missing = sum(not _has(summary, e, *_axes(summary)[0]) for e in summary.evaluations)
    note = "Bars are 95 % intervals; the one of accuracy is that of its difference to the float baseline."
    if missing:
        note += f" {count_of(missing, 'candidate')} stopped or failed before both numbers were measured."
    return [*found, f'<p class="muted">{note}</p>']


def _axes(summary: Summary) -> list[tuple[str, str]]:
    names = [o.metric for o in summary.objectives]
    if len(names) == 1:
        names.append("latency_p50_ms" if names[0] in ACCURACY else "accuracy")
    return [(names[0], other) for other in names[1:]]


_PLACES = {"x": ("top right", "top left"), "y": ("top right", "bottom right")}
"""Of the words at the higher and at the lower limit of an axis, which may lie close together."""


def _figure(summary: Summary, x: str, y: str) -> go.Figure:
    figure = go.Figure()
    chosen = summary.recommended.candidate_id if summary.recommended is not None else None
    drawn = [e for e in summary.evaluations if _has(summary, e, x, y)]
    for standing, look in _TRACES.items():
        for level in LEVELS:
            points = [e for e in drawn if summary.standing(e) == standing and _level(summary, e, x, y) == level]
            if points:
                known = replace(look, name=f"{look.name}, {level}", symbol=_symbol(look.symbol, level))
                figure.add_trace(_scatter(summary, points, x, y, known))
    baseline = [e for e in drawn if e.candidate.id == summary.baseline_id]
    winner = [e for e in drawn if e.candidate.id == chosen]
    if baseline:
        square = _Trace(name="float baseline", color="#111", symbol="square-open", size=17)
        figure.add_trace(_scatter(summary, baseline, x, y, square, bars=False))
    if winner:
        named = summary.recommended.mark.lower() if summary.recommended is not None else ""
        star = _Trace(name=named, color="#0a7d43", symbol="star-open", size=26)
        figure.add_trace(_scatter(summary, winner, x, y, star, bars=False))
    for axis, metric in (("x", x), ("y", y)):
        limits = sorted(_limits(summary, metric).items(), key=lambda limit: -limit[1])
        for (words, limit), place in zip(limits, _PLACES[axis], strict=False):
            line = {"line_dash": "dash", "line_width": 1, "line_color": "#c0392b"}
            text = {"annotation_text": words, "annotation_position": place}
            (figure.add_vline if axis == "x" else figure.add_hline)(limit, **line, **text)
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


def _scatter(
    summary: Summary, points: Sequence[Evaluation], x: str, y: str, look: _Trace, *, bars: bool = True
) -> go.Scatter:
    points = [summary.strongest(e) for e in points]
    values = [summary.numbers(e) for e in points]
    return go.Scatter(
        x=[v[x] for v in values],
        y=[v[y] for v in values],
        error_x=_bars(summary, points, x, look) if bars else None,
        error_y=_bars(summary, points, y, look) if bars else None,
        mode="markers",
        name=f"{look.name} ({len(points)})" if bars else look.name,
        marker={"color": look.color, "symbol": look.symbol, "size": look.size, "line": {"width": 2}},
        opacity=look.opacity,
        hovertext=[_hover(summary, e) for e in points],
        hoverinfo="text",
    )


def _bars(summary: Summary, points: Sequence[Evaluation], metric: str, look: _Trace) -> dict[str, object]:
    found = [_margins(e, metric) for e in points]
    return {
        "type": "data",
        "symmetric": False,
        "arrayminus": [low for low, _ in found],
        "array": [high for _, high in found],
        "thickness": 1,
        "width": 3,
        "color": look.color,
        "visible": any(low or high for low, high in found),
    }


def _margins(evaluation: Evaluation, metric: str) -> tuple[float, float]:
    """(below, above) the value; zeros for a number that carries no interval."""
    m = evaluation.measurement
    found = intervals(evaluation).get(metric)
    if metric == "throughput_per_s" and m.latency is not None and m.latency.modelled is not None:
        found = interval_of(m.latency, metric)
    if found is not None:
        return found.value - found.low, found.high - found.value
    if metric == "accuracy" and m.accuracy is not None and m.accuracy.comparison is not None:
        drop, by, at = m.accuracy.comparison.drop_pp, scored_by(m.accuracy), metrics(evaluation)["accuracy"]
        return by.own(at, drop.high - drop.value), by.own(at, drop.value - drop.low)
    return 0.0, 0.0


def _hover(summary: Summary, evaluation: Evaluation) -> str:
    numbers = summary.numbers(evaluation)
    shown = [name for name in METRICS if name in numbers]
    rows = [f"<b>{evaluation.candidate.short_id}</b> {_text(summary.title(evaluation.candidate))}"]
    if evaluation.stop is not None:
        rows.append(_text(f"stopped at {evaluation.stop.stage}: {evaluation.stop.reason}"))
    rows += [f"{name} {numbers[name]:.4g} {METRICS[name].unit}".rstrip() for name in shown]
    rows.append("")
    rows += [f"{_text(name)} = {_text(str(value))}" for name, value in evaluation.candidate.parameters().items()]
    return "<br>".join(rows)


def _level(summary: Summary, evaluation: Evaluation, x: str, y: str) -> Evidence | None:
    return level_for(summary.strongest(evaluation), (x, y))


_SYMBOLS: dict[Evidence, str] = {"shared": "square-open", "predicted": "diamond-open", "modelled": "hexagon-open"}


def _symbol(plain: str, level: Evidence) -> str:
    """Full for what was measured on held-out data, hollow for the search, another form for what was not measured."""
    if plain.endswith("-open") or level == "measured held-out":
        return plain
    return _SYMBOLS.get(level, f"{plain}-open")


def _has(summary: Summary, evaluation: Evaluation, x: str, y: str) -> bool:
    numbers = summary.numbers(summary.strongest(evaluation))
    return x in numbers and y in numbers


def _limits(summary: Summary, metric: str) -> dict[str, float]:
    """Where constraints cut this axis. A limit on the drop cuts the axis of accuracy below the baseline, which has
    another accuracy on held-out data than in the search; points of each are judged by their own line."""
    limits, by = {c.metric: c.limit for c in summary.constraints}, scored(summary.evaluations)
    baseline = summary.baseline
    if metric != "accuracy" or metric in limits or by.drop_metric not in limits or baseline is None:
        return {"limit": limits[metric]} if metric in limits else {}
    known = {summary.strongest(baseline).split: summary.strongest(baseline), baseline.split: baseline}
    words = {"holdout": "limit on held-out data", "validation": "limit in the search" if len(known) > 1 else "limit"}
    return {
        words[split]: numbers[metric]
        + by.own(numbers[metric], numbers.get(by.drop_metric, 0.0) - limits[by.drop_metric])
        for split, evaluation in known.items()
        if metric in (numbers := summary.numbers(evaluation))
    }


def _axis_title(metric: str, summary: Summary) -> str:
    known = METRICS[metric]
    arrow = "less is better" if known.direction == "minimize" else "more is better"
    drawn = {level_for(summary.strongest(e), (metric,)) for e in summary.evaluations if e.status == "complete"}
    levels = [level for level in LEVELS if level in drawn]
    facts = [arrow, *([" or ".join(levels)] if levels else []), *(["EMULATED"] if summary.emulated else [])]
    return f"{metric} ({', '.join(facts)})"


# --- the tables ----------------------------------------------------------------------------------------------------


def _front_table(summary: Summary) -> str:
    rows = [m.evaluation for m in (*summary.front, *summary.fallen)]
    baseline = summary.baseline
    alike = float_alike(summary)
    if alike is not None:
        rows.insert(0, alike)
    if baseline is not None and baseline not in rows and baseline.status == "complete":
        rows.insert(0, baseline)
    if not rows:
        return '<p class="muted">The front is empty.</p>'
    differing = differing_parameters([e.candidate for e in rows])
    by = scored(summary.evaluations)
    heads = [("id", ""), ("same", ""), ("evidence", "")]
    heads += [(name, "n") for name in ("speed-up", f"drop {by.drop_unit}", by.column, "P50 ms", "MB")]
    simulated = "modelled" if summary.emulated else "predicted"
    if any(best_known_service(summary, e) is not None for e in rows):
        heads += [(f"{what} {how}", "n") for what in ("served /s,", "P99 ms,") for how in (simulated, "measured")]
        heads += [("service settings", "")]
    heads += [(name, "") for name in differing]
    head = "".join(f'<th class="{kind}">{_broken(name)}</th>' for name, kind in heads)
    body = "".join(_front_row(summary, e, differing) for e in rows)
    note = "Every figure is the best known one: that of the held-out confirmation where there is one. The evidence is "
    note += "that of the weakest figure among the objectives. The same letter: cannot be "
    note += "told apart. Settings that are alike in all of them are left out."
    if alike is not None:
        note += f" {alike.candidate.short_id} is not on the front: it is the float model at the lengths of the "
        note += "recommended candidate, to see what INT8 alone gives."
    return f'{_key(body)}<table><tr>{head}</tr>{body}</table><p class="muted">{note}</p>'


def _key(table: str) -> str:
    """What the marks beside figures mean, of those that a table has."""
    marks = [
        f'<span class="figure {_css(level)}" data-glyph="{GLYPHS[level]}">{level}: {MEANINGS[level]}.</span>'
        for level in LEVELS
        if f'data-glyph="{GLYPHS[level]}"' in table
    ]
    return f'<p class="key">{" ".join(marks)}</p>'


def _figure_of(text: str, level: Evidence | None) -> str:
    """A figure with the mark of how well it is known."""
    if not text or level is None:
        return _text(text)
    words = f"{level}: {MEANINGS[level]}"
    return f'<span class="figure {_css(level)}" data-glyph="{GLYPHS[level]}" title="{words}">{_text(text)}</span>'


def _broken(head: str) -> str:
    """A heading in short lines: columns are as wide as their numbers, so that more of them are seen at once."""
    return _text(head).replace(".", ".<br>").replace(", ", ",<br>")


def _scored_value(evaluation: Evaluation) -> str:
    accuracy = evaluation.measurement.accuracy
    return f"{accuracy.values[accuracy.primary]:.4f}" if accuracy is not None else ""


def _front_row(summary: Summary, evaluation: Evaluation, differing: Sequence[str]) -> str:
    member = summary.member(evaluation.candidate.id)
    known = summary.strongest(evaluation)
    numbers = summary.numbers(known)
    speedup, drop = best_known_speedup(summary, evaluation), best_known_drop(summary, evaluation)
    is_baseline = evaluation.candidate.id == summary.baseline_id
    timed, scored_by_now = level_of(known, "latency_p50_ms"), level_of(known, "accuracy")
    figures = [
        (interval(speedup, "x", 2) if speedup is not None else "", timed),
        (
            interval(drop, "", 2, signed=True)
            if drop is not None and (not is_baseline or drop.high > drop.low)
            else "",
            scored_by_now,
        ),
        (_scored_value(known), scored_by_now),
        (p50_words(known.measurement.latency) if known.measurement.latency is not None else "", timed),
        (f"{numbers['size_mb']:.1f}" if "size_mb" in numbers else "", None),
    ]
    service = best_known_service(summary, evaluation)
    if service is not None:
        shown, confirmed = service.best or service.closest, service.confirmed
        simulated = service_level(known, replace(service, confirmed=None))
        loaded = service_level(known, service)
        figures += [
            (interval(shown.throughput_per_s, "", 0) if service.best is not None else "keeps no limit", simulated),
            (f"{confirmed.throughput_per_s.value:.0f}" if confirmed is not None else "", loaded),
            (interval(shown.p99_ms, "", 1), simulated),
            (f"{confirmed.p99_ms.value:.1f}" if confirmed is not None else "", loaded),
            (str(shown.settings), None),
        ]
    values = evaluation.candidate.parameters()
    name = evaluation.candidate.short_id + (" (float)" if is_baseline else "")
    name += " (off the front)" if any(m.id == evaluation.candidate.id for m in summary.fallen) else ""
    level = summary.evidence(evaluation)
    kind = "" if level is None else _kind(level)
    cells = [f"<td>{name}</td><td>{member.letters if member is not None else ''}</td>"]
    lent = ", ".join(
        f"{what} of {lender[:SHORT]}" for what, lender in lenders_of(summary.strongest(evaluation)).items()
    )
    badge = f'<span class="{kind}">{level or ""}</span>'
    if lent:  # a front of predictions has its own level, and its curve may be another's all the same
        badge += f' <span class="evidence shared">shared: {_text(lent)}</span>'
    cells += [f"<td>{badge}</td>"]
    cells += [f'<td class="n">{_figure_of(text, known_by)}</td>' for text, known_by in figures]
    cells += [f"<td>{_text(str(values.get(key, '')))}</td>" for key in differing]
    chosen = summary.recommended is not None and summary.recommended.candidate_id == evaluation.candidate.id
    kind = "chosen" if chosen else ""
    return f'<tr class="{kind}">{"".join(cells)}</tr>'


def _importance(found: Importance | None) -> str:
    if found is None:
        return ""
    parts = ["<h2>Which settings mattered</h2>"]
    if found.note:
        parts.append(f'<p class="muted">{_text(found.note)}</p>')
    for metric, shares in found.shares.items():
        rows = "".join(
            f'<tr><td>{_text(name)}</td><td class="n">{share:.0%}</td>'
            f'<td><span class="bar" style="width:{share * 240:.0f}px"></span></td></tr>'
            for name, share in shares.items()
            if share >= 0.01
        )
        parts.append(f"<p>{_text(metric)}: share of its variation, by f-ANOVA</p><table>{rows}</table>")
    return "".join(parts)


def _text(value: str) -> str:
    return html.escape(value)
