"""SearchSpace: what may vary, when it applies, what is forbidden; read from a YAML file the user writes and reviews.

A space is an ordered list of parameters with choices. A parameter applies only where its `when:` holds; what does
not apply is absent from the assignment, so that equal configurations become equal candidates. A space of several
targets has the target as its first parameter, which conditions may name like any other. A `forbid:` rule
names a combination the sampler must not propose. The first choice of each parameter is its default: a preset
states only what differs from it. Sequence bins may be words that only the dataset's lengths give numbers to:
`with_lengths` does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from workbench.ascend_settings import ASCEND
from workbench.candidate import (
    COMPILE_OF,
    Candidate,
    OnnxRuntimeCompile,
    Precision,
    Quantization,
    Scalar,
    Serving,
)
from workbench.canonical import digest
from workbench.dataset.batch import IntArray
from workbench.dataset.bins import optimal_bins, quantile_bins
from workbench.dimensions import CFG, DIMENSIONS, FUSION_PREFIX, OFF, TARGET, Dimension
from workbench.errors import ConfigError, nearest
from workbench.quantization.amct_config import parse_config
from workbench.service import ServiceChoices
from workbench.service_reader import read_choices
from workbench.yaml_reader import Section, read_yaml

Assignment = Mapping[str, Scalar]
"""Dotted parameter name → chosen value; only parameters that apply."""

COUNT_LIMIT = 20_000
"""Up to so many combinations candidates are built only to be counted, at about half a millisecond each."""
MOST_BINS = 16
"""What a word may ask for: each is a queue of its own, and on targets with fixed shapes a file for each batch."""
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
class SearchSpace:
    """What a sweep may propose.

    Attributes:
        targets: the first is the baseline's.
        parameters: with several targets, the first is `TARGET`.
        configurations: choice of `CFG` → the text of that file.
        service: what may vary without a compile: the best of it is found for every candidate; None for no service.
    """

    path: Path
    targets: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    forbid: tuple[Forbid, ...]
    presets: tuple[Preset, ...]
    configurations: Mapping[str, str] = field(default_factory=dict)
    service: ServiceChoices | None = None

    @property
    def digest(self) -> str:
        """64 hex digits over everything that changes which candidates exist (not over comments or presets)."""
        return digest(
            {
                "targets": self.targets,
                "configurations": self.configurations,
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
        ValueError: a word such as 'optimal 4' was not given numbers before (`with_lengths`).
    """
    for name, value in assignment.items():
        if _is_word(DIMENSIONS.get(name), value):
            raise ValueError(f"{name} {value!r} needs the lengths of a dataset")
    return _build(space, assignment)


def _build(space: SearchSpace, assignment: Assignment) -> Candidate:
    """As `build`, but a word for bins is as good as any other bins, to see which combinations are possible."""
    for rule in space.forbid:
        if rule.matches(assignment):
            raise Forbidden(rule.reason)
    target = str(assignment.get(TARGET, space.targets[0]))
    parts: dict[str, dict[str, Any]] = {"precision": {}, "quantization": {}, "compile": {}, "serving": {}}
    switched: dict[str, list[str]] = {}
    for name, value in assignment.items():
        if name.startswith(FUSION_PREFIX):
            if value != DIMENSIONS[name].values[0]:
                switched.setdefault("disabled_fusions" if value == OFF else "enabled_fusions", []).append(
                    name.removeprefix(FUSION_PREFIX)
                )
        elif name == CFG:
            parts["quantization"]["cfg"] = space.configurations[str(value)]
        elif name != TARGET and not (DIMENSIONS[name].may_be_off and value == OFF):
            part, _, setting = name.partition(".")
            parts[part][setting] = _members(DIMENSIONS[name], value)
    for setting, names in switched.items():
        parts["compile"][setting] = tuple(sorted(names))
    if target == ASCEND and "batches" not in parts["compile"]:
        served = space.service.max_batch_size if space.service is not None else ()
        parts["compile"]["batches"] = tuple(sorted({int(parts["serving"].get("batch", 1)), *served}))
    try:
        return Candidate(
            target=target,
            precision=Precision(**parts["precision"]),
            quantization=Quantization(**parts["quantization"]),
            compile=COMPILE_OF.get(target, OnnxRuntimeCompile)(**parts["compile"]),
            serving=Serving(**parts["serving"]),
        )
    except ConfigError as error:
        raise Forbidden(str(error)) from error


def _members(dimension: Dimension, value: Scalar) -> Any:
    """The tuple that a listed choice stands for; any other value as it is."""
    if not dimension.listed:
        return value
    words = str(value).split()
    if _is_word(dimension, value):
        return tuple(_STAND_INS[words[0]] * number for number in range(1, int(words[1]) + 1))
    return tuple(int(word) for word in words) if dimension.listed == "numbers" else tuple(words)


_CHOOSERS = {"optimal": optimal_bins, "quantiles": quantile_bins}
_STAND_INS = {"optimal": 100_003, "quantiles": 100_019}
"""Lengths that nobody writes down, so that candidates of different words and lists are told apart."""


def _is_word(dimension: Dimension | None, value: Scalar) -> bool:
    """Whether a choice stands for bins that a dataset's lengths decide: 'optimal 4'."""
    if dimension is None or not dimension.lengths_in or not isinstance(value, str):
        return False
    kind, _, count = value.partition(" ")
    return kind in _CHOOSERS and count.isascii() and count.isdecimal() and 1 <= int(count) <= MOST_BINS


def with_lengths(space: SearchSpace, lengths: Callable[[], IntArray | None], max_length: int | None) -> SearchSpace:
    """The space with numbers for every word: 'optimal 4' becomes '16 40 96 256'. Choices that become equal are one.

    Args:
        lengths: called where a word needs it: tokens of the dataset's texts; None when the data are not text.
        max_length: of the dataset; None when the data are not text.

    Raises:
        ConfigError: the data are not text, or a list of bins is too short for the dataset's texts.
    """
    numbers: dict[str, dict[Scalar, Scalar]] = {}
    for parameter in space.parameters:
        dimension = DIMENSIONS.get(parameter.name)
        if dimension is not None and dimension.lengths_in:
            words = [choice for choice in parameter.choices if _is_word(dimension, choice)]
            if max_length is None:
                if words or parameter.name.startswith("serving."):
                    raise _unfit(
                        space, parameter, "the dataset's samples are not texts, which have lengths", "Leave it out."
                    )
                continue
            numbers[parameter.name] = {word: _numbers(str(word), dimension, lengths(), max_length) for word in words}
            for choice in parameter.choices:
                if choice not in words and int(str(choice).split()[-1]) < max_length:
                    raise _unfit(
                        space,
                        parameter,
                        f"no bin of {str(choice)!r} holds a text of the dataset's max_length {max_length}",
                        f"Add {max_length}, lower max_length in the manifest, or write 'optimal 4'.",
                    )
    return replace(
        space,
        parameters=tuple(
            replace(p, choices=_renamed(numbers, p.name, p.choices), when=_all_renamed(numbers, p.when))
            for p in space.parameters
        ),
        forbid=tuple(replace(f, values=_all_renamed(numbers, f.values)) for f in space.forbid),
        presets=tuple(
            replace(p, assignment={n: _renamed(numbers, n, (value,))[0] for n, value in p.assignment.items()})
            for p in space.presets
        ),
    )


def _numbers(word: str, dimension: Dimension, lengths: IntArray | None, max_length: int) -> str:
    assert lengths is not None  # texts have lengths
    kind, _, count = word.partition(" ")
    bins = _CHOOSERS[kind](lengths, int(count), max_length, multiple=dimension.lengths_in)
    return " ".join(map(str, bins))


def _renamed(
    numbers: Mapping[str, Mapping[Scalar, Scalar]], name: str, choices: tuple[Scalar, ...]
) -> tuple[Scalar, ...]:
    return tuple(dict.fromkeys(numbers.get(name, {}).get(choice, choice) for choice in choices))


def _all_renamed(
    numbers: Mapping[str, Mapping[Scalar, Scalar]], values: Mapping[str, tuple[Scalar, ...]]
) -> dict[str, tuple[Scalar, ...]]:
    return {name: _renamed(numbers, name, choices) for name, choices in values.items()}


def _unfit(space: SearchSpace, parameter: Parameter, problem: str, hint: str) -> ConfigError:
    return ConfigError(f"{problem}.", file=space.path, key=f"parameters.{parameter.name}", hint=hint)


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
    """Count distinct candidates and compiles: parameters that no condition or rule mentions are multiplied, the
    others enumerated. Exact, but for a space that switches single fusions and offers a level that fuses nothing, and
    for one with more than `COUNT_LIMIT` combinations to enumerate, of which no rule is subtracted then."""
    core, free = _split(space)
    combined = raw_size(core)
    if combined > COUNT_LIMIT:
        return SpaceSize(candidates=combined * _product(free), compiles=_compiles_at_most(core, free), exact=False)
    defaults = {p.name: p.choices[0] for p in free}
    possible, compiles = set(), set()
    for assignment in combinations(core):
        candidate = _build_or_none(core, {**assignment, **defaults})
        if candidate is not None:
            possible.add(candidate.id)
            compiles.add(compile_key(candidate))
    fuses = any(p.name.startswith(FUSION_PREFIX) for p in free)
    return SpaceSize(
        candidates=len(possible) * _product(free),
        compiles=len(compiles) * _product([p for p in free if not p.name.startswith("serving.")]),
        exact=not _has_words(space)
        and not (fuses and any({"disabled", "O1"} & set(p.choices) for p in core.parameters)),
    )


def _has_words(space: SearchSpace) -> bool:
    """Whether some choices may turn out to be the same, once there is a dataset."""
    return any(_is_word(DIMENSIONS.get(p.name), choice) for p in space.parameters for choice in p.choices)


def _compiles_at_most(core: SearchSpace, free: Sequence[Parameter]) -> int:
    """Combinations of what is compiled. A target that compiles fixed shapes compiles each batch of its own."""
    compiled = [p for p in free if not p.name.startswith("serving.")]
    if ASCEND not in core.targets:
        core = replace(core, parameters=tuple(p for p in core.parameters if not p.name.startswith("serving.")))
    return _product(compiled) * raw_size(core)


def _split(space: SearchSpace) -> tuple[SearchSpace, list[Parameter]]:
    """The part of a space whose parameters depend on each other, and the parameters that depend on nothing."""
    tied = {name for p in space.parameters for name in (*p.when, *((p.name,) if p.when else ()))}
    tied.update(name for rule in space.forbid for name in rule.values)
    tied.update(p.name for p in space.parameters if p.name.startswith("quantization."))
    tied.update((TARGET, "compile.graph_optimization"))  # Candidate ties them to the scheme
    if ASCEND in space.targets:  # and these to the scheme, to the precision mode or to each other
        tied.update(name for name in (p.name for p in space.parameters) if _tied_on_ascend(name))
    core = replace(space, parameters=tuple(p for p in space.parameters if p.name in tied), presets=())
    return core, [p for p in space.parameters if p.name not in tied]


def _tied_on_ascend(name: str) -> bool:
    """Every setting that `Candidate` checks together with another; fusion groups only where O1 is offered."""
    return not name.startswith(FUSION_PREFIX) and name.partition(".")[0] in ("precision", "compile", "serving")


def _product(parameters: Sequence[Parameter]) -> int:
    return math.prod(len(p.choices) for p in parameters)


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
            ", ".join(_text(c) for c in p.choices),
            " and ".join(f"{n} is {' or '.join(map(_text, v))}" for n, v in p.when.items()) or "always",
            p.about,
            DIMENSIONS[p.name].excludes if p.name in DIMENSIONS else "",
            DIMENSIONS[p.name].source if p.name in DIMENSIONS else "",
        )
        for p in space.parameters
    ]


def read_space(path: Path) -> SearchSpace:
    """Read and check a space file.

    Raises:
        ConfigError: with file, line and key: an unknown parameter or value, a `when:` that refers to something
            not defined above it, a preset outside the space, or a choice no candidate can ever have.
    """
    configurations: dict[str, str] = {}
    with read_yaml(path) as top:
        targets = read_targets(top)
        parameters: list[Parameter] = []
        if len(targets) > 1:
            parameters.append(Parameter(name=TARGET, choices=targets, when={}, about="what executes the model"))
        for name, section in top.sections("parameters"):
            parameter = _read_parameter(name, section, parameters)
            _refuse_foreign(parameter, targets, section)
            if name == CFG:
                configurations = {str(choice): _configuration(section, str(choice)) for choice in parameter.choices}
            parameters.append(parameter)
        if not parameters:
            raise top.error("parameters", "no parameter.", "Name at least one, such as quantization.scheme.")
        known = {p.name: p for p in parameters}
        forbid = tuple(_read_forbid(section, known) for section in top.items("forbid"))
        service = read_choices(top)
        rough = SearchSpace(
            path=top.file,
            targets=targets,
            parameters=tuple(parameters),
            forbid=forbid,
            presets=(),
            configurations=configurations,
            service=service,
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
        if name not in COMPILE_OF:
            raise section.error(TARGET, f"{name!r} is not a target that can be swept.", nearest(name, COMPILE_OF))
    return names


def _refuse_foreign(parameter: Parameter, targets: Sequence[str], section: Section) -> None:
    """A setting of one target must not be offered to another."""
    known_by = DIMENSIONS[parameter.name].targets
    reached = parameter.when.get(TARGET, targets)
    if known_by and (others := [target for target in reached if target not in known_by]):
        raise section.error(
            None,
            f"target {others[0]!r} has no such setting; it belongs to {', '.join(known_by)}.",
            f"Write `when: {{target: [{', '.join(known_by)}]}}`." if len(targets) > 1 else "Leave it out.",
        )


def _configuration(section: Section, choice: str) -> str:
    path = (section.file.parent / choice).resolve()
    if not path.is_file():
        raise section.error("choices", f"{path} does not exist.", "Paths are relative to this file.")
    text = path.read_text(encoding="utf-8")
    parse_config(text, file=str(path))
    return text


def _read_parameter(name: str, section: Section, earlier: Sequence[Parameter]) -> Parameter:
    if name not in DIMENSIONS:
        raise section.error(None, "not a parameter.", nearest(name, DIMENSIONS))
    dimension = DIMENSIONS[name]
    values = section.raw("choices")
    if not isinstance(values, list) or not values:
        raise section.error("choices", f"expected a non-empty list, got {values!r}.")
    choices = tuple(_checked(dimension, value, section) for value in values)
    if len(set(choices)) != len(choices):
        raise section.error("choices", "a choice is listed twice.")
    known = {p.name: p for p in earlier}
    when = section.section("when")
    conditions = {other: _condition(when, other, known) for other in when.names()}
    return Parameter(name=name, choices=choices, when=conditions, about=section.text("about", dimension.about))


def _checked(dimension: Dimension, value: Any, section: Section) -> Scalar:
    if dimension.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if value in dimension.words or (dimension.may_be_off and value == OFF):
        return cast(Scalar, value)
    if dimension.listed == "numbers" and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if _is_word(dimension, value):
        return cast(Scalar, value)
    if dimension.listed == "numbers" and not (isinstance(value, str) and _ascending(value)):
        words = f" or 'optimal 4' (up to {MOST_BINS})" if dimension.lengths_in else ""
        raise section.error("choices", f"{value!r} are not ascending whole numbers.", f'Write "32 64 128"{words}.')
    if not isinstance(value, dimension.kind) or (isinstance(value, bool) and dimension.kind is not bool):
        raise section.error("choices", f"{value!r} is not of kind {dimension.kind.__name__}.")
    if dimension.values and value not in dimension.values:
        raise section.error(
            "choices",
            f"{value!r} is not a value of this parameter.",
            f"Values: {', '.join(map(_text, dimension.values))}.",
        )
    return cast(Scalar, value)


def _ascending(text: str) -> bool:
    words = text.split()
    numbers = [int(word) for word in words if word.isdecimal()]
    return bool(words) and len(numbers) == len(words) and numbers == sorted(set(numbers)) and numbers[0] > 0


def _condition(section: Section, name: str, known: Mapping[str, Parameter]) -> tuple[Scalar, ...]:
    values = section.raw(name)
    if name not in known:
        raise section.error(name, "not a parameter defined above.", nearest(name, known))
    values = values if isinstance(values, list) else [values]
    for value in values:
        if value not in known[name].choices:
            raise section.error(
                name, f"{value!r} is not among its choices.", f"Choices: {', '.join(map(_text, known[name].choices))}."
            )
    return tuple(values)


def _read_forbid(section: Section, known: Mapping[str, Parameter]) -> Forbid:
    reason = section.text("reason")
    values = {name: _condition(section, name, known) for name in section.names() if name != "reason"}
    if not values:
        raise section.error(None, "forbids nothing.", "Name at least one parameter.")
    return Forbid(values=values, reason=reason)


def _read_preset(section: Section, space: SearchSpace, taken: set[str]) -> Preset:
    name = section.text("name")
    if name in taken:
        raise section.error("name", f"{name!r} is used twice.")
    known = {p.name: p for p in space.parameters}
    partial = {key: _condition(section, key, known)[0] for key in section.names() if key != "name"}
    assignment = complete(space, partial)
    for key in partial:
        if key not in assignment:
            raise section.error(key, "does not apply here: its `when:` does not hold.")
    try:
        _build(space, assignment)
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
            _build(space, assignment)
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


def _build_or_none(space: SearchSpace, assignment: Assignment) -> Candidate | None:
    try:
        return _build(space, assignment)
    except Forbidden:
        return None


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
