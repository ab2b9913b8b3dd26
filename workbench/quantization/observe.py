"""Observe once, derive everything: one streaming pass of the float model over the calibration data.

    statistics = observe(model, batches)          # forward passes; memory does not grow with the data
    record = choose(statistics, recipe)           # algorithms.py; no more passes, for every recipe

What is counted and added up does not depend on order (histogram.py, moments.py), so equal samples give equal
statistics however they were batched, threaded or merged, as far as the runtime computes equal activations for them.
"""

from __future__ import annotations

import collections
import functools
import math
import queue
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.quantization.accumulate import Accumulator, NotFiniteError
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.surgery import MAX_PROTO_BYTES
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

RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(value for value in vars(_state).values() if isinstance(value, type) and issubclass(value, Exception)),
    RuntimeError,
    ValueError,
)
"""What ONNX Runtime raises: its classes have no base of their own, its Python layer uses built-in ones."""

_SHAPE_ELEMENTS = 1024
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
    payload = _with_outputs(model, extra, proto)
    session = session_of(payload, model)
    del payload

    idle: queue.SimpleQueue[Accumulator] = queue.SimpleQueue()
    for _ in range(threads):
        idle.put(Accumulator(axes))

    def run(part: Feeds, first_sample: int) -> None:
        accumulator = idle.get()
        try:
            _observe_run(session, part, tuple(axes), accumulator, first_sample)
        finally:
            idle.put(accumulator)

    samples = 0
    pending: collections.deque[tuple[int, Future[None]]] = collections.deque()

    def collect() -> None:
        done, future = pending.popleft()
        future.result()
        if report is not None:
            report(done)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            for feeds in batches:
                for part in parts(model, feeds):
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


def open_session(
    model: Model, extra_outputs: Iterable[str], proto: onnx.ModelProto | None = None
) -> onnxruntime.InferenceSession:
    """The float model in ONNX Runtime on one thread per run, with more of its float32 tensors as outputs.

    Args:
        proto: a graph with the model's inputs and outputs to run in its place, weights included.

    Raises:
        CalibrationError: the runtime refuses the model.
    """
    return session_of(_with_outputs(model, extra_outputs, proto), model)


def session_of(payload: bytes, model: Model) -> onnxruntime.InferenceSession:
    """A session on a serialized variant of `model`, whose external data it may refer to.

    Raises:
        CalibrationError: the runtime refuses the model.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if model.external_files:
        folder = str(model.path.parent.resolve())
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    try:
        return onnxruntime.InferenceSession(payload, options, providers=["CPUExecutionProvider"])
    except RUNTIME_ERRORS as error:
        raise CalibrationError(f"ONNX Runtime refuses {model.path.name}: {error}") from error


def _with_outputs(model: Model, extra_outputs: Iterable[str], proto: onnx.ModelProto | None) -> bytes:
    """The model's file, or `proto` in its place, with more of its float32 tensors as outputs."""
    if proto is not None and proto.ByteSize() > MAX_PROTO_BYTES:
        raise CalibrationError(
            f"{model.path.name} has {proto.ByteSize()} bytes once its graph is normalized; "
            f"{MAX_PROTO_BYTES} can be observed. Export it in the form that needs no normalization."
        )
    more = onnx.ModelProto()
    known = {spec.name for spec in model.outputs}
    names = [name for name in extra_outputs if name not in known]
    more.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    payload = _self_sufficient(model) if proto is None else bytes(proto.SerializeToString())
    # Serialized protobuf messages merge when they are joined; extending the graph itself would change the caller's.
    joined: bytes = payload + more.SerializeToString()
    return joined


def _self_sufficient(model: Model) -> bytes:
    """The file's bytes, with small external tensors taken in: ONNX Runtime needs shapes among them before it reads
    external data of a model that comes from memory (1.31.1)."""
    payload = model.path.read_bytes()
    if not model.external_files:
        return payload
    proto = onnx.ModelProto.FromString(payload)
    for tensor in proto.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL and math.prod(tensor.dims) <= _SHAPE_ELEMENTS:
            load_external_data_for_tensor(tensor, str(model.path.parent))
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
    return bytes(proto.SerializeToString())


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
        rows = weight_rows(numpy_helper.to_array(known[layer.weight]), layer, per_channel=True)
        minima, maxima = rows.min(axis=1), rows.max(axis=1)
        if not (np.isfinite(minima).all() and np.isfinite(maxima).all()):
            raise CalibrationError(f"weight {layer.weight!r} of layer {layer.name!r} holds NaN or infinity.")
        found[layer.name] = WeightStatistics(minima=minima, maxima=maxima)
    return found


def _rows(feeds: Feeds) -> int:
    first = next(iter(feeds.values()), None)
    return 1 if first is None or first.ndim == 0 else int(first.shape[0])


def parts(model: Model, feeds: Feeds) -> Iterator[Feeds]:
    """A batch in pieces of a few samples (`ROWS_PER_RUN`), where the model takes any batch size."""
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
    for start in range(0, rows, step):
        yield {name: array[start : start + step] for name, array in feeds.items()}


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
