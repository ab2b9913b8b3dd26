"""Which axis of an input counts samples, as the shape of one sample in the data tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.graph.intake.ports import is_batch_name
from workbench.values.interface import BATCH
from workbench.values.model import TensorSpec

Axes = tuple[str | int, ...]
Shape = Sequence[int | str | None]


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
    free_axes = {name for spec in inputs if spec.name in given for name in _free(spec)}
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
        if len(sample) == len(spec.shape) and _fits(spec.shape, sample):
            why = f"one sample, {_words(sample)}, has the input's own shape: one call is one sample"
            found[spec.name] = (_named(spec, None), why)
            continue
        places = [k for k in range(len(spec.shape)) if _fits(_without(spec.shape, k), sample)]
        places = [k for k in places if not isinstance(spec.shape[k], int)] or [k for k in places if _may_count(spec, k)]
        if fixed and 0 in places:
            found[spec.name] = ((BATCH, *sample), "the sizes that all samples have")
        elif places and 0 not in places:
            found[spec.name] = (
                _named(spec, places[0]),
                f"one sample is {_words(sample)}, so that this axis counts them",
            )
    return found


def _free(spec: TensorSpec) -> list[str]:
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


def _without(shape: Shape, axis: int) -> Shape:
    return [*shape[:axis], *shape[axis + 1 :]]


def _fits(shape: Shape, sample: Sequence[int]) -> bool:
    return len(shape) == len(sample) and all(
        not isinstance(size, int) or size < 1 or size == n for size, n in zip(shape, sample, strict=True)
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


def _words(sample: Sequence[int]) -> str:
    return f"[{', '.join(map(str, sample))}]"
