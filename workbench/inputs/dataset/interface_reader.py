"""A manifest's `inputs:`, `axes:`, `state:` and `outputs:` → Interface, without any data.

The model is prepared by what stands there, and only then are data read against the prepared model; so these keys can
be read alone.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import numpy as np

from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.interface import BATCH, AxisUse, InputUse, Interface, Meaning, OutputUse
from workbench.values.preprocess import Role

LARGEST_SIZE = 1 << 31
"""Of one axis: beyond, no runtime counts a tensor's bytes."""
MOST_CONSTANTS = 1 << 16
"""Numbers of one constant: more of them belong into the model's own file."""


def read_interface(path: Path) -> Interface:
    """What a manifest says of the model; its other keys are looked at when its data are read."""
    with read_yaml(path) as top:
        top.leave_the_rest()
        return interface_of(top)


def interface_of(top: Section) -> Interface:
    """The same from a manifest that is open already.

    Entries of `inputs:` that are a word are roles of texts' inputs and are left to the reader of texts.
    """
    axes = _axes(top)
    state = _state(top)
    inputs = _inputs(top, {name for _, name in state})
    return Interface(inputs=inputs, axes=axes, state=state, outputs=_outputs(top))


def check_kind(top: Section, *, texts: bool) -> None:
    """Raises ConfigError for a role among the inputs of data that are no texts, and for what means nothing of texts."""
    for key, hint in (("axes", "Write bins: [32, 64, 128]."), ("state", "Leave it out.")) if texts else ():
        if top.has(key):
            raise top.error(key, "means nothing for texts, which are padded to bins and run in one call.", hint)
    with top.section("inputs") as section:
        for name in section.names():
            if not texts and isinstance(role := section.raw(name, None), str):
                raise section.error(
                    name,
                    f"{role!r} is a role, which only inputs made from texts have.",
                    "Leave it out, or write a mapping: {axes: [batch, frames]} or {constant: 16000}.",
                )


def _inputs(top: Section, carried: set[str]) -> tuple[InputUse, ...]:
    section = top.section("inputs")
    found = []
    for name in section.names():
        written = section.raw(name, None)
        if isinstance(written, str):
            continue
        if not isinstance(written, dict) or not written:
            rule = f"expected a role ({', '.join(get_args(Role))}) or a mapping, got {written!r}."
            raise section.error(name, rule, "Write {constant: NUMBER} or {axes: [batch, NAME]}.")
        with section.section(name) as one:
            constant = _numbers(one, "constant") if one.has("constant") else None
            initial = _numbers(one, "initial") if one.has("initial") else None
            axes = _axis_names(one) if one.has("axes") else ()
            if constant is not None and (axes or name in carried):
                other = "axes" if axes else "state"
                raise one.error("constant", f"means nothing beside {other}.", "A constant is built in and never fed.")
            if initial is not None and name not in carried:
                raise one.error("initial", f"{name!r} is no state.", f"Write state: {{OUTPUT: {name}}} beside inputs.")
            found.append(InputUse(name=name, constant=constant, axes=axes, initial=initial))
    return tuple(found)


def _numbers(section: Section, key: str) -> Any:
    """A number, or lists of numbers nested like an array."""
    written = section.raw(key)
    flat: list[Any] = [written]
    while any(isinstance(item, list) for item in flat):
        flat = [inner for item in flat for inner in (item if isinstance(item, list) else [item])]
        if len(flat) > MOST_CONSTANTS:
            rule = f"more than {MOST_CONSTANTS} numbers."
            raise section.error(key, rule, "Give it as an array of the data, or as an initializer of the model.")
    if not flat or not all(isinstance(item, (int, float)) and math.isfinite(item) for item in flat):
        raise section.error(key, f"expected finite numbers, got {written!r}.", "Write 16000, or [0.667, 1.0, 0.8].")
    try:
        np.asarray(written)
    except ValueError as error:
        raise section.error(key, "its rows have different lengths.") from error
    return written


def _axis_names(section: Section) -> tuple[str | int, ...]:
    written = section.raw("axes")
    known = isinstance(written, list) and all(
        (isinstance(axis, str) and axis)
        or (isinstance(axis, int) and not isinstance(axis, bool) and 1 <= axis <= LARGEST_SIZE)
        for axis in written
    )
    if not known:
        raise section.error(
            "axes", f"expected a list of names and sizes, got {written!r}.", f"Write [2, {BATCH}, 128], for example."
        )
    if written.count(BATCH) > 1:
        raise section.error("axes", f"{BATCH!r} stands twice.", "One axis counts samples; give the other a name.")
    return tuple(written)


def _axes(top: Section) -> tuple[AxisUse, ...]:
    found = []
    parent = top.section("axes")
    for name in parent.names():
        if name == BATCH:
            raise parent.error(name, "has no bins: candidates choose how many samples run together.")
        with parent.section(name) as section:
            bins = section.integers("bins", (), minimum=1, maximum=LARGEST_SIZE)
            if list(bins) != sorted(set(bins)):
                raise section.error("bins", f"{list(bins)} are not ascending sizes.")
            found.append(AxisUse(name=name, bins=bins, pad=section.number("pad", 0.0)))
    return tuple(found)


def _state(top: Section) -> tuple[tuple[str, str], ...]:
    with top.section("state") as section:
        pairs = tuple((output, section.text(output)) for output in section.names())
    inputs = [name for _, name in pairs]
    for output, name in pairs:
        if inputs.count(name) > 1:
            raise section.error(output, f"{name!r} is fed by two outputs.", "Write state: {OUTPUT: INPUT}.")
    return pairs


def _outputs(top: Section) -> tuple[OutputUse, ...]:
    """In the order of the manifest: the first is the primary one.

    Which options and limits a meaning has, and whether the model has such outputs, is checked where they are judged.
    """
    found = []
    with top.section("outputs") as section:
        for name in section.names():
            if not isinstance(section.raw(name), dict):
                found.append(OutputUse(name=name, meaning=_meaning(section, name)))
                continue
            with section.section(name) as one:
                meaning = _meaning(one, "meaning")
                options = {key: one.raw(key) for key in one.names() if key not in ("meaning", "limits")}
                for key, value in options.items():
                    if not isinstance(value, str | int | float) or value != value:
                        raise one.error(key, f"expected a number or a word, got {value!r}.")
                with one.section("limits") as written:
                    limits = tuple(sorted((metric, written.number(metric)) for metric in written.names()))
            use = OutputUse(name=name, meaning=meaning, options=tuple(sorted(options.items())), limits=limits)
            found.append(use)
    return tuple(found)


def _meaning(section: Section, key: str) -> Meaning:
    found: Meaning = section.text(key, choices=get_args(Meaning))  # type: ignore[assignment]  # one of the choices
    return found
