"""Observe once, derive everything: one streaming pass of the float model over the calibration data.

    statistics = observe(model, batches)          # forward passes; memory does not grow with the data
    record = choose(statistics, recipe)           # algorithms.py; no more passes, for every recipe

What is counted and added up does not depend on order (histogram.py, statistics.py), so equal samples give equal
statistics however they were batched, threaded or merged, as far as the runtime computes equal activations for them.
"""

from __future__ import annotations

import functools
import math
import queue
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from workbench.graph.apart import array_of, kept_aside
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.quantization.activations import Array as Array  # "as": importers may take these from here
from workbench.quantization.activations import Feeds as Feeds
from workbench.quantization.activations import NotFiniteError, Run, activations
from workbench.quantization.activations import parts as parts
from workbench.quantization.histogram import CHUNK, HistogramCounter, Scratch
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.statistics import (
    ChannelStatistics,
    Doubles,
    Pair,
    Range,
    Statistics,
    TensorStatistics,
    WeightStatistics,
    add_pairs,
    add_rows,
    merge_tensors,
)
from workbench.quantization.weights import weight_rows
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

_CHANNELS_FIRST = {"Conv", "ConvTranspose", "AveragePool"}


def observe(
    model: Model,
    batches: Iterable[Feeds],
    *,
    proto: onnx.ModelProto | None = None,
    variant: str = "",
    threads: int = 2,
) -> Statistics:
    """Run the float model over the data once and measure what its quantizable layers see.

    Padding counts as data.

    Args:
        proto: the graph to observe in place of the model's own, normalized (normalize.py); with the model's inputs.
        variant: names what `proto` changes; part of the statistics and their digest.

    Raises:
        CalibrationError: no batches, nothing to quantize, feeds the model refuses, or NaN or infinity in an
            activation or a weight (names the tensor and the sample, counted from 0 in the order of the batches).
    """
    with kept_aside(model.size_bytes):
        graph = normalized(load_graph(model)) if proto is None else proto
        layers = quantizable_layers(graph)
        if not layers:
            raise CalibrationError(f"{model.path.name} has no layer that INT8 can serve. See `workbench inspect`.")
        weights = _weight_statistics(graph, layers)
        del graph  # a model's weights are large: no more copies of them than needed
        axes = _observed(layers)
        idle: queue.SimpleQueue[Accumulator] = queue.SimpleQueue()
        for _ in range(threads):
            idle.put(Accumulator(axes))

        def add(run: Run) -> None:
            accumulator = idle.get()
            try:
                accumulator.add([run.values[name] for name in axes], _halves(run))
            finally:
                idle.put(accumulator)

        samples = 0
        # Normalization keeps the names and values of the tensors that are left, so the file itself can be run.
        for run in activations(model, proto, list(axes), batches, threads=threads, work=add):
            samples = run.first_sample + run.samples
    finished = [idle.get().statistics() for _ in range(threads)]
    tensors = {name: functools.reduce(merge_tensors, (part[name] for part in finished)) for name in axes}
    return Statistics(
        model_sha256=model.sha256, samples=samples, layers=layers, tensors=tensors, weights=weights, variant=variant
    )


def _observed(layers: tuple[Layer, ...]) -> dict[str, int | None]:
    """Tensor → channel axis (None where channels mean nothing), in graph order."""
    axes: dict[str, int | None] = {}
    for layer in layers:
        if layer.second is not None:
            axes.setdefault(layer.activation, None)
            axes.setdefault(layer.second, None)
            continue
        if axes.get(layer.activation) is None:
            axes[layer.activation] = 1 if layer.op_type in _CHANNELS_FIRST else -1
        if layer.op_type == "Conv":
            axes.setdefault(layer.output, None)
    return axes


def _weight_statistics(proto: onnx.ModelProto, layers: tuple[Layer, ...]) -> dict[str, WeightStatistics]:
    known = constants(proto)
    found = {}
    for layer in layers:
        if layer.weight is None or layer.output_axis is None:
            continue
        rows = weight_rows(array_of(known[layer.weight]), layer, per_channel=True)
        minima, maxima = rows.min(axis=1), rows.max(axis=1)
        if not (np.isfinite(minima).all() and np.isfinite(maxima).all()):
            raise CalibrationError(f"weight {layer.weight!r} of layer {layer.name!r} holds NaN or infinity.")
        found[layer.name] = WeightStatistics(minima=minima, maxima=maxima)
    return found


def _halves(run: Run) -> npt.NDArray[np.bool_]:
    """bool[batch]: the half each sample belongs to, by a check sum of what is fed for it.

    Position in the stream would be simpler, and would make the statistics depend on the order of the samples.
    """
    checks = [0] * run.samples
    for _, array in sorted(run.feeds.items()):
        for row in range(run.samples):
            sample = array[row] if array.ndim and array.shape[0] == run.samples else array
            checks[row] = zlib.crc32(np.ascontiguousarray(sample).data, checks[row])
    return np.array([check & 1 for check in checks], np.bool_)


# --- adding up the runs of one thread ---------------------------------------------------------------------------------
#
# Every sample leaves one row of numbers that add up (its extremes and its channel sums), and one row of numbers of
# which the extremes count; all tensors' rows lie side by side, so a run costs few NumPy calls beside those that read
# the values. The values themselves are read in blocks that fit the processor's cache.

_Floats = npt.NDArray[np.float32]

_BLOCK = 2 * CHUNK
"""Values read at a time: they stay in the cache between their extremes, their sums and their counting."""

_POSITIONS = 64
"""Positions added up in float32 before float64 takes over."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where one tensor's channels lie in the rows of all tensors."""

    sums: slice
    squares: slice
    channels: slice


class Accumulator:
    """Statistics of all observed tensors; for one thread at a time.

    Args:
        axes: tensor name → its channel axis: -1 (the last), 1, or None where channels mean nothing.
    """

    def __init__(self, axes: Mapping[str, int | None]) -> None:
        self._axes = dict(axes)
        scratch = Scratch()
        self._counters = [HistogramCounter(scratch) for _ in axes]
        self._columns: list[_Columns | None] = []
        self._samples = np.zeros(len(axes), np.int64)
        self._rows = [0] * len(axes)
        self._halves = np.stack([np.full((2, len(axes)), np.inf), np.full((2, len(axes)), -np.inf)])
        self._added: Pair = (np.zeros(0), np.zeros(0))
        self._minima, self._maxima = np.zeros(0, np.float32), np.zeros(0, np.float32)

    def add(self, tensors: Sequence[_Floats], halves: npt.NDArray[np.bool_]) -> None:
        """Take one run's tensors, in the order of `axes`.

        Args:
            tensors: float32, [batch, ...] or [batch * anything, ...]. One without a batch dimension counts as seen
                by every sample of its run.
            halves: bool[batch], which half of the data each sample belongs to.

        Raises:
            NotFiniteError: NaN or infinity. What was added so far is of no use then.
        """
        if not self._columns:
            self._lay_out(tensors)
        samples, count = len(halves), len(tensors)
        terms = np.zeros((samples, self._added[0].size))
        lows = np.full((samples, count), np.inf)
        highs = np.full((samples, count), -np.inf)
        for at, (name, values) in enumerate(zip(self._axes, tensors, strict=True)):
            if values.size == 0:
                continue
            measured = _measure(name, values, self._axes[name], samples, self._counters[at])
            lows[:, at], highs[:, at] = measured.minima.min(axis=1), measured.maxima.max(axis=1)
            self._samples[at] += samples
            columns = self._columns[at]
            if columns is not None and measured.sums is not None and measured.squares is not None:
                groups = len(measured.sums)  # 1 without a batch dimension: its values count once
                terms[:groups, columns.sums], terms[:groups, columns.squares] = measured.sums, measured.squares
                self._rows[at] += values.size // measured.sums.shape[1]
                for total, seen, larger in (
                    (self._minima, measured.minima.min(axis=0), np.minimum),
                    (self._maxima, measured.maxima.max(axis=0), np.maximum),
                ):
                    larger(total[columns.channels], seen, out=total[columns.channels])
        for half in (False, True):
            members = halves == half
            if members.any():
                self._halves[0, int(half)] = np.minimum(self._halves[0, int(half)], lows[members].min(axis=0))
                self._halves[1, int(half)] = np.maximum(self._halves[1, int(half)], highs[members].max(axis=0))
        terms[:, :count] = np.where(np.isfinite(lows), lows, 0.0)  # infinite where a tensor had no values
        terms[:, count : 2 * count] = np.where(np.isfinite(highs), highs, 0.0)
        add_rows(self._added, terms)

    def statistics(self) -> dict[str, TensorStatistics]:
        """What has been seen so far, by tensor name."""
        if not self._columns:
            return {name: TensorStatistics(histogram=c.histogram()) for name, c in self._named_counters()}
        sums, errors = normalized = add_pairs(self._added, (np.zeros(()), np.zeros(())))
        count, seen = len(self._axes), {}
        halves = (self._halves + 0.0).tolist()
        for at, (name, counter) in enumerate(self._named_counters()):
            ranges: list[Range] = [(halves[0][half][at], halves[1][half][at]) for half in (0, 1)]
            seen[name] = TensorStatistics(
                histogram=counter.histogram(),
                channels=self._channels(at, normalized),
                samples=int(self._samples[at]),
                minimum_sum=(float(sums[at]), float(errors[at])),
                maximum_sum=(float(sums[count + at]), float(errors[count + at])),
                halves=(ranges[0], ranges[1]),
            )
        return seen

    def _named_counters(self) -> Iterator[tuple[str, HistogramCounter]]:
        return zip(self._axes, self._counters, strict=True)

    def _lay_out(self, tensors: Sequence[_Floats]) -> None:
        """Columns of the rows that add up: minima and maxima of all tensors, then their channels' sums and squares."""
        terms, channels = 2 * len(tensors), 0
        for axis, values in zip(self._axes.values(), tensors, strict=True):
            if axis is None or values.ndim < 2:
                self._columns.append(None)
                continue
            size = values.shape[axis]
            middle, end = terms + size, terms + 2 * size
            self._columns.append(_Columns(slice(terms, middle), slice(middle, end), slice(channels, channels + size)))
            terms, channels = end, channels + size
        self._added = (np.zeros(terms), np.zeros(terms))
        self._minima = np.full(channels, np.inf, np.float32)
        self._maxima = np.full(channels, -np.inf, np.float32)

    def _channels(self, at: int, added: Pair) -> ChannelStatistics | None:
        columns = self._columns[at]
        if columns is None or self._rows[at] == 0:
            return None
        sums, errors = added
        return ChannelStatistics(
            minima=self._minima[columns.channels] + np.float32(0),  # -0.0 and 0.0 must be one stored form
            maxima=self._maxima[columns.channels] + np.float32(0),
            sums=sums[columns.sums].copy(),
            squares=sums[columns.squares].copy(),
            rows=self._rows[at],
            sums_error=errors[columns.sums].copy(),
            squares_error=errors[columns.squares].copy(),
        )


# --- one tensor of one run -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Measured:
    """Per sample and channel, [samples, channels]; [samples, 1] without channels. One sample without a batch."""

    minima: _Floats
    maxima: _Floats
    sums: Doubles | None
    squares: Doubles | None


def _measure(name: str, values: _Floats, axis: int | None, samples: int, counter: HistogramCounter) -> _Measured:
    groups = samples if values.ndim and values.shape[0] % samples == 0 else 1
    if axis is None or values.ndim < 2:
        return _without_channels(name, values.reshape(groups, -1), counter)
    if axis == 1:
        by_row = _channels_first(name, values.reshape(len(values), values.shape[1], -1), counter)
        return _folded(by_row, groups)
    return _channels_last(name, values.reshape(groups, -1, values.shape[-1]), counter)


def _without_channels(name: str, values: _Floats, counter: HistogramCounter) -> _Measured:
    samples, size = values.shape
    minima, maxima = np.full((samples, 1), np.inf, np.float32), np.full((samples, 1), -np.inf, np.float32)
    for rows, part in _blocks(samples, size, 1):
        block = values[rows, part]
        low = np.minimum.reduce(block, axis=1, keepdims=True)
        high = np.maximum.reduce(block, axis=1, keepdims=True)
        np.minimum(minima[rows], low, out=minima[rows])
        np.maximum(maxima[rows], high, out=maxima[rows])
        _count(name, block, low, high, counter)
    return _Measured(minima, maxima, None, None)


def _channels_last(name: str, values: _Floats, counter: HistogramCounter) -> _Measured:
    samples, positions, channels = values.shape
    minima = np.full((samples, channels), np.inf, np.float32)
    maxima = np.full((samples, channels), -np.inf, np.float32)
    sums, squares = np.zeros((samples, channels)), np.zeros((samples, channels))
    for rows, part in _blocks(samples, positions, channels):
        block = values[rows, part]
        low, high = np.minimum.reduce(block, axis=1), np.maximum.reduce(block, axis=1)
        np.minimum(minima[rows], low, out=minima[rows])
        np.maximum(maxima[rows], high, out=maxima[rows])
        for start in range(0, block.shape[1], _POSITIONS):
            few = block[:, start : start + _POSITIONS]
            sums[rows] += np.add.reduce(few, axis=1)
            squares[rows] += np.einsum("gpc,gpc->gc", few, few)
        _count(name, block, low, high, counter)
    return _Measured(minima, maxima, sums, squares)


def _channels_first(name: str, values: _Floats, counter: HistogramCounter) -> _Measured:
    samples, channels, positions = values.shape
    shape = (samples, channels)
    minima, maxima = np.empty(shape, np.float32), np.empty(shape, np.float32)
    sums, squares = np.empty(shape), np.empty(shape)
    for rows, part in _blocks(samples, channels, positions):
        block = values[rows, part]
        minima[rows, part], maxima[rows, part] = block.min(axis=2), block.max(axis=2)
        _count(name, block, minima[rows, part], maxima[rows, part], counter)
        sums[rows, part] = np.add.reduce(block, axis=2)  # NumPy adds contiguous values pairwise
        squares[rows, part] = np.add.reduce(np.square(block), axis=2)
    return _Measured(minima, maxima, sums, squares)


def _blocks(samples: int, size: int, each: int) -> Iterator[tuple[slice, slice]]:
    """Slices of [samples, size] whose items of `each` values make about `_BLOCK` values, contiguous in memory.

    A sample is cut in the same places whatever the samples beside it.
    """
    step = max(1, _BLOCK // max(each, 1))
    if step >= size:
        together = max(1, _BLOCK // max(size * each, 1))
        for start in range(0, samples, together):
            yield slice(start, start + together), slice(0, size)
        return
    if step > _POSITIONS:
        step -= step % _POSITIONS
    for sample in range(samples):
        for start in range(0, size, step):
            yield slice(sample, sample + 1), slice(start, start + step)


def _count(name: str, block: _Floats, low: _Floats, high: _Floats, counter: HistogramCounter) -> None:
    lowest, highest = float(np.minimum.reduce(low, axis=None)), float(np.maximum.reduce(high, axis=None))
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise NotFiniteError(name)
    counter.add(block.reshape(-1), lowest, highest)


def _folded(by_row: _Measured, groups: int) -> _Measured:
    """[batch * anything, channels] → [groups, channels]."""
    minima, maxima, sums, squares = by_row.minima, by_row.maxima, by_row.sums, by_row.squares
    if len(minima) == groups or sums is None or squares is None:
        return by_row
    shape = (groups, -1, minima.shape[1])
    return _Measured(
        minima.reshape(shape).min(axis=1),
        maxima.reshape(shape).max(axis=1),
        sums.reshape(shape).sum(axis=1),
        squares.reshape(shape).sum(axis=1),
    )
