"""Observe once, derive everything: one streaming pass of the float model over the calibration data.

    statistics = observe(model, batches)          # forward passes; memory does not grow with the data
    record = choose(statistics, recipe)           # algorithms.py; no more passes, for every recipe

What is counted and added up does not depend on order (histogram.py, moments.py), so equal samples give equal
statistics however they were batched, threaded or merged, as far as the runtime computes equal activations for them.
"""

from __future__ import annotations

import collections
import functools
import queue
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from workbench.graph.apart import array_of, is_large, kept_aside
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.accumulate import Accumulator, NotFiniteError
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.sessions import open_session
from workbench.quantization.statistics import Statistics, WeightStatistics, merge_tensors
from workbench.quantization.weights import weight_rows
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
"""Input name → array of shape [batch, ...]; the same type as `workbench.targets.base.Feeds`."""

ROWS_PER_RUN, VALUES_PER_RUN = 4, 256
"""A forward pass takes 4 samples, or more where that many have fewer than 256 values (such as short texts: more of
them at once share the cost of a run). Bounds the activations in memory; more rows are no faster on a CPU."""

RUN_BYTES = 64 << 20
"""Of a large model's tensors in one run. Two runs are made ahead and held besides."""

_CHANNELS_FIRST = {"Conv", "ConvTranspose", "AveragePool"}


def observe(
    model: Model,
    batches: Iterable[Feeds],
    *,
    proto: onnx.ModelProto | None = None,
    variant: str = "",
    threads: int = 2,
    report: Callable[[int], None] | None = None,
) -> Statistics:
    """Run the float model over the data once and measure what its quantizable layers see.

    Batches with a symbolic batch dimension are run a few samples at a time, `threads` runs at once (each
    on one core), so memory depends on neither the batch nor the number of samples. Padding counts as data.

    Args:
        proto: the graph to observe in place of the model's own, normalized (normalize.py); with the model's inputs.
        variant: names what `proto` changes; part of the statistics and their digest.
        report: receives the number of samples done, after every run.

    Raises:
        CalibrationError: no batches, nothing to quantize, feeds the model refuses, or NaN or infinity in an
            activation or a weight (names the tensor and the sample, counted from 0 in the order of the batches).
    """
    with kept_aside(model.size_bytes):
        return _observed_all(model, batches, proto, variant, threads, report)


def _observed_all(
    model: Model,
    batches: Iterable[Feeds],
    proto: onnx.ModelProto | None,
    variant: str,
    threads: int,
    report: Callable[[int], None] | None,
) -> Statistics:
    graph = normalized(load_graph(model)) if proto is None else proto
    layers = quantizable_layers(graph)
    if not layers:
        raise CalibrationError(f"{model.path.name} has no layer that INT8 can serve. See `workbench inspect`.")
    weights = _weight_statistics(graph, layers)
    axes = _observed(layers)
    fed = {spec.name for spec in model.inputs}
    extra = [name for name in axes if name not in fed]
    del graph  # a model's weights are large: no more copies of them than needed
    # Normalization keeps the names and values of the tensors that are left, so the file itself can be run.
    session = open_session(model, extra, proto)

    idle: queue.SimpleQueue[Accumulator] = queue.SimpleQueue()
    for _ in range(threads):
        idle.put(Accumulator(axes))

    def run(part: Feeds, first_sample: int) -> None:
        accumulator = idle.get()
        try:
            _observe_run(session, part, tuple(axes), accumulator, first_sample)
        finally:
            idle.put(accumulator)

    samples, most_rows = 0, None
    pending: collections.deque[tuple[int, Future[None]]] = collections.deque()

    def collect() -> None:
        done, future = pending.popleft()
        future.result()
        if report is not None:
            report(done)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            for feeds in batches:
                if samples == 0:
                    most_rows = rows_that_fit(model, session, extra, feeds)
                for part in parts(model, feeds, most_rows=most_rows):
                    rows = _rows(part)
                    pending.append((samples + rows, pool.submit(run, part, samples)))
                    samples += rows
                    if len(pending) > threads:
                        collect()
            while pending:
                collect()
        finally:
            for _, future in pending:
                future.cancel()
    if samples == 0:
        raise CalibrationError("there are no calibration samples. Check the dataset's `calibration` file.")
    finished = [idle.get().statistics() for _ in range(threads)]
    tensors = {name: functools.reduce(merge_tensors, (part[name] for part in finished)) for name in axes}
    return Statistics(
        model_sha256=model.sha256, samples=samples, layers=layers, tensors=tensors, weights=weights, variant=variant
    )


# --- one run -------------------------------------------------------------------------------------------------------


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


def _rows(feeds: Feeds) -> int:
    first = next(iter(feeds.values()), None)
    return 1 if first is None or first.ndim == 0 else int(first.shape[0])


def parts(model: Model, feeds: Feeds, *, most_rows: int | None = None) -> Iterator[Feeds]:
    """A batch in pieces of a few samples (`ROWS_PER_RUN`), where the model takes any batch size.

    Args:
        most_rows: samples whose activations fit into memory, from `rows_that_fit`.
    """
    rows = _rows(feeds)
    sizes = {array.shape[0] if array.ndim else None for array in feeds.values()}
    fixed = any(not spec.shape or isinstance(spec.shape[0], int) for spec in model.inputs)
    if fixed or sizes != {rows}:
        yield feeds
        return
    if rows == 0:
        return
    values = max(array.size // rows for array in feeds.values())
    step = max(ROWS_PER_RUN, VALUES_PER_RUN // max(values, 1))
    if most_rows is not None:
        step = min(step, most_rows)
    for start in range(0, rows, step):
        yield {name: array[start : start + step] for name, array in feeds.items()}


def rows_that_fit(
    model: Model, session: onnxruntime.InferenceSession, wanted: Sequence[str], feeds: Feeds
) -> int | None:
    """How many samples like the batch's first one have tensors of `RUN_BYTES` in all: one run of it tells.

    None for models that are small themselves, whose activations are not worth a run.
    """
    if not is_large(model.size_bytes) or not wanted:
        return None
    one = next(parts(model, feeds, most_rows=1), feeds)
    try:
        held: int = sum(array.nbytes for array in session.run(list(wanted), dict(one)))
    except RUNTIME_ERRORS:
        return None  # the run that counts says so, with the sample
    return max(1, RUN_BYTES // max(held // max(_rows(one), 1), 1))


def _observe_run(
    session: onnxruntime.InferenceSession,
    feeds: Feeds,
    names: tuple[str, ...],
    accumulator: Accumulator,
    first_sample: int,
) -> None:
    wanted = [name for name in names if name not in feeds]
    try:
        outputs = session.run(wanted or None, dict(feeds))[: len(wanted)]
    except RUNTIME_ERRORS as error:
        raise CalibrationError(f"the float model failed at calibration sample {first_sample}: {error}") from error
    seen = {**feeds, **dict(zip(wanted, outputs, strict=True))}
    for name in names:
        if seen[name].dtype != np.float32:
            raise CalibrationError(
                f"tensor {name!r} is {seen[name].dtype}; only float32 activations can be calibrated."
            )
    try:
        accumulator.add([seen[name] for name in names], _halves(feeds))
    except NotFiniteError as error:
        message = _not_finite(error.tensor, seen[error.tensor], first_sample, _rows(feeds))
        raise CalibrationError(message) from error


def _halves(feeds: Feeds) -> npt.NDArray[np.bool_]:
    """bool[batch]: the half each sample belongs to, by a check sum of what is fed for it.

    Position in the stream would be simpler, and would make the statistics depend on the order of the samples.
    """
    rows = _rows(feeds)
    checks = [0] * rows
    for _, array in sorted(feeds.items()):
        for row in range(rows):
            sample = array[row] if array.ndim and array.shape[0] == rows else array
            checks[row] = zlib.crc32(np.ascontiguousarray(sample).data, checks[row])
    return np.array([check & 1 for check in checks], np.bool_)


def _not_finite(name: str, values: npt.NDArray[np.float32], first_sample: int, rows: int) -> str:
    position = np.argwhere(~np.isfinite(values))[0]
    value = float(values[tuple(position)])
    leading = values.shape[0] if values.ndim else 1
    sample = f"sample {first_sample}"
    if leading % rows == 0:  # [batch, ...], or batch and positions in one dimension
        sample = f"sample {first_sample + int(position[0]) * rows // leading}"
    elif rows > 1:
        sample = f"one of samples {first_sample} to {first_sample + rows - 1}"
    return f"activation {name!r} holds {value} at {sample}. Look at that sample, or at the float model with it."
