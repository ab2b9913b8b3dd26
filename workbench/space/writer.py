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
    """The file of a space, which `read_space` reads: a line for each parameter, rule and preset."""

    def written(value: object) -> str:  # JSON is YAML, and in its quotes an off is a text to every reader
        return json.dumps(value, ensure_ascii=False)

    targets = space.targets if len(space.targets) > 1 else space.targets[0]
    lines = [*(f"# {line}".rstrip() for line in about), "version: 1", f"target: {written(targets)}", "", "parameters:"]
    for parameter in space.parameters:
        if parameter.name != TARGET:
            dimension = dimension_of(parameter.name, space.targets)
            told = {} if dimension is not None and parameter.about == dimension.about else {"about": parameter.about}
            when = {"when": parameter.when} if parameter.when else {}
            lines.append(f"  {parameter.name}: {written({**told, **when, 'choices': parameter.choices})}")
    if (service := space.service) is not None:
        keys = ("max_batch_size", "batch_timeout_ms", "workers")
        offered: dict[str, object] = {key: getattr(service, key) for key in keys}
        if service.today is not None:
            bins = {} if space.today_bins is None else {"sequence_bins": space.today_bins}
            offered["today"] = {key: getattr(service.today, key) for key in keys} | bins
        lines += ["", f"service: {written(offered)}"]
    if space.forbid:
        rules = [{"reason": rule.reason, **rule.values} for rule in space.forbid]
        lines += ["", "forbid:", *(f"  - {written(rule)}" for rule in rules)]
    if space.presets:
        # what differs from the defaults, and what applies only since something else was chosen
        named = {p.name for p in space.parameters}
        lines += ["", "presets:"]
        for preset in space.presets:
            said = {name: value for name, value in preset.assignment.items() if name in named}
            lines.append(f"  - {written({'name': preset.name, **said})}")
    return "\n".join(lines) + "\n"
