"""How the model's inputs are fed: by the data, by constants, or by a state that is carried from step to step; and which
axis of each counts samples, as the shape of one sample in the data tells."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from workbench.commands.console import ask
from workbench.graph.intake.fold import numbers_of
from workbench.graph.intake.ports import is_batch_name
from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import BATCH, InputUse, Interface
from workbench.values.model import Model, Sizes, TensorSpec, axes_text

_MARKS = frozenset(
    ["out", "output", "in", "input", "next", "new", "prev", "previous", "init", "initial", "past", "present", "cur"]
)
_MOST_FILLED = 4096
"""Numbers that are written out for an input that a single one fills."""
_STEP = re.compile(r"(?<=[a-z])(?:n|N|_n|'|0|1|_0|_1|_t)$")


def declare(
    source: Model,
    given: Mapping[str, tuple[int, ...]] | None,
    constants: Mapping[str, str],
    *,
    fixed_from: int | None = None,
) -> tuple[Interface, dict[str, str]]:
    """Constants as the user gave them, a state for inputs that an output of their shape is named after, and the axis
    that counts samples where it is not the first; and 'inputs.NAME' or 'state.NAME' → why it was written.

    Args:
        given: array of the data → its shape; None where the data are texts or come from a loader.
        constants: input → value as written.
        fixed_from: where so many axes are free, they are given the sizes of the data; None for never.
    """
    known = {spec.name: spec for spec in source.inputs}
    uses: dict[str, InputUse] = {}
    reasons: dict[str, str] = {}
    for name, text in constants.items():
        if name not in known:
            raise ConfigError(f"the model has no input {name!r}.", key="--constant", hint=nearest(name, known))
        uses[name] = InputUse(name=name, constant=_constant(known[name], text))
        reasons[f"inputs.{name}"] = "as --constant says"
    fed = set(given) if given is not None else {s.name for s in source.inputs if s.shape}
    missing = {name: spec for name, spec in known.items() if name not in fed and name not in uses}
    state = tuple((output, name) for output, name in state_pairs(source) if name in missing)
    for output, name in state:
        del missing[name]
        reasons[f"state.{output}"] = (
            f"no array feeds {name!r}, and {output!r} has its type and shape and is named after it"
        )
    for name, spec in list(missing.items()):
        answer = ask(f"The input {_input_words(spec)} is not in the data. Which constant feeds it?")
        if answer is not None:
            uses[name] = InputUse(name=name, constant=_constant(missing.pop(name), answer))
            reasons[f"inputs.{name}"] = "as it was answered"
    if missing:
        unfed, one = list(missing.values()), next(iter(missing.values()))
        others = [name for name in given or () if name not in known]
        mistaken = f" The data's {', '.join(map(repr, others))} is no input." if others else ""
        value = f", or --constant {one.name}=VALUE{', which a single number fills' if one.shape else ''}"
        fixed = all(isinstance(size, int) for size in one.shape)
        raise ConfigError(
            f"nothing feeds the input {' and '.join(map(_input_words, unfed))}.{mistaken}",
            key="inputs",
            hint=f"Give the array {one.name!r} in every data file{value if fixed else ''}.",
        )
    carried = {name for _, name in state}
    for name, (axes, why) in declared_axes(source.inputs, given or {}, carried, fixed_from=fixed_from).items():
        uses[name] = InputUse(name=name, axes=axes)
        reasons[f"inputs.{name}"] = why
    return Interface(inputs=tuple(uses.values()), state=state), reasons


def _input_words(spec: TensorSpec) -> str:
    return f"{spec.name!r} ({spec.dtype}, {axes_text(spec.shape) if spec.shape else 'a single number'})"


def _constant(spec: TensorSpec, text: str) -> object:
    """The numbers as written; a single one fills an input of a fixed shape."""
    value = numbers_of(spec.name, text)
    sizes = [size for size in spec.shape if isinstance(size, int)]
    if isinstance(value, (list, tuple)) or len(sizes) < len(spec.shape) or math.prod(sizes) > _MOST_FILLED:
        return value
    for size in reversed(sizes):
        value = [value] * size
    return value


def state_pairs(model: Model) -> Iterator[tuple[str, str]]:
    """(output, input) of one type and shape whose names differ in a mark of time or direction alone.

    `hn` and `h`, `stateN` and `state`, `state_out` and `state_in`, `present.0.key` and `past.0.key`.
    """
    taken: set[str] = set()
    for output in model.outputs:
        for given in model.inputs:
            if given.name in taken or given.name == output.name or not given.shape:
                continue
            alike = given.dtype == output.dtype and (not output.shape or _fits(given.shape, output.shape))
            if alike and _bare(given.name) == _bare(output.name):
                taken.add(given.name)
                yield output.name, given.name
                break


def _bare(name: str) -> str:
    """A name without what marks the step or the direction."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    kept = [word for word in words if word.lower() not in _MARKS] or words
    return _STEP.sub("", "_".join(kept)).lower()


Axes = tuple[str | int, ...]


def declared_axes(
    inputs: Sequence[TensorSpec],
    given: Mapping[str, tuple[int, ...]],
    carried: set[str],
    *,
    fixed_from: int | None = None,
) -> dict[str, tuple[Axes, str]]:
    """Input → (its axes, why), for those that are not fed as an exporter's usual model is, batch first.

    Args:
        given: array of the data → its shape, samples first.
        carried: inputs that hold a state; then arrays have an axis of steps too.
        fixed_from: where so many axes beside the batch are free, all get the sizes of the data; None for never.
    """
    found: dict[str, tuple[Axes, str]] = {}
    free_axes = {name for spec in inputs if spec.name in given for name in _free_axes(spec)}
    fixed = fixed_from is not None and len(free_axes) >= fixed_from
    for spec in inputs:
        if spec.name in carried:
            free = [axis for axis, size in enumerate(spec.shape) if not isinstance(size, int)]
            if len(free) == 1 and free[0] > 0:
                found[spec.name] = (_named(spec, free[0]), "its one free axis counts samples")
            continue
        if spec.name not in given or not spec.shape:
            continue
        sample = given[spec.name][2:] if carried else given[spec.name][1:]
        if _fits(spec.shape, sample):
            why = f"one sample, {axes_text(sample)}, has the input's own shape: one call is one sample"
            found[spec.name] = (_named(spec, None), why)
            continue
        places = [k for k in range(len(spec.shape)) if _fits(_without(spec.shape, k), sample)]
        places = [k for k in places if not isinstance(spec.shape[k], int)] or [k for k in places if _may_count(spec, k)]
        if fixed and 0 in places:
            found[spec.name] = ((BATCH, *sample), "the sizes that all samples have")
        elif places and 0 not in places:
            why = f"one sample is {axes_text(sample)}, so that this axis counts them"
            found[spec.name] = (_named(spec, places[0]), why)
    return found


def _free_axes(spec: TensorSpec) -> list[str]:
    """Free axes behind the first; each without a name is one of its own."""
    return [
        size if isinstance(size, str) and any(c.isalnum() for c in size) else f"{spec.name} {axis}"
        for axis, size in enumerate(spec.shape[1:], 1)
        if not isinstance(size, int) or size < 1
    ]


def _may_count(spec: TensorSpec, axis: int) -> bool:
    """Whether an axis of a fixed size may count samples: not beside one whose name says that it does, nor beside a free
    one, unless it is 1."""
    others = _without(spec.shape, axis)
    if any(isinstance(size, str) and is_batch_name(size) for size in others):
        return axis == 0
    return axis == 0 or spec.shape[axis] == 1 or all(isinstance(size, int) and size > 0 for size in others)


def _without(shape: Sizes, axis: int) -> Sizes:
    return (*shape[:axis], *shape[axis + 1 :])


def _fits(shape: Sizes, other: Sizes) -> bool:
    """Whether two shapes can be one, where a size may be free."""
    return len(shape) == len(other) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int) and min(a, b) > 0)
        for a, b in zip(shape, other, strict=True)
    )


def _named(spec: TensorSpec, batch: int | None) -> Axes:
    """Sizes and names as the model has them, others made from the input's own name."""
    return tuple(
        BATCH
        if axis == batch
        else size
        if isinstance(size, int) and size > 0
        else size
        if isinstance(size, str) and size not in ("", BATCH) and any(c.isalnum() for c in size)
        else f"{spec.name}_{axis}"
        for axis, size in enumerate(spec.shape)
    )
