"""A manifest's `metric:` → MetricUse: the user's own function, or one of a library by its name.

metric: metric.py:score                                   # a share of 0..1 for each sample, more is better
metric: {function: metric.py:psnr, bounds: [0, 60], unit: dB}
metric: {name: wer, output: logits, symbols: letters.json}
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.inputs.library_metrics import NAMED, WHOLE_SET
from workbench.user_code import UserCode, named_code, read_code
from workbench.values.documents.canonical import canonical_json, file_digest
from workbench.values.documents.yaml_reader import Section
from workbench.values.errors import nearest
from workbench.values.versions import install_command

Bounds = tuple[float | None, float | None]
SHARE: Bounds = (0.0, 1.0)
_OWN_UNIT = "points"
"""Of a metric that is no share of 0..1 and has no other unit: its differences are no percentage points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricUse:
    """What `metric:` says.

    Attributes:
        name: of the primary metric.
        higher: metric → more of it is better; those that are not named here: True.
        bounds: metric → least and largest value of one sample; those that are not named here: a share of 0..1.
        units: metric → unit; those that are not named here: none for a share, else 'points'.
        options: what the function is given as `options`, as canonical JSON.
        files: digests of the files that the options name.
    """

    code: UserCode
    name: str
    higher: tuple[tuple[str, bool], ...] = ()
    bounds: tuple[tuple[str, Bounds], ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    options: str = "{}"
    files: tuple[str, ...] = ()

    @property
    def identity(self) -> dict[str, object]:
        """What decides the numbers, besides the data: code, libraries, options; not where the files lie."""
        places = {k for k, v in json.loads(self.options).items() if isinstance(v, str) and Path(v).is_absolute()}
        options = {k: "" if k in places else v for k, v in json.loads(self.options).items()}
        return {
            "function": self.code.function,
            "code": self.code.sha256,
            "libraries": list(self.code.versions),
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "code"},
            **({"options": options} if self.files else {}),
        }

    def higher_of(self, metric: str) -> bool:
        return dict(self.higher).get(metric, True)

    def bounds_of(self, metric: str) -> Bounds:
        return dict(self.bounds).get(metric, SHARE)

    def unit_of(self, metric: str) -> str:
        return dict(self.units).get(metric, "" if self.bounds_of(metric) == SHARE else _OWN_UNIT)


def metric_of(top: Section) -> MetricUse | None:
    """Read the key; None where it is absent."""
    if not top.has("metric"):
        return None
    written = top.raw("metric")
    if isinstance(written, str):
        if ":" not in written:
            raise top.error("metric", f"{written!r} is not file.py:function.", nearest(written, NAMED))
        code = named_code(top, "metric", written)
        return MetricUse(code=code, name=code.function)
    if not isinstance(written, dict):
        raise top.error("metric", f"expected file.py:function or a mapping, got {written!r}.")
    with top.section("metric") as section:
        if section.has("function"):
            return _own(section)
        return _named(section)


def _own(section: Section) -> MetricUse:
    code = named_code(section, "function", section.text("function"))
    name = section.name("name", code.function)
    options = section.raw("options", {})
    if not isinstance(options, dict):
        raise section.error("options", f"expected a mapping, got {options!r}.")
    try:
        written = canonical_json(options)
    except (TypeError, ValueError) as error:
        raise section.error("options", f"{error}.", "Give texts, numbers, lists and mappings.") from error
    return MetricUse(
        code=code,
        name=name,
        higher=_each(section, "higher_is_better", name, "true or false", lambda value: isinstance(value, bool)),
        bounds=tuple((metric, _bounds(section, value)) for metric, value in _each(section, "bounds", name)),
        units=_each(section, "unit", name, "a short text such as dB", lambda v: isinstance(v, str) and len(v) <= 20),
        options=written,
    )


def _named(section: Section) -> MetricUse:
    name = section.name("name")
    if name in WHOLE_SET:
        rule = f"{name!r} is one number of a whole set: it has no score per sample, which paired tests and early "
        raise section.error("name", f"{rule}stopping need.", WHOLE_SET[name])
    if name not in NAMED:
        raise section.error("name", f"{name!r} is no metric of a library.", nearest(name, NAMED))
    known = NAMED[name]
    if known.package and importlib.util.find_spec(known.package) is None:
        hint = f"pip install {known.package}, or with the workbench: {install_command('metrics')}"
        raise section.error("name", f"needs {known.package}, not installed here.", hint)
    options: dict[str, Any] = {}
    files = []
    for option, kind in known.options.items():
        if not section.has(option):
            continue
        if kind == "file":
            path = section.file_path(option)
            files.append(file_digest(path))
            options[option] = str(path)
        elif kind in ("integer", "number"):
            options[option] = section.integer(option) if kind == "integer" else section.number(option)
        else:
            options[option] = section.text(option, choices=kind if isinstance(kind, tuple) else None)
    return MetricUse(
        code=read_code(known.file, name, key="metric"),
        name=name,
        higher=((name, known.higher),),
        bounds=((name, known.bounds),),
        units=((name, known.unit),),
        options=canonical_json(options),
        files=tuple(files),
    )


def _each(
    section: Section, key: str, primary: str, kind: str = "", fits: Callable[[Any], bool] = lambda value: True
) -> tuple[tuple[str, Any], ...]:
    """(metric, value), sorted: one value is the primary metric's, a mapping has one for each metric."""
    value = section.raw(key, {})
    named = value if isinstance(value, dict) else {primary: value}
    for one in named.values():
        if not fits(one):
            raise section.error(key, f"expected {kind}, got {one!r}.")
    return tuple(sorted(named.items(), key=lambda item: item[0]))


def _bounds(section: Section, value: object) -> Bounds:
    ends = value if isinstance(value, list) else []
    fit = len(ends) == 2 and all(
        end is None or (isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end))
        for end in ends
    )
    if not fit or (None not in ends and ends[0] >= ends[1]):
        raise section.error(
            "bounds", f"expected two numbers, the smaller first, got {value!r}.", "null stands for no bound: [0, null]."
        )
    low, high = (None if end is None else float(end) for end in ends)
    return low, high
