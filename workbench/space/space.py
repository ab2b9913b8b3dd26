"""SearchSpace: what may vary, when it applies, what is forbidden; `reader` reads it from the user's YAML file.

A space is an ordered list of parameters with choices. A parameter applies only where its `when:` holds; what does
not apply is absent from the assignment, so that equal configurations become equal candidates. A space of several
targets has the target as its first parameter, which conditions may name like any other. A `forbid:` rule
names a combination the sampler must not propose. The first choice of each parameter is its default: a preset
states only what differs from it. Sequence bins may be words that only the dataset's lengths give numbers to:
`served_bins.with_lengths` does.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.space.dimensions import CFG, OFF, TARGET, dimension_of, dimensions_of, is_word, stand_in
from workbench.values.candidate import Candidate, Precision, Quantization, Serving
from workbench.values.dimension import FUSION_PREFIX, Dimension, Scalar
from workbench.values.documents.canonical import digest
from workbench.values.errors import ConfigError
from workbench.values.installed_targets import installed_target
from workbench.values.service import ServiceChoices

Assignment = Mapping[str, Scalar]
"""Dotted parameter name → chosen value; only parameters that apply."""

BINS = "serving.sequence_bins"
COUNT_LIMIT = 2000
"""Up to so many combinations candidates are built only to be counted, at about half a millisecond each."""
EXACT_LIMIT = 20_000
"""Up to so many raw combinations a space is walked one by one; of a larger one, as many are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One dimension of the search.

    Attributes:
        choices: the first is the default.
        when: every named (earlier) parameter must have one of the values for this one to apply.
    """

    name: str
    choices: tuple[Scalar, ...]
    when: Mapping[str, tuple[Scalar, ...]]
    about: str

    def applies(self, assignment: Assignment) -> bool:
        return all(name in assignment and assignment[name] in values for name, values in self.when.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbid:
    """A combination that must not be proposed, and why."""

    values: Mapping[str, tuple[Scalar, ...]]
    reason: str

    def matches(self, assignment: Assignment) -> bool:
        return all(name in assignment and assignment[name] in values for name, values in self.values.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A known-good configuration, evaluated before the sampler proposes anything."""

    name: str
    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBins:
    """Padded lengths that a service chooses, since nothing is compiled for them.

    Attributes:
        choices: text of the space file, such as '16 64' → lengths.
        when: as of the parameter that they were.
        forbid: rules that name them.
        otherwise: lengths of a candidate that may not choose: the dataset's own.
        file: the space as its file has it, with the parameter.
    """

    choices: Mapping[Scalar, tuple[int, ...]]
    when: Mapping[str, tuple[Scalar, ...]]
    forbid: tuple[Forbid, ...]
    otherwise: tuple[int, ...]
    file: SearchSpace

    def left(self, assignment: Assignment) -> tuple[tuple[int, ...], ...]:
        """What a service of this candidate may choose from; () where the rules leave nothing."""
        if not all(name in assignment and assignment[name] in values for name, values in self.when.items()):
            return (self.otherwise,)
        return tuple(
            bins
            for choice, bins in self.choices.items()
            if not any(rule.matches({**assignment, BINS: choice}) for rule in self.forbid)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """What a sweep may propose.

    Attributes:
        targets: the first is the baseline's.
        parameters: with several targets, the first is `TARGET`.
        configurations: choice of `CFG` → the text of that file.
        files: 'NAME CHOICE' of every other parameter whose choices are files → what the setting becomes.
        service: what may vary without a compile: the best of it is found for every candidate; None for no service.
        today_bins: what `service.today` says of them, as the file has it; None where it does not.
        served_bins: where bins are a choice of the service (`served_bins.to_service`), and none of the parameters.
    """

    path: Path
    targets: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    forbid: tuple[Forbid, ...]
    presets: tuple[Preset, ...]
    configurations: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    service: ServiceChoices | None = None
    today_bins: Scalar | None = None
    served_bins: ServedBins | None = None

    @property
    def digest(self) -> str:
        """64 hex digits over everything that changes which candidates exist (not over comments or presets)."""
        served = self.served_bins
        return digest(
            {
                **({} if served is None else {"served_bins": [served.when, [f.values for f in served.forbid]]}),
                "targets": self.targets,
                "configurations": self.configurations,
                **({"files": self.files} if self.files else {}),
                "parameters": [{"name": p.name, "choices": p.choices, "when": p.when} for p in self.parameters],
                "forbid": [f.values for f in self.forbid],
                "service": self.service,
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceSize:
    """How many distinct candidates and compiles a space holds; an upper bound when not `exact`."""

    candidates: int
    compiles: int
    exact: bool


class Forbidden(Exception):
    """An assignment that a rule, or a Candidate's own check, excludes. Not an error of the user's file."""


def suggest(space: SearchSpace, choose: Callable[[str, tuple[Scalar, ...]], Scalar]) -> dict[str, Scalar]:
    """Walk the parameters in order, asking `choose(name, choices)` for each one that applies."""
    assignment: dict[str, Scalar] = {}
    for parameter in space.parameters:
        if parameter.applies(assignment):
            assignment[parameter.name] = choose(parameter.name, parameter.choices)
    return assignment


def build(space: SearchSpace, assignment: Assignment) -> Candidate:
    """The candidate of an assignment.

    Raises:
        Forbidden: a `forbid:` rule or a rule of `Candidate` excludes it; the message is the reason.
        ValueError: a word such as 'optimal 4' was not given numbers before (`served_bins.with_lengths`).
    """
    for name, value in assignment.items():
        if is_word(value, dimension_of(name, space.targets)):
            raise ValueError(f"{name} {value!r} needs the lengths of a dataset")
    return build_unresolved(space, assignment)


def build_unresolved(space: SearchSpace, assignment: Assignment) -> Candidate:
    """As `build`, but a word for bins is as good as any other bins, to see which combinations are possible."""
    for rule in space.forbid:
        if rule.matches(assignment):
            raise Forbidden(rule.reason)
    if space.served_bins is not None and not space.served_bins.left(assignment):
        raise Forbidden("; ".join(dict.fromkeys(rule.reason for rule in space.served_bins.forbid)))
    target = str(assignment.get(TARGET, space.targets[0]))
    known = dimensions_of(target)
    parts: dict[str, dict[str, Any]] = {"precision": {}, "quantization": {}, "compile": {}, "serving": {}}
    switched: dict[str, list[str]] = {}
    for name, value in assignment.items():
        if name.startswith(FUSION_PREFIX):
            if value != known[name].values[0]:
                switched.setdefault("disabled_fusions" if value == OFF else "enabled_fusions", []).append(
                    name.removeprefix(FUSION_PREFIX)
                )
        elif name != TARGET:
            part, setting, held = _setting(space, known[name], name, value)
            parts[part] |= {} if held is None else {setting: held}
    for setting, names in switched.items():
        parts["compile"][setting] = tuple(sorted(names))
    served = space.service.max_batch_size if space.service is not None else ()
    called = tuple(sorted({int(parts["serving"].get("batch", 1)), *served}))
    try:
        return Candidate(
            target=target,
            precision=Precision(**parts["precision"]),
            quantization=Quantization(**parts["quantization"]),
            compile=installed_target(target).settings.of_space(parts["compile"], called),
            serving=Serving(**parts["serving"]),
        )
    except ConfigError as error:
        raise Forbidden(str(error)) from error


def assignment_of(space: SearchSpace, candidate: Candidate) -> dict[str, Scalar] | None:
    """An assignment that `build` makes the candidate of; None where the space has none."""

    def chosen(name: str, choices: tuple[Scalar, ...]) -> Scalar:
        # a setting that the candidate dropped, since it means nothing there, is any of its choices
        dropped = OFF if OFF in choices else choices[0]
        return next((choice for choice in choices if _says(space, candidate, name, choice)), dropped)

    assignment = suggest(space, chosen)
    try:
        return assignment if build(space, assignment).id == candidate.id else None
    except (Forbidden, ValueError):
        return None


def _says(space: SearchSpace, candidate: Candidate, name: str, choice: Scalar) -> bool:
    """Whether a candidate has what a choice of a parameter stands for."""
    if name == TARGET:
        return candidate.target == choice
    dimension = dimensions_of(candidate.target)[name]
    if name.startswith(FUSION_PREFIX):
        fusion, switched = name.removeprefix(FUSION_PREFIX), {False: "enabled_fusions", True: "disabled_fusions"}
        lists = {off: getattr(candidate.compile, setting, ()) for off, setting in switched.items()}
        if choice == dimension.values[0]:
            return not any(fusion in names for names in lists.values())
        return fusion in lists[choice == OFF]
    part, setting, held = _setting(space, dimension, name, choice)
    if part == "compile":
        return bool(candidate.compile.setting(setting) == held)
    return bool(getattr(getattr(candidate, part), setting, None) == held)


def _setting(space: SearchSpace, dimension: Dimension, name: str, choice: Scalar) -> tuple[str, str, Any]:
    """The part of a candidate, its field there, and what a choice makes of it; None where it is off.

    A target's own settings are all in `compile`, whatever they are called by (`CompileSettings.part`).
    """
    part, _, setting = name.partition(".")
    part = part if part in ("precision", "quantization", "serving") else "compile"
    if name == CFG:
        return part, setting, space.configurations[str(choice)]
    if dimension.may_be_off and choice == OFF:
        return part, setting, None
    if dimension.file:
        return part, setting, space.files[f"{name} {choice}"]
    if is_word(choice, dimension):
        return part, setting, stand_in(choice)
    if not dimension.listed:
        return part, setting, choice
    words = str(choice).split()
    return part, setting, tuple(map(int, words)) if dimension.listed == "numbers" else tuple(words)


def complete(space: SearchSpace, partial: Assignment) -> dict[str, Scalar]:
    """Fill a partial assignment with the defaults of the parameters that apply."""
    return suggest(space, lambda name, choices: partial.get(name, choices[0]))


def combinations(space: SearchSpace) -> Iterator[dict[str, Scalar]]:
    """Every assignment, forbidden ones included, in a fixed order."""

    def walk(index: int, assignment: dict[str, Scalar]) -> Iterator[dict[str, Scalar]]:
        if index == len(space.parameters):
            yield dict(assignment)
            return
        parameter = space.parameters[index]
        if not parameter.applies(assignment):
            yield from walk(index + 1, assignment)
            return
        for choice in parameter.choices:
            yield from walk(index + 1, {**assignment, parameter.name: choice})

    return walk(0, {})


def draw(space: SearchSpace, rng: random.Random) -> dict[str, Scalar]:
    """An assignment with every choice drawn uniformly; it may be forbidden."""
    return suggest(space, lambda name, choices: rng.choice(choices))


def raw_size(space: SearchSpace) -> int:
    """Number of assignments before any rule: `combinations` counted without walking them.

    Parameter by parameter, assignments are told apart by what conditions further on look at, and by nothing else.
    """
    counts: dict[tuple[tuple[str, Scalar], ...], int] = {(): 1}
    for index, parameter in enumerate(space.parameters):
        asked_later = {name for later in space.parameters[index + 1 :] for name in later.when}
        grown: dict[tuple[tuple[str, Scalar], ...], int] = {}
        for known, count in counts.items():
            assignment = dict(known)
            chosen = [{**assignment, parameter.name: choice} for choice in parameter.choices]
            for one in chosen if parameter.applies(assignment) else [assignment]:
                kept = tuple((name, value) for name, value in one.items() if name in asked_later)
                grown[kept] = grown.get(kept, 0) + count
        counts = grown
    return sum(counts.values())


def size(space: SearchSpace) -> SpaceSize:
    """Count distinct candidates and compiles: one by one up to `COUNT_LIMIT` combinations, else the combinations, of
    which no rule is subtracted then."""
    compiled = [p for p in space.parameters if not p.name.startswith("serving.")]
    if any(installed_target(target).settings.compiles_shapes for target in space.targets):
        compiled = list(space.parameters)  # each batch and length is a compile of its own
    most = raw_size(space)
    if most > COUNT_LIMIT:
        return SpaceSize(candidates=most, compiles=raw_size(replace(space, parameters=tuple(compiled))), exact=False)
    possible, compiles = set(), set()
    for assignment in combinations(space):
        with contextlib.suppress(Forbidden):
            candidate = build_unresolved(space, assignment)
            possible.add(candidate.id)
            compiles.add(compile_key(candidate))
    # words may turn out to be the same bins, once there is a dataset
    words = any(is_word(choice, dimension_of(p.name, space.targets)) for p in space.parameters for choice in p.choices)
    return SpaceSize(candidates=len(possible), compiles=len(compiles), exact=not words)


def compile_key(candidate: Candidate) -> str:
    """Equal for candidates that share one compiled artifact: everything but the serving part."""
    body = candidate.to_json()
    del body["serving"]
    return digest(body)


def explain(space: SearchSpace) -> list[tuple[str, str, str, str, str, str]]:
    """(name, choices, when, meaning, what excludes it, source) of every parameter, as texts for a table."""
    return [
        (
            p.name,
            ", ".join(choice_text(c) for c in p.choices),
            " and ".join(f"{n} is {' or '.join(map(choice_text, v))}" for n, v in p.when.items()) or "always",
            p.about,
            dimension.excludes if (dimension := dimension_of(p.name, space.targets)) is not None else "",
            dimension.source if dimension is not None else "",
        )
        for p in space.parameters
    ]


def choice_text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
