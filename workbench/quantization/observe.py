"""Observe once, derive everything: one streaming pass of the float model over the calibration data.

    statistics = observe(model, batches)          # forward passes; memory does not grow with the data
    record = choose(statistics, recipe, graph)    # algorithms.py; no more passes, for every recipe

What is counted and added up does not depend on order (histogram.py, statistics.py), so equal samples give equal
statistics however they were batched, threaded or merged, as far as the runtime computes equal activations for them.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator

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
from workbench.quantization.histogram import HistogramCounter
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.statistics import (
    NOTHING,
    ChannelStatistics,
    Doubles,
    Range,
    Statistics,
    TensorStatistics,
)
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
        _check_weights(graph, layers)
        del graph  # a model's weights are large: no more copies of them than needed
        seen = {name: Accumulator(name, axis) for name, axis in _observed(layers).items()}

        def add(run: Run) -> None:
            halves = _halves(run)
            for name, accumulator in seen.items():
                accumulator.add(run.values[name], halves)

        samples = 0
        # Normalization keeps the names and values of the tensors that are left, so the file itself can be run.
        for run in activations(model, proto, list(seen), batches, threads=threads, work=add):
            samples = run.first_sample + run.samples
    tensors = {name: accumulator.statistics() for name, accumulator in seen.items()}
    return Statistics(model_sha256=model.sha256, samples=samples, layers=layers, tensors=tensors, variant=variant)


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


def _check_weights(proto: onnx.ModelProto, layers: tuple[Layer, ...]) -> None:
    known = constants(proto)
    for layer in layers:
        if layer.weight is not None:
            values = array_of(known[layer.weight])
            if values.size and not np.isfinite([values.min(), values.max()]).all():
                raise CalibrationError(f"weight {layer.weight!r} of layer {layer.name!r} holds NaN or infinity.")


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


_Floats = npt.NDArray[np.float32]

_BLOCK = 131_072
"""Values read at a time: they stay in the cache between their extremes, their sums and their counting."""

_POSITIONS = 64
"""Positions added up in float32 before float64 takes over."""


# A pair (sum, error) stands for `sum + error` with about 106 bits (D. E. Knuth, "The Art of Computer Programming",
# vol. 2, §4.2.2, theorem B). Terms of one tensor rarely span more bits than that, so its rounded sum is the same number
# in any order. That is no proof: terms of both signs that cancel over more than 100 bits may still differ.

Pair = tuple[Doubles, Doubles]


def add_rows(pair: Pair, rows: Doubles) -> None:
    """Add every row of float64[rows, n] to the (sum, error) of n elements, in place.

    The errors are summed up plainly (A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher
    Summen", ZAMM 54, 1974). `rounded_once` takes them into the sum.
    """
    sums, errors = pair
    for row in rows:
        total = sums + row
        of_row = total - sums
        errors += row - of_row
        errors += sums - (total - of_row)
        sums[:] = total


def rounded_once(pair: Pair) -> Pair:
    """The (sum, error) with the sum the float64 nearest to the total."""
    high, low = pair
    for _ in range(2):
        total = high + low
        high, low = total, low - (total - high)
    return high, low


class Accumulator:
    """Statistics of one observed tensor; one thread at a time adds to it, the others wait.

    Args:
        axis: of its channels: -1 (the last), 1, or None where channels mean nothing.
    """

    def __init__(self, name: str, axis: int | None) -> None:
        self._name, self._axis, self._lock = name, axis, threading.Lock()
        self._counter = HistogramCounter()
        self._samples = self._rows = 0
        self._halves: list[Range] = [NOTHING, NOTHING]
        self._added: Pair | None = None
        self._minima = self._maxima = np.zeros(0, np.float32)

    def add(self, values: _Floats, halves: npt.NDArray[np.bool_]) -> None:
        """Take one run's values.

        Args:
            values: float32, [batch, ...] or [batch * anything, ...]. One without a batch dimension counts as seen by
                every sample of its run.
            halves: bool[batch], which half of the data each sample belongs to.

        Raises:
            NotFiniteError: NaN or infinity. What was added so far is of no use then.
        """
        if values.size:
            with self._lock:
                self._add(values, halves)

    def statistics(self) -> TensorStatistics:
        """What has been seen so far."""
        if self._added is None:
            return TensorStatistics(histogram=self._counter.histogram())
        sums, errors = rounded_once(self._added)
        middle = 2 + (sums.size - 2) // 2
        channels = ChannelStatistics(
            minima=self._minima + np.float32(0),  # -0.0 and 0.0 must be one stored form
            maxima=self._maxima + np.float32(0),
            sums=sums[2:middle],
            squares=sums[middle:],
            rows=self._rows,
            sums_error=errors[2:middle],
            squares_error=errors[middle:],
        )
        first, second = ((low + 0.0, high + 0.0) for low, high in self._halves)
        return TensorStatistics(
            histogram=self._counter.histogram(),
            channels=channels if self._rows else None,
            samples=self._samples,
            minimum_sum=(float(sums[0]), float(errors[0])),
            maximum_sum=(float(sums[1]), float(errors[1])),
            halves=(first, second),
        )

    def _add(self, values: _Floats, halves: npt.NDArray[np.bool_]) -> None:
        samples = len(halves)
        minima, maxima, sums, squares = self._measure(values, samples)
        channels = sums.shape[1]
        # one row a sample of what adds up: its extremes, and its channels' sums
        terms = np.zeros((samples, 2 + 2 * channels))
        terms[:, 0], terms[:, 1] = minima.min(axis=1), maxima.max(axis=1)
        groups = len(sums)  # 1 without a batch dimension: its values count once
        terms[:groups, 2 : 2 + channels], terms[:groups, 2 + channels :] = sums, squares
        if self._added is None:
            self._added = (np.zeros(terms.shape[1]), np.zeros(terms.shape[1]))
            self._minima, self._maxima = minima[0], maxima[0]
        add_rows(self._added, terms)
        self._samples += samples
        self._minima = np.minimum(self._minima, minima.min(axis=0))
        self._maxima = np.maximum(self._maxima, maxima.max(axis=0))
        if channels:
            self._rows += values.size // channels
        for half in (0, 1):
            if (members := terms[halves == half]).size:
                low, high = self._halves[half]
                self._halves[half] = (min(low, float(members[:, 0].min())), max(high, float(members[:, 1].max())))

    def _measure(self, values: _Floats, samples: int) -> tuple[_Floats, _Floats, Doubles, Doubles]:
        """Minima, maxima, sums and sums of squares per sample and channel, [samples, channels]; one sample without a
        batch. Where channels mean nothing the extremes have one, and the sums none."""
        groups = samples if values.ndim and values.shape[0] % samples == 0 else 1
        by_channel = self._axis is not None and values.ndim > 1
        if first := by_channel and self._axis == 1:
            cut = values.reshape(len(values), values.shape[1], -1)
        else:
            cut = values.reshape(groups, -1, values.shape[-1] if by_channel else 1)
        shape = (len(cut), cut.shape[1 if first else 2])
        minima, maxima = np.full(shape, np.inf, np.float32), np.full(shape, -np.inf, np.float32)
        sums, squares = (np.zeros(shape if by_channel else (len(cut), 0)) for _ in range(2))
        for rows, part in _blocks(*cut.shape):
            block = cut[rows, part]
            at = (rows, part) if first else rows
            low, high = block.min(axis=2 if first else 1), block.max(axis=2 if first else 1)
            try:
                self._counter.add(block.reshape(-1), float(low.min()), float(high.max()))
            except ValueError as error:
                raise NotFiniteError(self._name) from error
            minima[at], maxima[at] = np.minimum(minima[at], low), np.maximum(maxima[at], high)
            if first:
                sums[at] = np.add.reduce(block, axis=2)  # NumPy adds contiguous values pairwise
                squares[at] = np.add.reduce(np.square(block), axis=2)
            elif by_channel:
                for start in range(0, block.shape[1], _POSITIONS):
                    few = block[:, start : start + _POSITIONS]
                    sums[at] += np.add.reduce(few, axis=1)
                    squares[at] += np.einsum("gpc,gpc->gc", few, few)
        if len(cut) == groups:
            return minima, maxima, sums, squares
        rows_of = (groups, -1, shape[1])
        extremes = minima.reshape(rows_of).min(axis=1), maxima.reshape(rows_of).max(axis=1)
        return *extremes, sums.reshape(rows_of).sum(axis=1), squares.reshape(rows_of).sum(axis=1)


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
