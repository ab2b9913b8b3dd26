"""Writing a search space, and one with a further preset."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace

from workbench.space.dimensions import CFG, OFF, TARGET, dimension_of
from workbench.space.space import (
    Assignment,
    Forbidden,
    Parameter,
    Preset,
    SearchSpace,
    assignment_of,
    build,
    complete,
)
from workbench.values.candidate import Candidate
from workbench.values.dimension import Scalar
from workbench.values.service import ServiceChoices, ServiceSettings


def with_preset(
    space: SearchSpace, candidate: Candidate, name: str, *, based_on: Candidate, default: bool, configuration: str = ""
) -> SearchSpace | None:
    """The space that proposes a candidate too, first of all: the choices that it lacks, and a preset of this name.

    Args:
        based_on: a candidate that it was made of; what the two have in common is taken of the space.
        default: whether its choices become the defaults, and so it the baseline.
        configuration: how its file is called, where the candidate follows one; relative to the space's.

    Returns:
        None where no choice of the space can say what the candidate is.
    """
    now, before, scheme = candidate.switches(), based_on.switches(), "quantization.scheme"
    wanted = {n: v for n, v in now.items() if before.get(n) != v}
    wanted |= {n: OFF for n in before.keys() - now.keys() if n.startswith("compile.")}
    configurations = dict(space.configurations)
    if CFG in wanted and candidate.quantization.cfg is not None:
        wanted[CFG], configurations[configuration] = configuration, candidate.quantization.cfg
    chosen = {**(assignment_of(space, based_on) or {}), **wanted}

    def among(known: tuple[Scalar, ...], value: Scalar) -> tuple[Scalar, ...]:
        return tuple(dict.fromkeys((value, *known) if default else (*known, value)))

    parameters: list[Parameter] = []
    for one in space.parameters:
        if one.name in wanted:
            when = {n: tuple(dict.fromkeys((*v, chosen.get(n, v[0])))) for n, v in one.when.items()}
            one = replace(one, choices=among(one.choices, wanted.pop(one.name)), when=when)
        parameters.append(one)
    off: dict[str, Scalar] = {}
    for setting, value in wanted.items():
        dimension = dimension_of(setting, space.targets)
        if dimension is None:
            return None
        off[setting] = OFF if dimension.may_be_off else before.get(setting, value)
        when = {scheme: (chosen[scheme],)} if setting == CFG and scheme in chosen else {}
        choices = among((off[setting],), value)
        parameters.append(Parameter(name=setting, choices=choices, when=when, about=dimension.about))
    made = replace(space, parameters=tuple(parameters), configurations=configurations)
    if _possible(made, found := complete(made, chosen)) is None or build(made, found).id != candidate.id:
        return None
    others = [
        replace(preset, assignment=assignment)
        for preset in space.presets
        if (assignment := _possible(made, {**chosen, **preset.assignment}, {**off, **preset.assignment})) is not None
    ]
    return replace(made, presets=(Preset(name=name, assignment=found), *others))


def _possible(space: SearchSpace, *partial: Assignment) -> Assignment | None:
    """The first that a candidate can be built of, with defaults for what it does not say."""
    for assignment in (complete(space, one) for one in partial):
        with contextlib.suppress(Forbidden, ValueError):
            build(space, assignment)
            return assignment
    return None


def space_yaml(space: SearchSpace, *, about: Sequence[str] = ()) -> str:
    """The file of a space, which `read_space` reads."""
    lines = [*(f"# {line}".rstrip() for line in about), "version: 1"]
    lines += [f"target: {_listed(space.targets) if len(space.targets) > 1 else space.targets[0]}", "", "parameters:"]
    for parameter in space.parameters:
        if parameter.name != TARGET:
            lines += _parameter(space, parameter)
    if space.service is not None:
        lines += ["", "service:", *_service(space.service, space.today_bins)]
    if space.forbid:
        lines += ["", "forbid:"]
        for rule in space.forbid:
            heads = [f"{name}: {_listed(values)}" for name, values in rule.values.items()]
            lines += [f"  - reason: {_scalar(rule.reason)}", *(f"    {head}" for head in heads)]
    if space.presets:
        lines += ["", "presets:", *(f"  - {{{_preset(space, preset)}}}" for preset in space.presets)]
    return "\n".join(lines) + "\n"


def _parameter(space: SearchSpace, parameter: Parameter) -> list[str]:
    dimension = dimension_of(parameter.name, space.targets)
    lines = [f"  {parameter.name}:"]
    if dimension is None or parameter.about != dimension.about:
        lines.append(f"    about: {_scalar(parameter.about)}")
    if parameter.when:
        conditions = ", ".join(f"{name}: {_listed(values)}" for name, values in parameter.when.items())
        lines.append(f"    when: {{{conditions}}}")
    return [*lines, f"    choices: {_listed(parameter.choices)}"]


def _service(choices: ServiceChoices, todays_bins: Scalar | None) -> list[str]:
    lines = [
        f"  max_batch_size: {_listed(choices.max_batch_size)}",
        f"  batch_timeout_ms: {_listed(choices.batch_timeout_ms)}",
        f"  workers: {_listed(choices.workers)}",
    ]
    if choices.today is None:
        return lines
    bins = "" if todays_bins is None else f", sequence_bins: {_scalar(todays_bins)}"
    return [*lines, f"  today: {{{settings_yaml(choices.today)}{bins}}}"]


def settings_yaml(settings: ServiceSettings) -> str:
    """'max_batch_size: 16, batch_timeout_ms: 10, workers: 2', the inside of a mapping."""
    return (
        f"max_batch_size: {settings.max_batch_size}, batch_timeout_ms: {settings.batch_timeout_ms:g}, "
        f"workers: {settings.workers}"
    )


def _preset(space: SearchSpace, preset: Preset) -> str:
    """A preset says what differs from the defaults, and what applies only since something else was chosen."""
    named = {p.name for p in space.parameters}
    values = {name: value for name, value in preset.assignment.items() if name in named}
    return ", ".join([f"name: {_scalar(preset.name)}", *(f"{n}: {_scalar(v)}" for n, v in values.items())])


def _listed(values: Sequence[Scalar]) -> str:
    return f"[{', '.join(map(_scalar, values))}]"


def _scalar(value: Scalar) -> str:
    """As YAML reads it back: texts in quotes, since a bare off is false to some readers."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    bare = value.replace("_", "").replace("-", "")
    return value if bare.isalpha() and value.lower() not in _READ_OTHERWISE else json.dumps(value, ensure_ascii=False)


_READ_OTHERWISE = ("on", OFF, "yes", "no", "true", "false", "null", "none", "y", "n", "inf", "nan", "-inf")
