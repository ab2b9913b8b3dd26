"""Observe once, derive everything: one streaming pass of the float model over the calibration data.

    statistics = observe(model, batches)          # forward passes; memory does not grow with the data
    record = choose(statistics, recipe)           # algorithms.py; no more passes, for every recipe

What is counted and added up does not depend on order (histogram.py, moments.py), so equal samples give equal
statistics however they were batched, threaded or merged, as far as the runtime computes equal activations for them.
"""

from __future__ import annotations

import functools
import queue
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import onnx

from workbench.graph.apart import array_of, kept_aside
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.quantization.accumulate import Accumulator
from workbench.quantization.activations import Array as Array  # "as": importers may take these from here
from workbench.quantization.activations import Feeds as Feeds
from workbench.quantization.activations import Run, activations
from workbench.quantization.activations import parts as parts
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.statistics import Statistics, WeightStatistics, merge_tensors
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
