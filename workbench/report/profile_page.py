"""The timeline of a device's profile: one HTML file with everything inside, drawn on a canvas by a script in it."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.report.page import document
from workbench.report.profile_text import CAUSES, bound, cube_words, yaml_choice
from workbench.report.words import count_of
from workbench.study.profile_tries import Try
from workbench.values.device_profile import COMPUTING, Cause, DeviceProfile, TaskKind

_SCRIPT = Path(__file__).with_name("profile_page.js")
_COLORS: Mapping[TaskKind, str] = {
    "cube": "#2457c5",
    "mix": "#6a4fb3",
    "vector": "#0a7d43",
    "cpu": "#c2410c",
    "copy": "#b8860b",
    "wait": "#9aa3ad",
    "other": "#5b6470",
}
_KINDS: Mapping[TaskKind, str] = {
    "cube": "matrix products",
    "mix": "products with vector work",
    "vector": "vector operators",
    "cpu": "operators beside the cores",
    "copy": "copies",
    "wait": "waiting for another stream",
    "other": "other",
}
_CAUSE_COLORS: Mapping[Cause, str] = {
    "host launch": "#b3261e",
    "host copy": "#b8860b",
    "host operator": "#c2410c",
    "synchronization": "#9aa3ad",
    "scheduling": "#d9b8b5",
}
_STYLE = """<style>
#timeline { position: relative; border: 1px solid #d9dee5; margin: .5rem 0; }
#timeline canvas { display: block; width: 100%; cursor: grab; } #timeline canvas:active { cursor: grabbing; }
#tip { position: absolute; pointer-events: none; background: #1c1f24; color: #fff; font-size: 12px; line-height: 1.4;
       padding: .35rem .55rem; border-radius: 4px; max-width: 30rem; display: none; z-index: 2; }
.key { font-size: 13px; max-width: none; } .key span { white-space: nowrap; margin-right: .9em; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .3em; }
button { font: inherit; font-size: 13px; padding: .15rem .6rem; margin-right: .4rem; }
tr.jump { cursor: pointer; } tr.jump:hover td { background: #eef2fb; }
.stack { display: flex; height: 1.5rem; max-width: 60rem; } .stack i { display: block; height: 100%; }
td.name { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; max-width: 26rem; }
table.try td { vertical-align: top; }
</style>"""


def profile_html(profile: DeviceProfile, title: str, tries: Sequence[Try] = ()) -> str:
    """A self-contained page that makes no request of any kind.

    The timeline starts with one execution in the middle of the run; the strip above it is the whole of it.
    """
    measured = (
        '<p class="emulated">Modelled: these times come from a model of the device; nothing was measured on one.</p>'
        if profile.modelled
        else ""
    )
    left_out = (
        f" The first {count_of(len(profile.tasks), 'task')} are drawn; {profile.tasks_left_out:,} are left out."
        if profile.tasks_left_out
        else ""
    )
    body = [
        _STYLE,
        f"<h1>{_text(title)}: what the device did</h1>",
        measured,
        f'<p class="muted">{_text(profile.chip or "device")}, {profile.span_us / 1000:.3f} ms, '
        f"{count_of(profile.executions, 'execution')}.{_text(left_out)}</p>",
        _whole(profile),
        _timeline(profile) if profile.tasks else "",
        _tries(tries),
        _bubbles(profile),
        _operators(profile),
        _cube(profile),
        _streams(profile),
        _notes(profile),
    ]
    return document(f"{title}: profile", body)


def _whole(profile: DeviceProfile) -> str:
    whole = profile.computing_us + profile.idle_us
    if not whole:
        return ""
    causes = profile.causes
    parts = [("computing", profile.computing_us, "#2457c5")]
    parts += [(cause, us, _CAUSE_COLORS[cause]) for cause, us in sorted(causes.items(), key=lambda item: -item[1])]
    parts.append(("before the first operator and after the last", profile.edges_us, "#d5dae2"))
    parts.append(("gaps below half a microsecond", profile.short_gaps_us, "#eceff3"))
    bars = "".join(
        f'<i style="width:{100 * us / whole:.3f}%;background:{color}" title="{_text(name)} {us / whole:.1%}"></i>'
        for name, us, color in parts
    )
    key = "".join(
        f'<span><i style="background:{color}"></i>{_text(name)} {us / whole:.1%}</span> '
        for name, us, color in parts
        if us > 0
    )
    return (
        f"<h2>The cores compute {profile.computing_us / whole:.1%} of the time</h2>"
        f'<div class="stack">{bars}</div><p class="key">{key}</p>'
        f'<p class="muted">{_text("; ".join(f"{cause}: {CAUSES[cause]}" for cause in causes))}.</p>'
    )


def _timeline(profile: DeviceProfile) -> str:
    key = "".join(
        f'<span><i style="background:{_COLORS[kind]}"></i>{_text(words)}</span> ' for kind, words in _KINDS.items()
    )
    return (
        '<h2>Timeline</h2><p><button id="whole">whole run</button><button id="one">one execution</button>'
        '<button id="nearer">nearer</button><button id="farther">farther</button>'
        '<span class="muted">wheel: nearer and farther; drag: along; point at a task for its name</span></p>'
        '<div id="timeline"><canvas id="strip" height="34"></canvas><canvas id="lanes"></canvas>'
        '<div id="tip"></div></div>'
        f'<p class="key">{key}</p>'
        f'<script type="application/json" id="profile">{_data(profile)}</script>'
        f"<script>{_SCRIPT.read_text(encoding='utf-8')}</script>"
    )


def _data(profile: DeviceProfile) -> str:
    lanes = list(dict.fromkeys((task.device, task.stream) for task in profile.tasks))
    names: dict[str, int] = {}

    def number(text: str) -> int:
        return names.setdefault(text, len(names))

    kinds = list(_KINDS)
    tasks: list[list[Any]] = [
        [
            lanes.index((task.device, task.stream)),
            kinds.index(task.kind),
            task.start_us,
            task.duration_us,
            number(task.name),
            number(task.op_type),
            task.execution or 0,
        ]
        for task in profile.tasks
    ]
    data = {
        "computing": [kinds.index(kind) for kind in COMPUTING],
        "lanes": [f"device {device}, stream {stream}" for device, stream in lanes],
        "colors": [_COLORS[kind] for kind in kinds],
        "tasks": tasks,
        "names": list(names),
        "bubbles": [
            [b.longest_start_us, b.longest_us, _CAUSE_COLORS[b.cause], f"{b.cause}: {b.before} to {b.after}"]
            for b in profile.bubbles
        ],
    }
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _tries(tries: Sequence[Try]) -> str:
    if not tries:
        return ""
    rows = []
    for one in tries:
        changes = ", ".join(f"{name}: {yaml_choice(value)}" for name, value in one.lever.changes.items())
        if one.candidate is None:
            what = _text(one.refused or "no setting does it")
        else:
            where = "in the space" if not one.missing else f"not in the space, which lacks {', '.join(one.missing)}"
            what = f"{one.candidate.short_id}, {_text(where)}<br><code>{_text(one.command)}</code>"
        rows.append(
            f"<tr><td class=name>{_text(bound(one.lever))}</td><td class=name>{_text(one.lever.finding)}</td>"
            f"<td class=name>{_text(changes)}</td><td class=name>{what}</td></tr>"
        )
    return (
        '<h2>What to try</h2><div class="wide"><table class=try><tr><th>what can go</th><th>because</th><th>change</th>'
        f'<th>candidate</th></tr>{"".join(rows)}</table></div><p class="muted">What can go: the share '
        "of the run that goes if all of what the finding is about goes. It is a bound and no forecast; the command "
        "measures.</p>"
    )


def _bubbles(profile: DeviceProfile) -> str:
    whole = profile.computing_us + profile.idle_us
    if not profile.bubbles:
        return ""
    rows = "".join(
        f'<tr class="jump" data-start="{b.longest_start_us}" data-length="{b.longest_us}">'
        f"<td class=n>{b.total_us / whole:.1%}</td><td class=n>{b.times}</td><td class=n>{b.median_us:.1f}</td>"
        f"<td class=n>{b.longest_us:.1f}</td>"
        f"<td class=name>{_text(b.before)}</td><td class=name>{_text(b.after)}</td><td>{_text(b.cause)}</td>"
        f"<td class=name>{_text(', '.join(b.tasks))}</td></tr>"
        for b in profile.bubbles
    )
    return (
        "<h2>When the cores had nothing to do</h2><p>The same gap of every execution is one line; choose one to see "
        'its longest above.</p><div class="wide"><table><tr><th class=n>of the time</th><th class=n>times</th>'
        "<th class=n>median, µs</th>"
        "<th class=n>longest, µs</th><th>after</th><th>before</th><th>likely cause</th><th>what ran meanwhile</th>"
        f"</tr>{rows}</table></div>"
    )


def _operators(profile: DeviceProfile) -> str:
    widest = max((operator.share for operator in profile.operators), default=1.0) or 1.0
    rows = "".join(
        f"<tr><td>{_text(o.op_type)}</td><td>{_text(o.core)}{' INT8' if o.int8 else ''}</td><td class=n>{o.calls}</td>"
        f"<td class=n>{o.total_us:.1f}</td><td class=n>{o.share:.1%}</td>"
        f'<td><span class="bar" style="width:{160 * o.share / widest:.0f}px"></span></td></tr>'
        for o in profile.operators[:30]
    )
    return (
        '<h2>By type of operator</h2><div class="wide"><table><tr><th>type</th><th>core</th><th class=n>calls</th>'
        f"<th class=n>µs</th><th class=n>share</th><th></th></tr>{rows}</table></div>"
    )


def _cube(profile: DeviceProfile) -> str:
    rows = "".join(
        f"<tr><td>{_text(use.dtype)}</td><td class=n>{use.total_us:.1f}</td>"
        f"<td class=name>{_text(cube_words(use, profile.chip))}</td></tr>"
        for use in profile.cube
    )
    small = "".join(
        f"<tr><td class=n>{row.operators}</td><td class=n>{row.times}</td>"
        f"<td class=n>{row.total_us / row.times:.1f}</td>"
        f"<td class=name>{_text(row.first)}</td><td class=name>{_text(row.last)}</td>"
        f"<td class=name>{_text(', '.join(row.types))}</td></tr>"
        for row in profile.small
    )
    parts = []
    if rows:
        parts.append(
            f"<h2>The matrix units against their peak</h2><table><tr><th>factors</th><th class=n>µs</th><th></th></tr>"
            f"{rows}</table>"
        )
    if small:
        parts.append(
            "<h2>Small operators in a row</h2><p>Each below 5 µs, so that starting it is most of it.</p>"
            '<div class="wide">'
            "<table><tr><th class=n>operators</th><th class=n>times</th><th class=n>µs each time</th><th>first</th>"
            f"<th>last</th><th>types</th></tr>{small}</table></div>"
        )
    return "".join(parts)


def _streams(profile: DeviceProfile) -> str:
    rows = "".join(
        f"<tr><td>{_text(use.device)}</td><td>{_text(use.stream)}</td><td class=n>{use.tasks}</td>"
        f"<td class=n>{use.span_us / 1000:.3f}</td><td class=n>{use.idle_share:.1%}</td>"
        f"<td class=n>{use.computing_us / use.span_us if use.span_us else 0:.1%}</td></tr>"
        for use in profile.streams
    )
    head = "<th>device</th><th>stream</th><th class=n>tasks</th><th class=n>ms</th><th class=n>idle</th>"
    return f"<h2>Streams</h2><table><tr>{head}<th class=n>on the cores</th></tr>{rows}</table>" if rows else ""


def _notes(profile: DeviceProfile) -> str:
    lines = [*profile.notes, *(f"read: {source}" for source in profile.sources)]
    return f"<h2>Notes</h2><pre>{_text(chr(10).join(lines))}</pre>"


def _text(value: str) -> str:
    return html.escape(value)
