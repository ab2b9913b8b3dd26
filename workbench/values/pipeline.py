"""How stages of a pipeline hand on what they found: one account of it for the search, a bundle and a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.values.model import TensorSpec, axes_text
from workbench.values.preprocess import Array

REQUEST = "request"

Item = Mapping[str, Array]
"""Name → array of one sample, without a batch axis."""


class ItemError(ValueError):
    """What glue returned, or an edge hands on, is no item of the stage that it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Where a stage's items come from.

    Attributes:
        takes: the request and stages that it needs.
        edges: (input, where from, tensor there); () with glue.
        glue: 'file.py:function'; '' without.
        again: the same, of a function that makes further items of what the stage itself gave, until it makes none:
            steps of a decoder. `again_takes` are its parameters.
        carry: (output, input) whose value goes from one round to the next without passing through glue: a cache.
        most_items: of one request, those of all rounds together.
    """

    name: str
    takes: tuple[str, ...]
    edges: tuple[tuple[str, str, str], ...] = ()
    glue: str = ""
    most_items: int = 256
    again: str = ""
    again_takes: tuple[str, ...] = ()
    carry: tuple[tuple[str, str], ...] = ()


def runs_once(stages: Sequence[Wiring]) -> bool:
    """Whether the last stage has exactly one item, whatever the request: no glue made its items, nor those before."""
    named = {each.name: each for each in stages}

    def once(name: str) -> bool:
        return name == REQUEST or (not named[name].glue and all(once(each) for each in named[name].takes))

    return once(stages[-1].name)


def taken(names: Sequence[str], request: Item, outputs: Mapping[str, Sequence[Item]]) -> dict[str, Any]:
    """What glue is called with."""
    return {name: dict(request) if name == REQUEST else [dict(one) for one in outputs[name]] for name in names}


def items_of(
    stage: Wiring,
    specs: Sequence[TensorSpec],
    request: Item,
    outputs: Mapping[str, Sequence[Item]],
    glue: Callable[[Mapping[str, Any]], Any],
) -> list[Item]:
    """The items of one request, checked against the stage's model.

    Args:
        specs: inputs of the model, whose first axis counts samples.
        outputs: stage → what each of its items gave, of the stages before.

    Raises:
        ItemError: they do not fit; what `glue` raises passes through.
    """
    if stage.glue:
        return checked_items(glue(taken(stage.takes, request, outputs)), stage, specs)
    counts = {len(outputs[source]) for source in stage.takes if source != REQUEST}
    if len(counts) > 1:
        ran = " and ".join(map(str, sorted(counts)))
        raise ItemError(f"{stage.name}: its inputs come from stages that ran {ran} times; glue can join them")
    found = []
    for place in range(counts.pop() if counts else 1):
        item = {}
        for name, source, tensor in stage.edges:
            given = request if source == REQUEST else outputs[source][place]
            if tensor not in given:
                raise ItemError(f"{stage.name}: {source} has no {tensor!r}; it has {', '.join(sorted(given))}")
            item[name] = given[tensor]
        found.append(item)
    return checked_items(found, stage, specs)


def without_carried(stage: Wiring, gave: Sequence[Item]) -> list[Item]:
    """What a stage gave as glue and other stages see it."""
    carried = dict(stage.carry)
    return [{name: array for name, array in one.items() if name not in carried} for one in gave]


def further_items(
    stage: Wiring,
    specs: Sequence[TensorSpec],
    request: Item,
    outputs: Mapping[str, Sequence[Item]],
    last: int,
    glue: Callable[[Mapping[str, Any]], Any],
) -> list[Item]:
    """The items of another round of a stage, `outputs` holding what it gave so far; none where it is done.

    Args:
        last: items of its last round.

    Raises:
        ItemError: as `items_of`; the stage does not come to an end; or what is carried has no item to go to.
    """
    if not stage.again or not last:
        return []
    carried, own = dict(stage.carry), without_carried(stage, outputs[stage.name])
    found = glue(taken(stage.again_takes, request, {**outputs, stage.name: own}))
    found = [found] if isinstance(found, Mapping) else found
    if found is None or (isinstance(found, list | tuple) and not found):
        return []
    if carried and isinstance(found, list | tuple):
        if len(found) != last:
            raise ItemError(f"{stage.again}: gave {len(found)} items after {last}; what is carried needs as many")
        before = outputs[stage.name][-last:]
        if missing := [name for name in carried if name not in before[0]]:
            raise ItemError(f"{stage.name}: has no output {missing[0]!r} to carry")
        moved = [{to: one[name] for name, to in stage.carry} for one in before]
        found = [{**one, **more} if isinstance(one, Mapping) else one for one, more in zip(found, moved, strict=True)]
    more = checked_items(found, stage, specs, stage.again)
    if len(outputs[stage.name]) + len(more) > stage.most_items:
        raise ItemError(f"{stage.again}: goes on after most_items ({stage.most_items})")
    return more


def checked_items(found: Any, stage: Wiring, specs: Sequence[TensorSpec], glue: str = "") -> list[Item]:
    """Items as the model takes them. Raises ItemError."""
    whose = f"{glue or stage.glue or stage.name}: "
    if isinstance(found, Mapping):
        found = [found]
    if not isinstance(found, list | tuple):
        raise ItemError(f"{whose}gave {type(found).__name__}, not a list of items (input → array)")
    if len(found) > stage.most_items:
        raise ItemError(f"{whose}gave {len(found)} items, more than most_items ({stage.most_items})")
    names = {spec.name for spec in specs}
    items: list[Item] = []
    for number, item in enumerate(found):
        place = f"{whose}item {number} "
        if not isinstance(item, Mapping) or item.keys() != names:
            has = ", ".join(map(str, item)) if isinstance(item, Mapping) else type(item).__name__
            raise ItemError(f"{place}has {has}; {stage.name} takes {', '.join(sorted(names))}")
        items.append({spec.name: _fitting(item[spec.name], spec, place) for spec in specs})
    return items


def _fitting(value: Any, spec: TensorSpec, place: str) -> Array:
    wanted, axes = np.dtype(spec.dtype), spec.shape[1:]
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    kinds = {"i": "iu", "u": "iu", "f": "f", "b": "b"}.get(wanted.kind, "")
    fits = len(array.shape) == len(axes) and all(
        not isinstance(axis, int) or axis == size for axis, size in zip(axes, array.shape, strict=True)
    )
    if array.dtype.kind not in kinds or not fits or not array.size:
        expected = f"{wanted} {axes_text(axes)}"
        raise ItemError(f"{place}gives {spec.name} as {array.dtype} {list(array.shape)}; the model takes {expected}")
    with np.errstate(over="ignore"):
        cast = array.astype(wanted, copy=False)
    if wanted.kind == "f" and not np.isfinite(cast).all():
        raise ItemError(f"{place}holds NaN or infinity in {spec.name}")
    if wanted.kind in "iu" and not np.array_equal(cast, array):
        raise ItemError(f"{place}holds a number in {spec.name} that {wanted} cannot")
    return cast


def checked_answer(found: Any, place: str) -> Any:
    """An answer of texts, numbers, arrays, lists and mappings of them. Raises ItemError."""
    if isinstance(found, Mapping):
        return {str(key): checked_answer(value, place) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [checked_answer(value, place) for value in found]
    if found is None or isinstance(found, bool | str):
        return found
    array = np.asarray(found)
    if array.dtype.kind not in "fiubU":
        raise ItemError(f"{place} gave {found!r:.80}; an answer holds texts, numbers, arrays, lists and mappings")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ItemError(f"{place} gave NaN or infinity")
    return found


def plain(answer: Any) -> Any:
    """An answer as JSON knows it."""
    if isinstance(answer, dict):
        return {key: plain(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [plain(value) for value in answer]
    return answer.tolist() if isinstance(answer, np.ndarray | np.generic) else answer
