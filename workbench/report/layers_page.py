"""Two pages about layers: what each buys and costs in float, and where two models' numbers part."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import plotly.graph_objects as go

from workbench.comparison import Comparison
from workbench.layer_study import LayerStudy, Unit
from workbench.report.page import document

_DAMAGE, _COST, _JUMP = "#b3261e", "#4269d0", "#b3261e"


def sensitivity_html(study: LayerStudy) -> str:
    """Bars with both sides of every unit: damage when it is INT8, time when it stays in float."""
    first, second = (study.groups, study.layers) if study.unit == "group" else (study.layers, study.groups)
    names = ("groups", "layers") if study.unit == "group" else ("layers", "groups")
    chosen = study.chosen
    if not study.rungs:
        verdict = "Nothing was measured: this is the ranking alone."
    elif chosen is None:
        verdict = "No measured candidate both meets the limits and cannot be told from float in accuracy."
    elif chosen.kept == 0:
        verdict = "Keep nothing in float: INT8 everywhere cannot be told from the float model in accuracy."
    else:
        verdict = f"Keep in float: {', '.join(chosen.units)}."
    body = [
        f"<h1>{_text(study.experiment)}: which layers to keep in float</h1>",
        f'<p class="verdict">{_text(verdict)}</p>',
        _ladder(study),
        f"<h2>By {names[0]}, most sensitive first ({_text(study.metric)})</h2>",
        _bars(first, study, script=True),
        f"<h2>By {names[1]}</h2>",
        _bars(second, study, script=False),
        '<p class="muted">Red: share of the noise at the output when this unit alone is INT8. Blue: time its kernels '
        f"take in float beyond INT8, as a share of the float model's call ({study.call_us / 1000:.2f} ms at batch "
        f"{study.batch}, length {study.length}, one thread); kernels were timed one layer at a time. A negative cost "
        "says that float is faster there.</p>",
    ]
    return document(f"{study.experiment}: sensitivity", body)


def _ladder(study: LayerStudy) -> str:
    rows = []
    for rung in study.rungs:
        accuracy, latency = rung.evaluation.measurement.accuracy, rung.evaluation.measurement.latency
        kept = "nothing" if not rung.kept else f"{rung.kept}: {', '.join(rung.units)}"
        if accuracy is None or latency is None or accuracy.comparison is None:
            rows.append(f'<tr><td>{_text(kept)}</td><td colspan="3">{rung.evaluation.status}</td></tr>')
            continue
        drop, gain = accuracy.comparison.drop_pp, latency.speedup
        style = ' class="chosen"' if rung is study.chosen else ""
        rows.append(
            f"<tr{style}><td>{_text(kept)}</td><td class=n>{accuracy.values[accuracy.primary]:.4f}</td>"
            f"<td class=n>{drop.value:+.2f} [{drop.low:+.2f}, {drop.high:+.2f}]</td>"
            f"<td class=n>{gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}]</td></tr>"
        )
    if not rows:
        return ""
    head = "<tr><th>kept in float</th><th class=n>accuracy</th><th class=n>drop, pp</th><th class=n>speed-up</th></tr>"
    return f'<h2>Measured</h2><div class="wide"><table>{head}{"".join(rows)}</table></div>'


def _bars(units: Sequence[Unit], study: LayerStudy, *, script: bool) -> str:
    shown = list(reversed(units))  # plotly draws the first bar at the bottom
    names = [unit.sensitivity.unit for unit in shown]
    details = [
        f"SQNR {u.sensitivity.sqnr_db:.1f} dB, cosine {u.sensitivity.cosine:.6f}, estimate "
        f"{u.sensitivity.first_order_db:.1f} dB, {u.macs_share:.1%} of the MACs, {u.float_us:.0f} µs in float, "
        f"{u.int8_us:.0f} µs in INT8"
        for u in shown
    ]
    figure = go.Figure()
    for values, name, color in (
        ([-100 * u.damage_share for u in shown], "damage in INT8", _DAMAGE),
        ([100 * u.call_share for u in shown], "cost in float", _COST),
    ):
        figure.add_bar(
            y=names,
            x=values,
            name=name,
            orientation="h",
            marker_color=color,
            customdata=details,
            hovertemplate="%{y}<br>%{x:.1f} %<br>%{customdata}<extra></extra>",
        )
    figure.update_layout(
        barmode="relative",
        height=max(260, 60 + 20 * len(names)),
        margin={"l": 10, "r": 10, "t": 10, "b": 40},
        xaxis={"title": "damage, % of all noise   |   cost, % of the float call", "zeroline": True},
        yaxis={"automargin": True, "tickfont": {"size": 11}},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )
    return str(
        figure.to_html(
            full_html=False,
            include_plotlyjs=script,
            div_id="first" if script else "second",
            config={"displaylogo": False, "responsive": True},
        )
    )


def comparison_html(found: Comparison) -> str:
    """Relative error of every compared tensor along the graph, jumps marked."""
    floor = min((r.relative_error for r in found.rows if r.relative_error > 0), default=1e-9)
    errors = [max(row.relative_error, floor) if math.isfinite(row.relative_error) else None for row in found.rows]
    labels = [
        f"{row.tensor}<br>{row.op_type} {row.node}<br>cosine {row.cosine:.6f}, max abs {row.max_abs:.2e}, "
        f"MAE {row.mae:.2e}"
        for row in found.rows
    ]
    figure = go.Figure()
    places = list(range(len(found.rows)))
    figure.add_scatter(
        x=places,
        y=errors,
        mode="lines+markers",
        name="relative error",
        text=labels,
        hoverinfo="text+y",
        line={"color": _COST},
        marker={"size": 5},
    )
    jumps = [at for at in places if found.rows[at].jump]
    figure.add_scatter(
        x=jumps,
        y=[errors[at] for at in jumps],
        mode="markers",
        name="jump",
        text=[labels[at] for at in jumps],
        hoverinfo="text+y",
        marker={"color": _JUMP, "size": 11, "symbol": "diamond-open"},
    )
    figure.update_layout(
        height=420,
        margin={"l": 10, "r": 10, "t": 10, "b": 40},
        yaxis={"type": "log", "title": "|a − b| / |a|", "exponentformat": "power"},
        xaxis={"title": "tensors in graph order"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )
    plot = figure.to_html(
        full_html=False, include_plotlyjs=True, div_id="errors", config={"displaylogo": False, "responsive": True}
    )
    limits = found.limits
    verdict = "within" if found.passed else "not within"
    rows = "".join(
        f"<tr><td>{_text(r.tensor)}</td><td>{_text(r.op_type)}</td><td class=n>{r.cosine:.6f}</td>"
        f"<td class=n>{r.max_abs:.2e}</td><td class=n>{r.mae:.2e}</td><td class=n>{r.sqnr_db:.1f}</td>"
        f"<td class=n>{r.added_error:.2%}</td><td>{'jump' if r.jump else ''}</td></tr>"
        for r in found.rows
    )
    jump = found.first_jump
    where = "" if jump is None else f" The error first jumps at {_text(jump.tensor)} ({_text(jump.op_type)})."
    body = [
        f"<h1>{_text(found.a)} against {_text(found.b)}</h1>",
        f'<p class="muted">{found.batches} batches: {_text(found.data)}</p>',
        f'<p class="verdict{"" if found.passed else " none"}">Outputs are {verdict} the limits: cosine &gt; '
        f"{limits.cosine:g}, max abs &lt; {limits.max_abs:g}, MAE &lt; {limits.mae:g}.{where}</p>",
        str(plot),
        '<div class="wide"><table><tr><th>tensor</th><th>made by</th><th class=n>cosine</th><th class=n>max abs</th>'
        f"<th class=n>MAE</th><th class=n>SQNR dB</th><th class=n>error added</th><th></th></tr>{rows}</table></div>",
    ]
    return document(f"{found.a} against {found.b}", body)


def _text(value: str) -> str:
    return html.escape(value)
