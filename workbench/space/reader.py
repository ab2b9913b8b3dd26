"""Reading a space file and checking all that the file alone can tell."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from workbench.quantization.amct.config import parse_config
from workbench.quantization.amct.protobuf_text import MOST_BYTES
from workbench.space.dimensions import CFG, MOST_BINS, OFF, TARGET, dimension_of, dimensions_of, is_word, targets_with
from workbench.space.service_reader import read_choices
from workbench.space.space import (
    BINS,
    EXACT_LIMIT,
    Forbid,
    Forbidden,
    Parameter,
    Preset,
    SearchSpace,
    build_unresolved,
    choice_text,
    combinations,
    complete,
    draw,
    raw_size,
)
from workbench.values.dimension import Dimension, Scalar
from workbench.values.documents.input_files import folder_digest, read_text
from workbench.values.documents.yaml_reader import Section, read_yaml
from workbench.values.errors import ConfigError, nearest
from workbench.values.installed_targets import target_names

MOST_FILE_BYTES = 1 << 20
"""Of a file that a choice names: its text is part of the candidate."""


def read_space(path: Path) -> SearchSpace:
    """Read and check a space file.

    Raises:
        ConfigError: with file, line and key: an unknown parameter or value, a `when:` that refers to something
            not defined above it, a preset outside the space, or a choice no candidate can ever have.
    """
    configurations: dict[str, str] = {}
    files: dict[str, str] = {}
    with read_yaml(path) as top:
        if not top.section("parameters").names():
            top.refuse("parameters", "no parameter.", "Name at least one, such as quantization.scheme.")
        targets = read_targets(top)
        parameters: list[Parameter] = []
        refused: set[str] = set()
        if len(targets) > 1:
            parameters.append(Parameter(name=TARGET, choices=targets, when={}, about="what executes the model"))
        for name, section in top.sections("parameters"):
            if refused.intersection(section.section("when").names()):
                continue  # what depends on a refused one cannot be judged
            refused.add(name)
            with top.attempt():
                parameter = _read_parameter(name, section, parameters, targets)
                parameters.append(parameter)
                if name == CFG:
                    configurations = {str(choice): _configuration(section, str(choice)) for choice in parameter.choices}
                files |= _files(section, parameter, targets)
                refused.discard(name)
        service, todays_bins = None, None
        with top.attempt():
            service, todays_bins = read_choices(top, next((p.choices for p in parameters if p.name == BINS), ()))
        top.settle()
        known = {p.name: p for p in parameters}
        forbid: list[Forbid] = []
        for section in top.items("forbid"):
            reason = section.text("reason")
            values = {name: _condition(section, name, known) for name in section.names() if name != "reason"}
            if not values:
                raise section.error(None, "forbids nothing.", "Name at least one parameter.")
            forbid.append(Forbid(values=values, reason=reason))
        rough = SearchSpace(
            path=top.file,
            targets=targets,
            parameters=tuple(parameters),
            forbid=tuple(forbid),
            presets=(),
            configurations=configurations,
            files=files,
            service=service,
            today_bins=todays_bins,
        )
        _refuse_impossible_choices(rough, top)
        presets: list[Preset] = []
        for section in top.items("presets"):
            presets.append(_read_preset(section, rough, {p.name for p in presets}))
    return replace(rough, presets=tuple(presets))


def read_targets(section: Section) -> tuple[str, ...]:
    """The key `target` of a space or experiment file: one name, or a list of different ones."""
    value = section.raw(TARGET)
    names = tuple(value) if isinstance(value, list) else (value,)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise section.error(TARGET, f"expected a target or a list of different ones, got {value!r}.")
    for name in names:
        if name not in target_names():
            raise section.error(TARGET, f"{name!r} is not a target that can be swept.", nearest(name, target_names()))
    return names


@contextlib.contextmanager
def _path_of(section: Section, choice: str) -> Iterator[Path]:
    try:
        yield Path(os.path.normpath(section.file.parent / choice))
    except ConfigError as error:
        raise section.error("choices", str(error), "Paths are relative to this file.") from error
    except (OSError, RuntimeError) as error:  # too long, or links that lead back to themselves
        raise section.error("choices", f"{choice!r} is no path: {error}.") from error


def _configuration(section: Section, choice: str) -> str:
    with _path_of(section, choice) as path:
        text = read_text(path.resolve(), limit_bytes=MOST_BYTES)
    parse_config(text, file=str(section.file.parent / choice))
    return text


def _files(section: Section, parameter: Parameter, targets: Sequence[str]) -> dict[str, str]:
    """What the choices of a parameter become that are folders; nothing of any other."""
    dimension = dimension_of(parameter.name, targets)
    if dimension is None or not dimension.file:
        return {}
    found = {}
    for choice in (str(choice) for choice in parameter.choices if choice != OFF):
        with _path_of(section, choice) as path:
            found[f"{parameter.name} {choice}"] = f"{path.resolve()}@{folder_digest(path)}"
    return found


def _read_parameter(name: str, section: Section, earlier: Sequence[Parameter], targets: Sequence[str]) -> Parameter:
    if not targets_with(name):
        raise section.error(None, "not a parameter.", nearest(name, {n for t in targets for n in dimensions_of(t)}))
    known = {p.name: p for p in earlier}
    when = section.section("when")
    conditions = {other: _condition(when, other, known) for other in when.names()}
    reached = [str(target) for target in conditions.get(TARGET, targets)]
    if others := [target for target in reached if name not in dimensions_of(target)]:
        known_by = [target for target in targets if name in dimensions_of(target)]
        raise section.error(
            None,
            f"target {others[0]!r} has no such setting; it belongs to {', '.join(targets_with(name))}.",
            f"Write `when: {{target: [{', '.join(known_by)}]}}`." if known_by else "Leave it out.",
        )
    dimension = dimensions_of(reached[0])[name]
    values = section.raw("choices")
    if not isinstance(values, list) or not values:
        raise section.error("choices", f"expected a non-empty list, got {values!r}.")
    choices = tuple(_checked([dimensions_of(target)[name] for target in reached], value, section) for value in values)
    if len(set(choices)) != len(choices):
        raise section.error("choices", "a choice is listed twice.")
    return Parameter(name=name, choices=choices, when=conditions, about=section.text("about", dimension.about))


def _checked(dimensions: Sequence[Dimension], value: Any, section: Section) -> Scalar:
    """A choice that one of the targets a parameter is for has; which of them, `Candidate` says of each combination."""
    dimension, *others = dimensions
    for other in others:
        with contextlib.suppress(ConfigError):
            return _checked([other], value, section)
    if dimension.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if value in dimension.words or (dimension.may_be_off and value == OFF):
        return cast(Scalar, value)
    if dimension.kind is str and isinstance(value, int) and dimension.values and not dimension.listed:
        value = str(value).lower()  # a flag's own 0 and 1, true and false, without quotes
    if dimension.listed == "numbers" and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if is_word(value, dimension):
        return cast(Scalar, value)
    numbers = [int(w) for w in str(value).split() if w.isdecimal() and len(w) <= 9] if isinstance(value, str) else []
    ascending = numbers and numbers == sorted(set(numbers)) and numbers[0] > 0 and len(numbers) == len(value.split())
    if dimension.listed == "numbers" and not ascending:
        words = f" or 'optimal 4' (up to {MOST_BINS})" if dimension.lengths_in else ""
        raise section.error("choices", f"{value!r} are not ascending whole numbers.", f'Write "32 64 128"{words}.')
    if not isinstance(value, dimension.kind) or (isinstance(value, bool) and dimension.kind is not bool):
        raise section.error("choices", f"{value!r} is not of kind {dimension.kind.__name__}.")
    if dimension.values and value not in dimension.values:
        raise section.error(
            "choices",
            f"{value!r} is not a value of this parameter.",
            f"Values: {', '.join(map(choice_text, dimension.values))}.",
        )
    return cast(Scalar, value)


def _condition(section: Section, name: str, known: Mapping[str, Parameter]) -> tuple[Scalar, ...]:
    values = section.raw(name)
    if name not in known:
        raise section.error(name, "not a parameter defined above.", nearest(name, known))
    values = values if isinstance(values, list) else [values]
    for value in values:
        if value not in known[name].choices:
            choices = ", ".join(map(choice_text, known[name].choices))
            raise section.error(name, f"{value!r} is not among its choices.", f"Choices: {choices}.")
    return tuple(values)


def _read_preset(section: Section, space: SearchSpace, taken: set[str]) -> Preset:
    name = section.name("name")
    if name in taken:
        raise section.error("name", f"{name!r} is used twice.")
    known = {p.name: p for p in space.parameters}
    partial = {key: _condition(section, key, known)[0] for key in section.names() if key != "name"}
    assignment = complete(space, partial)
    for key in partial:
        if key not in assignment:
            raise section.error(key, "does not apply here: its `when:` does not hold.")
    try:
        build_unresolved(space, assignment)
    except Forbidden as error:
        raise section.error("name", f"preset {name!r} is impossible: {error}") from error
    return Preset(name=name, assignment=assignment)


def _refuse_impossible_choices(space: SearchSpace, top: Section) -> None:
    """Every choice must appear in at least one candidate; a silent dead choice would be a typo nobody sees."""
    possible: set[tuple[str, Scalar]] = set()
    reasons: dict[tuple[str, Scalar], str] = {}
    if raw_size(space) <= EXACT_LIMIT:
        source: Iterator[dict[str, Scalar]] = combinations(space)
    else:
        rng = random.Random(0)
        source = (draw(space, rng) for _ in range(4000))
    wanted = {(p.name, c) for p in space.parameters for c in p.choices}
    for assignment in source:
        pairs = assignment.items()
        try:
            build_unresolved(space, assignment)
        except Forbidden as error:
            ruled_out = any(rule.matches(assignment) for rule in space.forbid)
            for pair in pairs:  # what Candidate says explains a dead choice better than the user's own rule
                reasons[pair] = reasons.get(pair, str(error)) if ruled_out else str(error)
        else:
            possible.update(pairs)
            if wanted <= possible:
                return
    for name, choice in sorted(wanted - possible, key=str):
        if (name, choice) in reasons:
            raise (
                top.section("parameters")
                .section(name)
                .error("choices", f"{choice!r} never leads to a possible candidate: {reasons[name, choice]}")
            )
