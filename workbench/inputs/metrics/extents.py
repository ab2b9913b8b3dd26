"""How far an output reaches: the part of it that belongs to a sample, where the sample was padded along named axes.

The float model is run on a few sizes of the axis. An output's axis that grows with it, by a stride or a factor, ends
for a smaller sample where it would end if that sample ran alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.inputs.dataset.batch import STEPS, Batch
from workbench.quantization.sessions import open_session
from workbench.values.errors import CalibrationError
from workbench.values.interface import Interface
from workbench.values.model import Model
from workbench.values.preprocess import Array

_PROBES = (1.0, 0.9, 0.75, 0.5, 0.4, 0.25)
"""Of the padded size; each with the size one below it."""
_MOST_STEP = 4096
_MOST_OFFSET = 4
"""Of a stride, in strides: as far as the edges of kernels move an end."""
_STRANGE = 0.5
"""Where values move by more than this share of their spread once the sample is padded, positions along the output's
axis are none of the input's."""
_LOOKED_AT = (0.6, 0.9)
"""Of the positions."""

_log = logging.getLogger(__name__)
_found: dict[tuple[str, str], Mapping[str, tuple[Reach, ...]]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """An output's axis that follows an input's: of `size` it has (size * factor + offset) // stride."""

    axis: int
    factor: int
    offset: int
    stride: int

    def of(self, size: int) -> int:
        return max(0, (size * self.factor + self.offset) // self.stride)


def own_parts(
    outputs: Mapping[str, Array], names: Sequence[str], batch: Batch, row: int, extents: Extents
) -> Mapping[str, Array]:
    """The outputs of one sample [1, ...], those named without their padding."""
    found = {}
    for name, array in outputs.items():
        part = array[row : row + 1]
        for axis, reaches in extents.of(batch).items() if name in names else ():
            for reach in reaches.get(name, ()):
                own = reach.of(int(batch.sizes[axis][row]))
                at = reach.axis + (STEPS in batch.sizes)
                part = part[(slice(None),) * at + (slice(own),)]
        found[name] = part
    return found


class Extents:
    """What is known of a model's outputs; found where a batch is padded for the first time."""

    def __init__(self, model: Model, interface: Interface) -> None:
        self._model = model
        self._pads = {use.name: use.pad for use in interface.axes}

    def padded(self, batch: Batch) -> bool:
        """Whether any sample of the batch is smaller than what was fed."""
        return any(
            axis in self._pads and (sizes < self._width(batch, axis)).any() for axis, sizes in batch.sizes.items()
        )

    def of(self, batch: Batch) -> Mapping[str, Mapping[str, tuple[Reach, ...]]]:
        """Padded axis → output → its axes that follow it."""
        found = {}
        for axis in batch.sizes.keys() & self._pads.keys():
            key = (self._model.sha256, axis)
            if key not in _found:
                try:
                    _found[key] = self._measured(axis, batch)
                except CalibrationError as error:
                    _log.warning("outputs are compared with their padding along %r: %s", axis, error)
                    _found[key] = {}
            found[axis] = _found[key]
        # what follows two axes, such as anchors over height and width, has no end of its own
        every = [(name, reach.axis) for each in found.values() for name, reaches in each.items() for reach in reaches]
        return {
            axis: {n: tuple(one for one in rs if every.count((n, one.axis)) == 1) for n, rs in each.items()}
            for axis, each in found.items()
        }

    def _width(self, batch: Batch, axis: str) -> int:
        found = [
            batch.feeds[spec.name].shape[at + (STEPS in batch.sizes)]
            for spec in self._model.inputs
            for at, name in enumerate(spec.shape)
            if name == axis and spec.name in batch.feeds
        ]
        return max(found, default=0)

    def _measured(self, axis: str, batch: Batch) -> Mapping[str, tuple[Reach, ...]]:
        session, generator = open_session(self._model, ()), np.random.default_rng(0)
        names, width = [spec.name for spec in self._model.outputs], self._width(batch, axis)
        whole: dict[str, Array] = {}
        for spec in self._model.inputs:
            given = batch.feeds.get(spec.name)
            free = () if given is None else given.shape[2 if STEPS in batch.sizes else 1 :]
            sizes = free or [size if isinstance(size, int) else 1 for size in spec.shape[1:]]
            shape = [width if name == axis else size for name, size in zip(spec.shape[1:], sizes, strict=True)]
            values = generator.random((self._model.fixed_batch or 1, *shape))
            whole[spec.name] = (values < 0.5 if np.dtype(spec.dtype).kind in "iub" else values).astype(spec.dtype)

        def run(size: int, pad_to: int) -> dict[str, Array] | None:
            """Outputs of the first part of the same values, padded."""
            feeds = dict(whole)
            for spec in self._model.inputs:
                for at in (at for at, name in enumerate(spec.shape) if name == axis):
                    cut = np.take(feeds[spec.name], range(size), axis=at)
                    more = [(0, (pad_to - size) * (place == at)) for place in range(cut.ndim)]
                    feeds[spec.name] = np.ascontiguousarray(np.pad(cut, more, constant_values=self._pads[axis]))
            try:
                return dict(zip(names, session.run(None, feeds), strict=True))
            except RUNTIME_ERRORS:  # too small for the model
                return None

        probes = sorted({max(1, round(width * share) - less) for share in _PROBES for less in (0, 1)})
        alone = {size: outputs for size in probes if (outputs := run(size, size)) is not None}
        half = max((size for size in alone if size <= width // 2), default=None)
        padded = None if half is None else run(half, width)
        found: dict[str, tuple[Reach, ...]] = {}
        for name in names:
            for at in range(1, min((outputs[name].ndim for outputs in alone.values()), default=0)):
                ends = {size: outputs[name].shape[at] for size, outputs in alone.items()}
                if len(set(ends.values())) < 2:
                    continue
                reach = _reach(at, ends)
                if reach and half and padded and _same_places(alone[half][name], padded[name], at):
                    found[name] = (*found.get(name, ()), reach)
                    continue
                _log.warning(
                    "output %r is compared with its padding: how its axis %d follows %r of the input cannot be told "
                    "(%s).",
                    name,
                    at,
                    axis,
                    ", ".join(f"{size} gives {end}" for size, end in sorted(ends.items())),
                )
        return found


def _reach(axis: int, ends: Mapping[int, int]) -> Reach | None:
    """The rule that gives all these ends; of several the one with the least, which holds no padding."""
    small, large = min(ends), max(ends)
    grown = ends[large] - ends[small]
    if grown <= 0:
        return None
    factor = round(grown / (large - small)) if grown > large - small else 1
    about = (large - small) / grown
    strides = (1,) if factor > 1 else range(max(1, int(about * 0.8)), min(_MOST_STEP, int(about * 1.3) + 2))
    for stride in strides:
        most = _MOST_OFFSET * max(factor, stride)
        for offset in range(-most, most + 1):
            rule = Reach(axis=axis, factor=factor, offset=offset, stride=stride)
            if all(rule.of(size) == end for size, end in ends.items()):
                return rule
    return None


def _same_places(alone: Array, padded: Array, axis: int) -> bool:
    """Whether what a sample gives alone stands at the same places where it is padded, not at the very end, which the
    padding reaches, nor at the beginning, which another order of values may leave where it is."""
    if alone.ndim != padded.ndim or alone.dtype.kind not in "fiub":
        return False
    size = alone.shape[axis]
    low = min(int(_LOOKED_AT[0] * size), size - 1)
    looked_at = slice(low, max(low + 1, int(_LOOKED_AT[1] * size)))
    common = [slice(min(sizes)) for sizes in zip(alone.shape, padded.shape, strict=True)]
    common[axis] = looked_at
    ours, theirs = (array[tuple(common)].astype(np.float64) for array in (alone, padded))
    return bool(np.abs(ours - theirs).sum() <= _STRANGE * np.abs(ours - ours.mean()).sum())
