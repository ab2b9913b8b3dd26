"""Samples of different sizes: which of their axes are free, which samples may share a batch, and how they are padded.

A sample is input name → array without the batch axis. An axis that stands under `axes:` is padded, to the smallest bin
that holds the batch's samples, or to the largest of them where it has no bins. Any other axis is never padded, so that
a batch ends where its size changes. Where a state is carried, the first axis of every sample counts steps; a sequence
that ends earlier is filled up behind its last step, where nothing reads it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from workbench.inputs.dataset.batch import STEPS, IntArray
from workbench.values.errors import ConfigError, nearest
from workbench.values.interface import BATCH, AxisUse, Interface
from workbench.values.model import Model
from workbench.values.preprocess import WELL_KNOWN_INPUTS, Array, Feeds

Sample = Mapping[str, Array]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""(input, shape of one sample), sorted by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """How samples become batches; the default is for samples that all have one size.

    Attributes:
        axes: (input, name of each axis of a sample, None where it has none), sorted by name.
        uses: bins and padding by axis.
        steps: the first axis of every sample counts steps.
    """

    axes: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    uses: tuple[AxisUse, ...] = ()
    steps: bool = False

    @property
    def pads(self) -> bool:
        """Whether anything is ever padded."""
        return self.steps or bool(self.uses)

    @property
    def binned(self) -> tuple[AxisUse, ...]:
        return tuple(use for use in self.uses if use.bins)

    def with_bins(self, bins: tuple[int, ...]) -> Sizing:
        """Other bins for the one axis that has some; the same where none or several have."""
        if len(self.binned) != 1:
            return self
        (chosen,) = self.binned
        return replace(self, uses=tuple(replace(use, bins=bins) if use == chosen else use for use in self.uses))

    def names(self, name: str, rank: int) -> tuple[str | None, ...]:
        """Name of each of a sample's axes, as far as they are known."""
        known = dict(self.axes).get(name, ())
        steps = (STEPS,) if self.steps else ()
        return (*steps, *known, *[None] * rank)[:rank]

    def size(self, shapes: Shapes, axis: str) -> int:
        """A sample's size along a named axis: the largest of its inputs'; 0 where none has it."""
        known = [zip(self.names(name, len(shape)), shape, strict=True) for name, shape in shapes]
        return max((size for pairs in known for name, size in pairs if name == axis), default=0)

    def padded(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one sample of an input behind its padding, where it runs by itself."""
        bins = {use.name: use.bins for use in self.binned}
        return tuple(
            next((found for found in bins.get(axis or "", ()) if found >= size), size)
            for axis, size in zip(self.names(name, len(shape)), shape, strict=True)
        )

    def key(self, shapes: Shapes) -> Hashable:
        """Samples with equal keys may share a batch."""
        padded = {use.name for use in self.uses} | ({STEPS} if self.steps else set())
        known = [(name, zip(self.names(name, len(shape)), shape, strict=True)) for name, shape in shapes]
        return tuple((name, tuple(None if axis in padded else n for axis, n in pairs)) for name, pairs in known)

    def check(self, shapes: Shapes, row: int, file: Path) -> None:
        """Raises ConfigError for a sample that no bin holds, or whose inputs differ in their steps."""
        if self.steps:
            _steps(shapes, row, file)
        for use in self.uses:
            _bin(use, np.array([self.size(shapes, use.name)]), np.array([row]), file)

    def runs(self, groups: Iterable[IntArray], shapes_of: Callable[[int], Shapes]) -> Iterator[IntArray]:
        """The groups, each cut where neighbours cannot share a batch; the order stays."""
        for rows in groups:
            start, before = 0, None
            for place, row in enumerate(rows.tolist()):
                key = self.key(shapes_of(row))
                if place > start and key != before:
                    yield rows[start:place]
                    start = place
                before = key
            yield rows[start:]

    def stacked(self, samples: Sequence[Sample], rows: IntArray, file: Path) -> tuple[Feeds, dict[str, IntArray]]:
        """(feeds of a batch, axis → true size of each sample [n] for the axes that are padded)."""
        shapes = [shapes_of(sample) for sample in samples]
        sizes: dict[str, IntArray] = {}
        targets: dict[str, int] = {}
        if self.steps:
            sizes[STEPS] = np.array([_steps(shape, row, file) for shape, row in zip(shapes, rows, strict=True)])
            targets[STEPS] = int(sizes[STEPS].max())
        for use in self.uses:
            found = np.array([self.size(shape, use.name) for shape in shapes], dtype=np.int64)
            if not found.any():
                continue
            sizes[use.name] = found
            targets[use.name] = _bin(use, found, rows, file)
        expected = self.key(shapes[0])
        for row, shape in zip(rows, shapes, strict=True):
            if self.key(shape) != expected:
                raise ConfigError(
                    f"sample {row} has shapes {dict(shape)}; others of its batch have {dict(shapes[0])}.",
                    file=file,
                    hint="Name the axis in the manifest: axes: {NAME: {bins: [64, 128], pad: 0}}.",
                )
        pads = {use.name: use.pad for use in self.uses}
        return {name: self._input(name, samples, targets, pads) for name in samples[0]}, sizes

    def _input(
        self, name: str, samples: Sequence[Sample], targets: Mapping[str, int], pads: Mapping[str, float]
    ) -> Array:
        first = samples[0][name]
        axes = self.names(name, first.ndim)
        shape = tuple(targets.get(axis or "", size) for axis, size in zip(axes, first.shape, strict=True))
        if all(sample[name].shape == shape for sample in samples):
            return np.stack([sample[name] for sample in samples])
        mask = WELL_KNOWN_INPUTS.get(name) == "mask"  # whatever padding holds, a mask says that it is none of the data
        values = [pads[axis] for axis in axes if axis is not None and axis in pads and not mask]
        made = np.full((len(samples), *shape), values[0] if values else 0, dtype=first.dtype)
        for place, sample in enumerate(samples):
            made[place][tuple(slice(size) for size in sample[name].shape)] = sample[name]
        return made


ONE_SIZE = Sizing()


def sizing_of(interface: Interface, model: Model | None, file: Path) -> Sizing:
    """From the names of the model's axes, and those that the manifest gives where there is no model."""
    carried = {name for _, name in interface.state}
    fixed = {use.name for use in interface.inputs if use.constant is not None}
    known: dict[str, tuple[str | None, ...]] = {}
    for use in interface.inputs:
        if use.axes:
            known[use.name] = tuple(a if isinstance(a, str) else None for a in use.axes if a != BATCH)
    for spec in model.inputs if model is not None else ():
        known[spec.name] = tuple(d if isinstance(d, str) else None for d in spec.shape[1:])
    fed = {name: axes for name, axes in known.items() if name not in carried | fixed}
    names = {axis for axes in fed.values() for axis in axes if axis is not None}
    if model is not None:
        whole = {spec.name for spec in model.inputs if np.dtype(spec.dtype).kind in "iub"}
        for own in interface.axes:
            key = f"axes.{own.name}"
            if own.name not in names:
                raise ConfigError(
                    f"no input has a free axis {own.name!r}.",
                    file=file,
                    key=key,
                    hint=nearest(own.name, names) if names else "Every axis of them has a fixed size.",
                )
            unfit = next((name for name, axes in fed.items() if name in whole and own.name in axes), None)
            if unfit is not None and own.pad != int(own.pad):
                raise ConfigError(f"{own.pad:g} cannot pad {unfit!r}, which holds whole numbers.", file=file, key=key)
    return Sizing(axes=tuple(sorted(fed.items())), uses=interface.axes, steps=bool(interface.state))


def shapes_of(sample: Sample) -> Shapes:
    return tuple(sorted((name, tuple(array.shape)) for name, array in sample.items()))


def _steps(shapes: Shapes, row: int, file: Path) -> int:
    found = {name: shape[0] if shape else 0 for name, shape in shapes}
    if len(set(found.values())) != 1 or 0 in found.values():
        said = ", ".join(f"{name}: {count}" for name, count in found.items())
        raise ConfigError(
            f"sample {row} has different numbers of steps, or none ({said}).",
            file=file,
            hint="Where a state is carried, the first axis of every input of a sample counts steps.",
        )
    return next(iter(found.values()))


def _bin(use: AxisUse, sizes: IntArray, rows: IntArray, file: Path) -> int:
    largest = int(sizes.max())
    if not use.bins:
        return largest
    place = bisect.bisect_left(use.bins, largest)
    if place == len(use.bins):
        raise ConfigError(
            f"sample {int(rows[int(sizes.argmax())])} has {largest} along {use.name!r}, more than the largest bin, "
            f"{use.bins[-1]}.",
            file=file,
            hint=f"Add a bin of {largest} or more under axes.{use.name}.bins, or cut the sample.",
        )
    return use.bins[place]
