"""Two pages about layers: what each buys and costs in float, and where two models' numbers part."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.report.layers import (
    METRIC_WORDS,
    STEPS_NOTE,
    comparison_cells,
    comparison_marks,
    comparison_verdict,
    device_words,
    estimate_words,
    microseconds,
    priced_words,
    signed_percent,
    step_cells,
    study_verdict,
    unit_cells,
)
from workbench.report.words import count_of
from workbench.study.compared import Comparison, TensorComparison
from workbench.study.layers import LayerStudy, Unit
from workbench.values.documents.templates import rendered

_DAMAGE, _COST, _GAIN, _JUMP = "#c2410c", "#4269d0", "#0a7d43", "#b3261e"
_LONGEST_LABEL = 52
_TEMPLATES = Path(__file__).with_name("templates")
_HEADS = (
    *("SQNR, dB", "1st-order estimate, dB", "cosine", "KL, nats", "noise", "MACs"),
    *("float, µs", "INT8, µs", "paid in float"),
)
_CONFIG = {"displaylogo": False, "responsive": True}
_BARS_CONFIG = {"displayModeBar": False, "responsive": True}


def sensitivity_html(study: LayerStudy, recipe: Sequence[str] = ()) -> str:
    """The answer, the measured steps, and bars with both sides of every unit: its noise in INT8, its time in float.

    Args:
        recipe: lines that say how to run the answer.
    """
    kinds = ("group", "layer") if study.unit == "group" else ("layer", "group")
    tables = {"group": study.groups, "layer": study.layers}
    return rendered(
        _TEMPLATES / "sensitivity.html.j2",
        title=f"{study.experiment}: sensitivity",
        study=study,
        metric=METRIC_WORDS[study.metric],
        verdict=study_verdict(study),
        recipe=recipe,
        steps=[(*step_cells(study, step), step is study.chosen) for step in study.steps],
        note=STEPS_NOTE,
        priced=priced_words(study),
        estimate=estimate_words(study),
        heads=_HEADS,
        kinds=[
            {
                "kind": kind,
                "bars": _bars(tables[kind], number),
                "rows": [(unit.sensitivity.unit, unit_cells(unit, digits=1)) for unit in tables[kind]],
            }
            for number, kind in enumerate(kinds)
        ],
    )


def _bars(units: Sequence[Unit], number: int) -> str:
    shown = list(reversed(units))  # plotly draws the first bar at the bottom
    places = list(range(len(shown)))
    names = [u.sensitivity.unit for u in shown]
    details = [
        f"SQNR {u.sensitivity.sqnr_db:.1f} dB, cosine {u.sensitivity.cosine:.6f}<br>{u.macs_share:.1%} of the MACs, "
        f"{microseconds(u.float_us)} µs in float, {microseconds(u.int8_us)} µs in INT8"
        for u in shown
    ]
    figure = make_subplots(cols=2, shared_yaxes=True, horizontal_spacing=0.01)
    bought = [100 * u.damage_share for u in shown]
    paid = [100 * u.call_share for u in shown]
    colors = ([_DAMAGE] * len(shown), [_COST if value >= 0 else _GAIN for value in paid])
    for column, (values, word, color) in enumerate(zip((bought, paid), ("bought", "paid"), colors, strict=True), 1):
        figure.add_bar(
            y=places,
            x=values,
            orientation="h",
            marker_color=color,
            text=[f"{value:.1f}" if column == 1 else signed_percent(value / 100)[:-1] for value in values],
            textposition="outside",
            cliponaxis=False,
            textfont={"size": 11},
            customdata=list(zip(names, details, strict=True)),
            hovertemplate=f"<b>%{{customdata[0]}}</b><br>{word}: %{{x:.2f}} %<br>%{{customdata[1]}}<extra></extra>",
            row=1,
            col=column,
        )
    for column, (values, title) in enumerate(
        ((bought, "bought: % of all noise taken away"), (paid, "paid: extra time in float, % of the float call")), 1
    ):
        low, high = min(0.0, *values), max(0.0, *values)
        room = 0.12 * ((high - low) or 1.0)  # for the numbers at the ends of the bars
        ends = [low - (room if low < 0 else 0.0), high + room]
        figure.update_xaxes(
            title=title,
            range=ends[::-1] if column == 1 else ends,
            zeroline=True,
            zerolinecolor="#5b6470",
            gridcolor="#e8ebef",
            row=1,
            col=column,
        )
    figure.update_yaxes(
        tickmode="array", tickvals=places, ticktext=[_label(n) for n in names], automargin=True, tickfont={"size": 12}
    )
    figure.update_layout(
        template="plotly_white",
        showlegend=False,
        bargap=0.25,
        height=110 + 24 * len(names),
        margin={"l": 10, "r": 20, "t": 10, "b": 50},
    )
    return str(
        figure.to_html(full_html=False, include_plotlyjs=number == 0, div_id=f"units-{number}", config=_BARS_CONFIG)
    )


# --- two models ----------------------------------------------------------------------------------------------------


def comparison_html(found: Comparison) -> str:
    """The verdict, the error of every compared tensor along the graph with its jumps marked, and the table."""
    return rendered(
        _TEMPLATES / "comparison.html.j2",
        title=f"{found.a} against {found.b}",
        found=found,
        batches=count_of(found.batches, "batch", "batches"),
        verdict=comparison_verdict(found),
        device=() if found.device is None else device_words(found.device),
        along=_along(found),
        rows=[(row, comparison_cells(row, digits=2), comparison_marks(row)) for row in found.rows],
    )


def _along(found: Comparison) -> str:
    positive = [row.relative_error for row in found.rows if row.relative_error > 0]
    floor = min(positive, default=1e-7) / 2
    errors = [max(row.relative_error, floor) for row in found.rows]
    labels = [
        f"<b>{_text(row.tensor)}</b><br>{_text(row.op_type)} {_text(row.node)}<br>cosine {row.cosine:.6f}, max abs "
        f"{row.max_abs:.2e}, MAE {row.mae:.2e}<br>error {row.relative_error:.3%}, added here {row.added_error:.3%}"
        for row in found.rows
    ]
    decades = [10.0**power for power in range(math.floor(math.log10(floor)), 6)]
    figure = go.Figure()
    looks: tuple[tuple[str, Callable[[TensorComparison], object], dict[str, object]], ...] = (
        ("error carried to this tensor", lambda row: not row.rescaled, {"color": _COST, "size": 5}),
        ("jump", lambda row: row.jump, _marker(_JUMP, "diamond")),
        ("NaN or infinity", lambda row: row.not_finite, _marker("#111", "x")),
        ("rescaled, no error", lambda row: row.rescaled, _marker("#9aa3ad", "circle")),
        ("output", lambda row: row.is_output, _marker(_GAIN, "square-open")),
    )
    for number, (name, shows, marker) in enumerate(looks):
        at = [place for place, row in enumerate(found.rows) if shows(row)]
        if at:
            figure.add_scatter(
                x=at,
                y=[errors[i] for i in at],
                mode="markers" if number else "lines+markers",
                name=name,
                marker=marker,
                line={"color": _COST, "width": 1.5},
                hovertext=[labels[i] for i in at],
                hoverinfo="text",
            )
    first = found.first_jump
    if first is not None:
        place = found.rows.index(first)
        figure.add_vline(
            place,
            line_dash="dot",
            line_width=1,
            line_color=_JUMP,
            annotation_text=f"first jump: {_label(first.tensor)}",
            annotation_position="top left" if place > len(errors) / 2 else "top right",
            annotation_font_color=_JUMP,
        )
    figure.update_layout(
        template="plotly_white",
        height=460,
        margin={"l": 70, "r": 20, "t": 30, "b": 60},
        yaxis={"type": "log", "title": "error |a − b| / |a|", "tickvals": decades, "ticktext": [*map(_share, decades)]},
        xaxis={"title": f"{count_of(len(errors), 'tensor')} in graph order (point at one for its name)"},
        legend={"orientation": "h", "y": -0.2, "yanchor": "top"},
        hoverlabel={"align": "left", "bgcolor": "white"},
    )
    return str(figure.to_html(full_html=False, include_plotlyjs=True, div_id="errors", config=_CONFIG))


def _share(value: float) -> str:
    return f"{100 * value:g} %" if 1e-6 <= value <= 10 else f"{value:.0e}"


def _marker(color: str, symbol: str) -> dict[str, object]:
    return {"color": color, "size": 12, "symbol": symbol, "line": {"width": 2, "color": color}}


def _label(name: str) -> str:
    """A long name without its middle; its end tells most."""
    if len(name) <= _LONGEST_LABEL:
        return _text(name)
    return _text(f"{name[:10]}…{name[11 - _LONGEST_LABEL :]}")


def _text(value: str) -> str:
    return html.escape(value)
