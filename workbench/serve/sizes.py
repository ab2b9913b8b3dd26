"""Raw tensors of different sizes: padded to the bundle's bins as in calibration and scoring, answers cut back."""

from __future__ import annotations

import bisect
from collections.abc import Mapping

import numpy as np

from workbench.bundle import Manifest
from workbench.serve.refusals import Refusal
from workbench.targets.base import Array
from workbench.values.preprocess import WELL_KNOWN_INPUTS

Sizes = Mapping[str, tuple[int, int]]
"""Padded axis → (the size that was sent, the size that runs)."""


class Padding:
    """What the manifest's `axes` ask for; without any it leaves every array as it is."""

    def __init__(self, manifest: Manifest) -> None:
        self._uses = {use.name: use for use in manifest.axes if use.bins}
        self._inputs = {spec.name: spec.shape for spec in manifest.model.inputs}
        self._outputs = {spec.name: spec.shape for spec in manifest.model.outputs}
        self._named = {axis for shape in self._inputs.values() for axis in shape[1:] if isinstance(axis, str)}

    def padded(self, inputs: Mapping[str, Array]) -> tuple[Mapping[str, Array], Sizes]:
        """(arrays [rows, ...] of the sizes that run, what was padded).

        Raises:
            Refusal: kind 'inputs': larger than the largest bin.
        """
        if not self._uses:
            return inputs, {}
        sent: dict[str, int] = {}
        for name, array in inputs.items():
            for axis, size in zip(self._inputs[name], array.shape, strict=True):
                if axis in self._uses:
                    sent[str(axis)] = max(size, sent.get(str(axis), 0))
        run = {axis: self._bin(axis, size) for axis, size in sent.items()}
        found = {name: self._grown(name, array, run) for name, array in inputs.items()}
        return found, {axis: (size, run[axis]) for axis, size in sent.items() if run[axis] != size}

    def cut(self, name: str, array: Array, sizes: Sizes) -> Array:
        """An output [rows, ...] without what padding added.

        A free axis is one that was padded where it has that axis's name, or, since exporters give outputs names of
        their own, where it has the size that no other padded axis runs with.
        """
        shape = self._outputs.get(name, ())
        if not sizes or len(shape) != array.ndim:
            return array
        cuts = [slice(None)]
        for axis, size in zip(shape[1:], array.shape[1:], strict=True):
            cuts.append(slice(None if isinstance(axis, int) else self._sent(axis, size, sizes)))
        return array[tuple(cuts)]

    def _sent(self, axis: str | None, size: int, sizes: Sizes) -> int | None:
        if axis in self._named:
            return sizes[axis][0] if axis in sizes and sizes[axis][1] == size else None
        alike = [sent for sent, run in sizes.values() if run == size]
        return alike[0] if len(alike) == 1 else None

    def _bin(self, axis: str, size: int) -> int:
        bins = self._uses[axis].bins
        place = bisect.bisect_left(bins, size)
        if place == len(bins):
            raise Refusal("inputs", f"inputs may have at most {bins[-1]} along {axis}, not {size}.")
        return bins[place]

    def _grown(self, name: str, array: Array, run: Mapping[str, int]) -> Array:
        axes = [str(axis) if axis in run else "" for axis in self._inputs[name]]
        shape = tuple(run.get(axis, size) for axis, size in zip(axes, array.shape, strict=True))
        if shape == array.shape:
            return array
        mask = WELL_KNOWN_INPUTS.get(name) == "mask"  # whatever padding holds, a mask says that it is none of the data
        pad = 0.0 if mask else next(self._uses[axis].pad for axis in axes if axis)
        made = np.full(shape, pad, dtype=array.dtype)
        made[tuple(slice(size) for size in array.shape)] = array
        return made
