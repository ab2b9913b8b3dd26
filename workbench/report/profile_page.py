"""The timeline of a device's profile: one HTML file with everything inside, drawn on a canvas by a script in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.report.profile_text import CAUSES, bound, cube_words, yaml_choice
from workbench.report.words import count_of
from workbench.study.profile_tries import Try
from workbench.values.device_profile import COMPUTING, Cause, DeviceProfile, TaskKind
from workbench.values.documents.templates import rendered

_SCRIPT = Path(__file__).with_name("profile_page.js")
_PAGE = Path(__file__).with_name("templates") / "profile.html.j2"
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


def profile_html(profile: DeviceProfile, title: str, tries: Sequence[Try] = ()) -> str:
    """A self-contained page that makes no request of any kind.

    The timeline starts with one execution in the middle of the run; the strip above it is the whole of it.
    """
    whole = profile.computing_us + profile.idle_us
    parts = [("computing", profile.computing_us, "#2457c5")]
    by_time = sorted(profile.causes.items(), key=lambda item: -item[1])
    parts += [(cause, us, _CAUSE_COLORS[cause]) for cause, us in by_time]
    parts.append(("before the first operator and after the last", profile.edges_us, "#d5dae2"))
    parts.append(("gaps below half a microsecond", profile.short_gaps_us, "#eceff3"))
    return rendered(
        _PAGE,
        title=f"{title}: profile",
        about=title,
        profile=profile,
        executions=count_of(profile.executions, "execution"),
        tasks=count_of(len(profile.tasks), "task"),
        whole=whole,
        share=lambda us: f"{us / whole:.1%}",
        parts=parts,
        causes="; ".join(f"{cause}: {CAUSES[cause]}" for cause in profile.causes),
        kinds=[(words, _COLORS[kind]) for kind, words in _KINDS.items()],
        data=_data(profile),
        script=_SCRIPT.read_text(encoding="utf-8"),
        tries=list(map(_tried, tries)),
        widest=max((operator.share for operator in profile.operators), default=1.0) or 1.0,
        cube=[(use.dtype, use.total_us, cube_words(use, profile.chip)) for use in profile.cube],
        notes=[*profile.notes, *(f"read: {source}" for source in profile.sources)],
    )


def _tried(one: Try) -> dict[str, str]:
    what = one.refused or "no setting does it"
    if one.candidate is not None:
        where = "in the space" if not one.missing else f"not in the space, which lacks {', '.join(one.missing)}"
        what = f"{one.candidate.short_id}, {where}"
    return {
        "bound": bound(one.lever),
        "finding": one.lever.finding,
        "changes": ", ".join(f"{name}: {yaml_choice(value)}" for name, value in one.lever.changes.items()),
        "what": what,
        "command": one.command if one.candidate is not None else "",
    }


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
