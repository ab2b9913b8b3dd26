"""Axes along which the user's samples differ: their names, and the bins that they are padded to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.commands.init.data import Corpus
from workbench.inputs.dataset.batch import IntArray
from workbench.values.bins import optimal_bins
from workbench.values.interface import AxisUse
from workbench.values.model import Model

_BINS = 4
_EDGES = 256
"""So many lengths are looked at as bins: a recording has ten thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeAxis:
    """
    Attributes:
        use: with bins that hold every sample.
        sizes: of the samples, ascending.
    """

    use: AxisUse
    sizes: tuple[int, ...]


def differing_axes(corpus: Corpus, model: Model, *, steps: bool = False) -> tuple[FreeAxis, ...]:
    """The named axes of the prepared model along which samples have different true sizes.

    Args:
        steps: the first axis of every sample counts steps, which are fed one by one.
    """
    found: dict[str, list[IntArray]] = {}
    shapes = {spec.name: spec.shape for spec in model.inputs}
    for name, sizes in corpus.sizes.items():
        for column, axis in zip(sizes.T[steps:], shapes.get(name, ())[1:], strict=False):
            if isinstance(axis, str):
                found.setdefault(axis, []).append(column)
    together = {axis: np.sort(np.concatenate(columns)) for axis, columns in found.items()}
    return tuple(
        FreeAxis(use=AxisUse(name=axis, bins=_bins(sizes)), sizes=tuple(sizes.tolist()))
        for axis, sizes in together.items()
        if sizes[0] != sizes[-1]
    )


def compiled_lengths(corpus: Corpus, model: Model, axes: Sequence[FreeAxis], *, steps: bool = False) -> tuple[int, ...]:
    """What a target that compiles every length has to compile for arrays; empty where no axis is free."""
    bins = {length for axis in axes for length in axis.use.bins}
    shapes = corpus.arrays or {}
    named = {axis.use.name for axis in axes}
    for spec in model.inputs:
        for size, axis in zip(shapes.get(spec.name, ())[1 + steps :], spec.shape[1:], strict=False):
            if not isinstance(axis, int) and axis not in named:
                bins.add(size)
    return tuple(sorted(bins))


def _bins(sizes: IntArray) -> tuple[int, ...]:
    longest = int(sizes[-1])
    step = max(8, -(-longest // _EDGES // 8) * 8)
    last = -(-longest // 8) * 8 if longest > 64 else longest
    return optimal_bins(sizes, _BINS, last, multiple=step)
