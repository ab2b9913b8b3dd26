"""Observe once, derive everything: one streaming pass of the float model over the calibration data.

    statistics = observe(model, batches)          # forward passes; memory does not grow with the data
    record = choose(statistics, recipe)           # algorithms.py; milliseconds, for every recipe

Histograms merge exactly (histogram.py), so equal samples give equal statistics however they were batched, threaded or
merged, as far as the runtime computes equal activations for them.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from workbench.canonical import DecodeError, canonical_json, decode, digest, encode
from workbench.errors import CalibrationError
from workbench.graph import Layer, constants, load_graph, quantizable_layers
from workbench.model import Model
from workbench.quantization.histogram import BINS_PER_SIDE, EMPTY, Histogram, histogram_of, merge

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
"""Input name → array of shape [batch, ...]; the same type as `workbench.targets.base.Feeds`."""

ROWS_PER_RUN = 4
"""Samples per forward pass: bounds the activations in memory; more rows are no faster on a CPU."""

RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(value for value in vars(_state).values() if isinstance(value, type) and issubclass(value, Exception)),
    RuntimeError,
    ValueError,
)
"""What ONNX Runtime raises: its classes have no base of their own, its Python layer uses built-in ones."""

_SHAPE_ELEMENTS = 1024
_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorStatistics:
    """One activation tensor.

    Attributes:
        channel_maxima: float32, largest |x| per channel (last axis for MatMul and Gemm, axis 1 for Conv); None for
            tensors that only meet other activations.
    """

    histogram: Histogram
    channel_maxima: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightStatistics:
    """Range of one layer's weight: float32, per output channel. The range per tensor is theirs together."""

    minima: npt.NDArray[np.float32]
    maxima: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Everything a calibration algorithm needs to know about a model and its data.

    Attributes:
        samples: how many samples were seen.
        layers: the model's quantizable layers, in graph order.
        tensors: of every layer's inputs, and of Conv outputs, by tensor name.
        weights: by layer name.
    """

    model_sha256: str
    samples: int
    layers: tuple[Layer, ...]
    tensors: Mapping[str, TensorStatistics]
    weights: Mapping[str, WeightStatistics]

    @property
    def digest(self) -> str:
        """64 hex digits over the whole content; equal statistics have equal digests on every machine."""
        header, arrays = _packed(self)
        hashed = {
            name: [str(a.dtype), list(a.shape), hashlib.sha256(a.tobytes()).hexdigest()] for name, a in arrays.items()
        }
        return digest({"header": header, "arrays": hashed})


def observe(
    model: Model,
    batches: Iterable[Feeds],
    *,
    threads: int = 2,
    report: Callable[[int], None] | None = None,
) -> Statistics:
    """Run the float model over the data once and count what its quantizable layers see.

    Batches with a symbolic batch dimension are run `ROWS_PER_RUN` samples at a time, `threads` of them at once (each
    on one core), so memory depends on neither the batch nor the number of samples. Padding counts as data.

    Args:
        report: receives the number of samples done, after every batch.

    Raises:
        CalibrationError: no batches, nothing to quantize, feeds the model refuses, or NaN or infinity in an
            activation or a weight (names the tensor and the sample, counted from 0 in the order of the batches).
    """
    proto = load_graph(model)
    layers = quantizable_layers(proto)
    if not layers:
        raise CalibrationError(f"{model.path.name} has no layer that INT8 can serve. See `workbench inspect`.")
    weights = _weight_statistics(proto, layers)
    del proto  # the runtime has its own copy of the weights; two are enough
    axes = _observed(layers)
    fed = {spec.name for spec in model.inputs}
    session = open_session(model, [name for name in axes if name not in fed])

    tensors = {name: TensorStatistics(histogram=EMPTY) for name in axes}
    samples = 0
    pending: collections.deque[tuple[int, Future[dict[str, TensorStatistics]]]] = collections.deque()

    def collect() -> None:
        done, future = pending.popleft()
        for name, seen in future.result().items():
            tensors[name] = _merged(tensors[name], seen)
        if report is not None:
            report(done)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            for feeds in batches:
                for part in _parts(model, feeds):
                    rows = _rows(part)
                    pending.append((samples + rows, pool.submit(_observe_run, session, part, axes, samples)))
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
    return Statistics(model_sha256=model.sha256, samples=samples, layers=layers, tensors=tensors, weights=weights)


def merge_statistics(a: Statistics, b: Statistics) -> Statistics:
    """The statistics of both data sets together; exact, associative and commutative.

    Raises:
        ValueError: they belong to different models.
    """
    if a.model_sha256 != b.model_sha256 or a.tensors.keys() != b.tensors.keys():
        raise ValueError(f"statistics of models {a.model_sha256[:12]} and {b.model_sha256[:12]} cannot be merged")
    tensors = {name: _merged(a.tensors[name], b.tensors[name]) for name in a.tensors}
    return replace(a, samples=a.samples + b.samples, tensors=tensors)


def stability(a: Statistics, b: Statistics) -> dict[str, float]:
    """How much the observed ranges of two halves of the data differ, per tensor, largest first.

    The larger difference of the two range ends, as a share of the wider range: 0 is the same range, 0.5 means that
    one half misses half of what the other one saw. Large values ask for more samples, or for a clipping algorithm.
    """
    differences = {}
    for name in a.tensors:
        (low_a, high_a), (low_b, high_b) = observed_range(a, name), observed_range(b, name)
        widest = max(high_a - low_a, high_b - low_b)
        gap = max(abs(low_a - low_b), abs(high_a - high_b))
        differences[name] = gap / widest if widest > 0 else 0.0
    return dict(sorted(differences.items(), key=lambda item: (-item[1], item[0])))


def observed_range(statistics: Statistics, tensor: str) -> tuple[float, float]:
    """Smallest and largest value, both moved to contain zero."""
    histogram = statistics.tensors[tensor].histogram
    return min(histogram.minimum, 0.0), max(histogram.maximum, 0.0)


def save_statistics(statistics: Statistics, path: Path) -> None:
    """Write one `.npz` file, atomically. Equal statistics give equal content."""
    header, arrays = _packed(statistics)
    contents: dict[str, Any] = {"header": np.frombuffer(canonical_json(header).encode(), np.uint8), **arrays}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as stream:
        np.savez_compressed(stream, **contents)
    temporary.replace(path)


def load_statistics(path: Path) -> Statistics:
    """Read what `save_statistics` wrote.

    Raises:
        CalibrationError: the file is damaged, or of another version.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        return _unpacked(json.loads(arrays.pop("header").tobytes()), arrays)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, ValueError) as error:
        raise CalibrationError(
            f"{path} does not hold statistics of version {_FORMAT} ({error}). Delete it; they are observed again."
        ) from error


def open_session(model: Model, extra_outputs: Iterable[str]) -> onnxruntime.InferenceSession:
    """The float model in ONNX Runtime on one thread per run, with more of its float32 tensors as outputs.

    Raises:
        CalibrationError: the runtime refuses the model.
    """
    more = onnx.ModelProto()
    known = {spec.name for spec in model.outputs}
    names = [name for name in extra_outputs if name not in known]
    more.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    # Serialized protobuf messages merge when they are joined: the outputs are added without a second copy in memory.
    return session_of(_self_sufficient(model) + more.SerializeToString(), model)


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
            axes[layer.activation] = 1 if layer.op_type == "Conv" else -1
        if layer.op_type == "Conv":
            axes.setdefault(layer.output, None)
    return axes


def _weight_statistics(proto: onnx.ModelProto, layers: tuple[Layer, ...]) -> dict[str, WeightStatistics]:
    known = constants(proto)
    found = {}
    for layer in layers:
        if layer.weight is None or layer.output_axis is None:
            continue
        values = numpy_helper.to_array(known[layer.weight])
        others = tuple(axis for axis in range(values.ndim) if axis != layer.output_axis)
        minima, maxima = values.min(axis=others), values.max(axis=others)
        if not (np.isfinite(minima).all() and np.isfinite(maxima).all()):
            raise CalibrationError(f"weight {layer.weight!r} of layer {layer.name!r} holds NaN or infinity.")
        found[layer.name] = WeightStatistics(minima=minima, maxima=maxima)
    return found


def _rows(feeds: Feeds) -> int:
    first = next(iter(feeds.values()), None)
    return 1 if first is None or first.ndim == 0 else int(first.shape[0])


def _parts(model: Model, feeds: Feeds) -> Iterator[Feeds]:
    """A batch in pieces of `ROWS_PER_RUN`, where the model takes any batch size."""
    rows = _rows(feeds)
    sizes = {array.shape[0] if array.ndim else None for array in feeds.values()}
    fixed = any(not spec.shape or isinstance(spec.shape[0], int) for spec in model.inputs)
    if fixed or sizes != {rows}:
        yield feeds
        return
    for start in range(0, rows, ROWS_PER_RUN):
        yield {name: array[start : start + ROWS_PER_RUN] for name, array in feeds.items()}


def _observe_run(
    session: onnxruntime.InferenceSession, feeds: Feeds, axes: Mapping[str, int | None], first_sample: int
) -> dict[str, TensorStatistics]:
    wanted = [name for name in axes if name not in feeds]
    try:
        outputs = session.run(wanted or None, dict(feeds))[: len(wanted)]
    except RUNTIME_ERRORS as error:
        raise CalibrationError(f"the float model failed at calibration sample {first_sample}: {error}") from error
    seen = {}
    arrays = itertools.chain(((n, feeds[n]) for n in axes if n in feeds), zip(wanted, outputs, strict=True))
    for name, values in arrays:
        if values.dtype != np.float32:
            raise CalibrationError(f"tensor {name!r} is {values.dtype}; only float32 activations can be calibrated.")
        seen[name] = _tensor_statistics(name, values, axes[name], first_sample, _rows(feeds))
    return seen


def _tensor_statistics(
    name: str, values: npt.NDArray[np.float32], axis: int | None, first_sample: int, rows: int
) -> TensorStatistics:
    if values.size == 0:
        return TensorStatistics(histogram=EMPTY)
    channel_maxima = None
    if axis is None or values.ndim < 2:
        low, high = float(values.min()), float(values.max())
    else:
        others = tuple(a for a in range(values.ndim) if a != axis % values.ndim)
        minima, maxima = values.min(axis=others), values.max(axis=others)
        channel_maxima = np.maximum(np.abs(minima), np.abs(maxima))
        low, high = float(minima.min()), float(maxima.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise CalibrationError(_not_finite(name, values, first_sample, rows))
    histogram = histogram_of(values, minimum=low, maximum=high)
    return TensorStatistics(histogram=histogram, channel_maxima=channel_maxima)


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


def _merged(a: TensorStatistics, b: TensorStatistics) -> TensorStatistics:
    maxima = [m for m in (a.channel_maxima, b.channel_maxima) if m is not None]
    return TensorStatistics(
        histogram=merge(a.histogram, b.histogram),
        channel_maxima=np.maximum.reduce(maxima) if maxima else None,
    )


# --- stored form ---------------------------------------------------------------------------------------------------


def _packed(statistics: Statistics) -> tuple[dict[str, Any], dict[str, Array]]:
    """A JSON header and a few arrays, every mapping in name order."""
    tensors, weights = sorted(statistics.tensors.items()), sorted(statistics.weights.items())
    channels = [t.channel_maxima for _, t in tensors if t.channel_maxima is not None]
    header = {
        "version": _FORMAT,
        "model_sha256": statistics.model_sha256,
        "samples": statistics.samples,
        "layers": encode(statistics.layers),
        "tensors": [
            {
                "name": name,
                "exponent": t.histogram.exponent,
                "zeros": t.histogram.zeros,
                "channels": None if t.channel_maxima is None else int(t.channel_maxima.size),
            }
            for name, t in tensors
        ],
        "weights": [{"layer": name, "channels": int(w.minima.size)} for name, w in weights],
    }
    arrays: dict[str, Array] = {
        "counts": np.stack([t.histogram.counts for _, t in tensors]),
        "ranges": np.array([(t.histogram.minimum, t.histogram.maximum) for _, t in tensors], np.float64),
        "channel_maxima": np.concatenate([np.zeros(0, np.float32), *channels]),
        "weight_ranges": np.concatenate(
            [np.zeros((2, 0), np.float32), *(np.stack((w.minima, w.maxima)) for _, w in weights)], axis=1
        ),
    }
    return header, arrays


def _unpacked(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Statistics:
    if header["version"] != _FORMAT:
        raise ValueError(f"version {header['version']!r}")
    counts, ranges = arrays["counts"], arrays["ranges"]
    if counts.shape != (len(header["tensors"]), 2 * BINS_PER_SIDE) or ranges.shape != (len(counts), 2):
        raise DecodeError(f"counts of shape {counts.shape} do not fit {len(header['tensors'])} tensors")
    tensors, offset = {}, 0
    for item, row, (low, high) in zip(header["tensors"], counts, ranges, strict=True):
        maxima = None
        if item["channels"] is not None:
            maxima = _slice(arrays["channel_maxima"], offset, item["channels"])
            offset += item["channels"]
        histogram = Histogram(
            exponent=item["exponent"], counts=row.copy(), zeros=item["zeros"], minimum=float(low), maximum=float(high)
        )
        tensors[item["name"]] = TensorStatistics(histogram=histogram, channel_maxima=maxima)
    weights, offset = {}, 0
    for item in header["weights"]:
        minima, maxima = (_slice(row, offset, item["channels"]) for row in arrays["weight_ranges"])
        weights[item["layer"]] = WeightStatistics(minima=minima, maxima=maxima)
        offset += item["channels"]
    return Statistics(
        model_sha256=header["model_sha256"],
        samples=header["samples"],
        layers=decode(tuple[Layer, ...], header["layers"], "layers"),
        tensors=tensors,
        weights=weights,
    )


def _slice(array: Array, offset: int, size: int) -> Array:
    part = array[offset : offset + size]
    if part.size != size:
        raise DecodeError(f"{array.size} channels stored, {offset + size} expected")
    return part.copy()
