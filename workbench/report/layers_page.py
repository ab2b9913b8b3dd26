"""Two pages about layers: what each buys and costs in float, and where two models' numbers part."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.report.device_words import device_words
from workbench.report.layers_words import (
    METRIC_WORDS,
    adoption,
    comparison_verdict,
    estimate_words,
    kept_words,
    ladder_note,
    microseconds,
    priced_words,
    signed_percent,
    study_verdict,
)
from workbench.report.page import document
from workbench.report.words import count_of
from workbench.study.compared import Comparison, TensorComparison
from workbench.study.layers import LayerStudy, Rung, Unit

_DAMAGE, _COST, _GAIN, _JUMP = "#c2410c", "#4269d0", "#0a7d43", "#b3261e"
_LONGEST_LABEL = 52
_CONFIG = {"displaylogo": False, "responsive": True}
_BARS_CONFIG = {"displayModeBar": False, "responsive": True}


def sensitivity_html(study: LayerStudy, recipe: Sequence[str] = ()) -> str:
    """The answer, the measured ladder, and bars with both sides of every unit: its noise in INT8, its time in float.

    Args:
        recipe: lines that say how to run the answer.
    """
    kinds = ("group", "layer") if study.unit == "group" else ("layer", "group")
    tables = {"group": study.groups, "layer": study.layers}
    good = study.chosen is not None
    answer = "".join(f"<p>{_text(sentence)}</p>" for sentence in study_verdict(study))
    body = [
        f"<h1>{_text(study.experiment)}: which layers to keep in float, and what it costs</h1>",
        f'<p class="muted">Every {kinds[0]} and {kinds[1]} was quantized alone over {study.samples} calibration '
        f"samples, and timed in float and in INT8. Ranked by: {_text(METRIC_WORDS[study.metric])}.</p>",
        f'<div class="verdict{"" if good else " none"}">{answer}</div>',
        f"<pre>{_text(chr(10).join(recipe))}</pre>" if recipe else "",
        _ladder(study),
        '<h2>How to read the bars</h2><p><b style="color:#c2410c">Left, bought:</b> the share of all quantization '
        "noise at the output that goes away when this unit stays in float. "
        '<b style="color:#4269d0">Right, paid:</b> the extra time of its kernels in float, as a share of '
        f'{_text(priced_words(study))}. <b style="color:#0a7d43">Green</b> to the left of zero: float is the faster '
        "one. Good candidates for float have a long left bar and a short right one. "
        f"{_text(estimate_words(study))}{'; the table above is measured' if study.rungs else ''}.</p>",
    ]
    for number, kind in enumerate(kinds):
        units = tables[kind]
        body += [f"<h2>By {kind}, most sensitive first</h2>", _bars(units, number), _units_table(units, kind)]
    return document(f"{study.experiment}: sensitivity", body)


def _ladder(study: LayerStudy) -> str:
    rows = [_rung_row(study, rung) for rung in study.rungs]
    if not rows:
        return ""
    head = (
        "<tr><th>kept in float</th><th class=n>accuracy</th><th class=n>drop, pp [95 %]</th>"
        "<th class=n>speed-up over float [95 %]</th><th></th></tr>"
    )
    return (
        f'<h2>Measured: INT8 with the most sensitive {study.unit}s in float</h2><div class="wide"><table>{head}'
        f'{"".join(rows)}</table></div><p class="muted">{_text(ladder_note(study))}.</p>'
    )


def _rung_row(study: LayerStudy, rung: Rung) -> str:
    accuracy, latency = rung.evaluation.measurement.accuracy, rung.evaluation.measurement.latency
    kept = f'<td style="white-space:normal">{_text(kept_words(rung))}</td>'
    if accuracy is None or latency is None or accuracy.comparison is None:
        failure = rung.evaluation.failure
        return f'<tr>{kept}<td colspan="4">{_text("failed" if failure is None else failure.message)}</td></tr>'
    drop, gain = accuracy.comparison.drop_pp, latency.speedup
    style = ' class="chosen"' if rung is study.chosen else ""
    return (
        f"<tr{style}>{kept}<td class=n>{accuracy.values[accuracy.primary]:.4f}</td>"
        f"<td class=n>{drop.value:+.2f} [{drop.low:+.2f}, {drop.high:+.2f}]</td>"
        f"<td class=n>{gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}]</td>"
        f"<td>{_text(adoption(study, rung))}</td></tr>"
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


def _units_table(units: Sequence[Unit], kind: str) -> str:
    head = "".join(
        f"<th class=n>{name}</th>"
        for name in (
            *("SQNR, dB", "1st-order estimate, dB", "cosine", "KL, nats", "noise", "MACs"),
            *("float, µs", "INT8, µs", "paid in float"),
        )
    )
    rows = []
    for unit in units:
        s = unit.sensitivity
        cells = (
            *(f"{s.sqnr_db:.1f}", f"{s.first_order_db:.1f}", f"{s.cosine:.6f}", "" if s.kl is None else f"{s.kl:.1e}"),
            *(
                f"{unit.damage_share:.1%}",
                f"{unit.macs_share:.1%}",
                microseconds(unit.float_us),
                microseconds(unit.int8_us),
            ),
            signed_percent(unit.call_share),
        )
        rows.append(f"<tr><td>{_text(s.unit)}</td>{''.join(f'<td class=n>{cell}</td>' for cell in cells)}</tr>")
    return (
        f'<details><summary>All numbers by {kind}</summary><div class="wide"><table>'
        f"<tr><th>{kind}</th>{head}</tr>{''.join(rows)}</table></div></details>"
    )


# --- two models ----------------------------------------------------------------------------------------------------


def comparison_html(found: Comparison) -> str:
    """The verdict, the error of every compared tensor along the graph with its jumps marked, and the table."""
    sentences = "".join(f"<p>{_text(sentence)}</p>" for sentence in comparison_verdict(found))
    if found.device is not None:
        sentences += f"<pre>{_text(chr(10).join(device_words(found.device)))}</pre>"
    head = "".join(
        f"<th class=n>{name}</th>" for name in ("cosine", "max abs", "MAE", "SQNR, dB", "error", "added here")
    )
    body = [
        f"<h1>{_text(found.a)} against {_text(found.b)}</h1>",
        f'<p class="muted">{count_of(found.batches, "batch", "batches")} of {_text(found.data)}; the first model is '
        "the reference.</p>",
        f'<div class="verdict{"" if found.passed else " none"}">{sentences}</div>',
        "<h2>Error along the graph</h2>",
        _along(found),
        '<p class="muted">Error: |a − b| / |a| over all elements of a tensor. What a tensor carries already from the '
        "tensors it is computed from is no error of its own; 'added here' is what lies beyond, and a jump is a step of "
        "at least half the largest. Equal tensors are drawn at the lower edge.</p>",
        f"<h2>All compared tensors, in graph order</h2><div class=wide><table><tr><th>tensor</th><th>made by</th>{head}"
        f"<th></th></tr>{''.join(map(_comparison_row, found.rows))}</table></div>",
    ]
    return document(f"{found.a} against {found.b}", body)


def _comparison_row(row: TensorComparison) -> str:
    broken = f"{row.not_finite} NaN/inf"
    marks = ((broken, row.not_finite), ("output", row.is_output), ("jump", row.jump), ("rescaled", row.rescaled))
    color = "" if row.within_limits or row.rescaled else ' class="warn"'
    error = "" if row.not_finite else f"{row.relative_error:.2%}"
    added = f"{row.added_error:.2%}" if row.added_error and not row.not_finite else ""
    cells = (
        *(f"{row.cosine:.6f}", f"{row.max_abs:.2e}", f"{row.mae:.2e}"),
        *("equal" if row.sqnr_db is None else f"{row.sqnr_db:.1f}", error, added),
    )
    style = ' style="background:#fcf1f0;font-weight:600"' if row.jump or row.not_finite else ""
    return (
        f"<tr{style}><td{color} style='white-space:normal;word-break:break-all' title={_quoted(row.node)}>"
        f"{_text(row.tensor)}</td><td>{_text(row.op_type)}</td>"
        f"{''.join(f'<td class=n>{cell}</td>' for cell in cells)}"
        f"<td>{' '.join(word for word, there in marks if there)}</td></tr>"
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
    everywhere = [at for at, row in enumerate(found.rows) if not row.rescaled]
    looks = (
        ("error carried to this tensor", everywhere, "lines+markers", {"color": _COST, "size": 5}),
        ("jump", [at for at, row in enumerate(found.rows) if row.jump], "markers", _marker(_JUMP, "diamond")),
        (
            "NaN or infinity",
            [at for at, row in enumerate(found.rows) if row.not_finite],
            "markers",
            _marker("#111", "x"),
        ),
        (
            "rescaled, no error",
            [at for at, r in enumerate(found.rows) if r.rescaled],
            "markers",
            _marker("#9aa3ad", "circle"),
        ),
        (
            "output",
            [at for at, row in enumerate(found.rows) if row.is_output],
            "markers",
            _marker(_GAIN, "square-open"),
        ),
    )
    for name, at, mode, marker in looks:
        if at:
            figure.add_scatter(
                x=at,
                y=[errors[i] for i in at],
                mode=mode,
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


def _quoted(value: str) -> str:
    return f'"{html.escape(value, quote=True)}"'


def _text(value: str) -> str:
    return html.escape(value)
