"""A manifest's `outputs:` → what each of the model's outputs means.

outputs:
  logits: logits                                                  # a word
  boxes: {meaning: boxes, scores: scores, score: 0.7, iou: 0.5, limits: {recall: 0.98}}
"""

from __future__ import annotations

import math
from typing import get_args

from workbench.values.documents.yaml_reader import Section
from workbench.values.interface import Meaning, OutputUse

_KEYS = ("meaning", "limits")


def read_outputs(top: Section) -> tuple[OutputUse, ...]:
    """In the order of the manifest: the first is the primary one.

    Which options and limits a meaning has, and whether the model has such outputs, is checked where they are judged.

    Raises:
        ConfigError: a meaning is none, or an option or limit is no plain value.
    """
    found = []
    with top.section("outputs") as section:
        for name in section.names():
            if isinstance(section.raw(name), dict):
                found.append(_mapping(section.section(name), name))
            else:
                found.append(OutputUse(name=name, meaning=_meaning(section, name)))
    return tuple(found)


def _mapping(section: Section, name: str) -> OutputUse:
    with section:
        meaning = _meaning(section, "meaning")
        options = {}
        for key in section.names():
            if key in _KEYS:
                continue
            value = section.raw(key)
            if not isinstance(value, str | int | float | bool) or (isinstance(value, float) and math.isnan(value)):
                raise section.error(key, f"expected a number or a word, got {value!r}.")
            options[key] = value
        with section.section("limits") as written:
            limits = {metric: written.number(metric) for metric in written.names()}
    return OutputUse(
        name=name, meaning=meaning, options=tuple(sorted(options.items())), limits=tuple(sorted(limits.items()))
    )


def _meaning(section: Section, key: str) -> Meaning:
    found: Meaning = section.text(key, choices=get_args(Meaning))  # type: ignore[assignment]  # one of the choices
    return found
