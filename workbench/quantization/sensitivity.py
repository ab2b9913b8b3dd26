"""Which layers suffer most from INT8: quantize one layer, or one group of layers, and look at the model's output.

All variants run in one session. Every quantizable node becomes an `If` on its place in a vector of booleans that is
an extra graph input: layers whose place is true compute with fake-quantized operands, all others with the float ones,
and only the branch taken costs time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper

from workbench.graph.apart import array_of, kept_aside, refers_apart, tensor_of
from workbench.graph.nodes import attributes_of, copied, replace_nodes
from workbench.graph.read import constants, load_graph
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.algorithms import choose
from workbench.quantization.histogram import expected_error
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.observe import Array, Feeds
from workbench.quantization.recipe import ModelRecipe
from workbench.quantization.record import ActivationScale, LayerRecord
from workbench.quantization.sessions import open_session
from workbench.quantization.statistics import Statistics
from workbench.quantization.weights import integers_of, rounded_weight, scales_along
from workbench.values.candidate import SensitivityMetric
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

BEST_SQNR_DB = 200.0
"""Stands for every smaller error, none included."""

_SELECTOR = "workbench.quantized_layers"
_THREADS = 2
_MIN_OPSET = 10  # QuantizeLinear
_NUMBERS = frozenset(
    f"tensor({kind})" for kind in ("float", "float16", "double", "bool", "int8", "uint8", "int32", "int64")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What quantizing one unit, a layer or a group, and nothing else does to the model's output.

    Attributes:
        sqnr_db: 10·log10(Σ y² / Σ (y_int8 - y)²) over all samples; averaged as noise shares over float outputs.
            Low is sensitive.
        cosine: of y and y_int8 over all samples, averaged over float outputs. Low is sensitive.
        kl: mean KL(softmax(y) ‖ softmax(y_int8)) in nats over the last axis of the output called 'logits'; None
            without such an output. High is sensitive.
        first_order_db: estimated from statistics alone, at the unit's own output (`_noise_shares`). Low is sensitive.
    """

    unit: str
    layers: tuple[str, ...]
    sqnr_db: float
    cosine: float
    kl: float | None
    first_order_db: float


def measure_sensitivity(
    model: Model,
    statistics: Statistics,
    recipe: ModelRecipe,
    batches: Iterable[Feeds],
    units: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Sensitivity, ...]:
    """Every unit quantized alone, in the order of `units`.

    Costs one forward pass per unit and sample: a few dozen samples rank well. The recipe is taken without balancing,
    bias correction and learned rounding, which ranks layers for recipes with them too [inferred].

    Args:
        units: name → layers that the recipe quantizes; None takes every such layer as a unit of its own.

    Raises:
        CalibrationError: no batches, or the runtime refuses the feeds or the rewritten model.
        ValueError: a unit names a layer that the recipe does not quantize.
    """
    if model.opset < _MIN_OPSET:
        raise CalibrationError(f"{model.path.name} has opset {model.opset}; ranking needs {_MIN_OPSET} or later.")
    with kept_aside(model.size_bytes):
        proto = normalized(load_graph(model))
        layers = choose(statistics, recipe, proto).layers
        places = {layer.layer: number for number, layer in enumerate(layers)}
        units = {name: (name,) for name in places} if units is None else units
        if unknown := {layer for names in units.values() for layer in names} - places.keys():
            raise ValueError(f"{min(unknown)!r} is no layer that the recipe quantizes")
        estimates = _noise_shares(statistics, layers, proto)
        session = open_session(model, (), _switchable(proto, layers))
        outputs = [output.name for output in session.get_outputs() if output.type in _NUMBERS]
        nothing = np.zeros(len(layers), np.bool_)
        switches = [np.isin(range(len(layers)), [places[name] for name in names]) for names in units.values()]
        totals = [_Difference(outputs) for _ in units]
        samples = False
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            for feeds in batches:
                samples = True
                expected = _run(session, outputs, feeds, nothing)
                variants = pool.map(lambda switch, fed=feeds: _run(session, outputs, fed, switch), switches)
                for total, got in zip(totals, variants, strict=True):
                    total.add(expected, got)
        if not samples:
            raise CalibrationError("there are no samples to rank layers with. Check the dataset's `calibration` file.")
        return tuple(
            Sensitivity(
                unit=unit,
                layers=tuple(names),
                sqnr_db=total.sqnr_db(),
                cosine=total.cosine(),
                kl=total.kl(),
                first_order_db=_decibels(sum(estimates[name] for name in names)),
            )
            for (unit, names), total in zip(units.items(), totals, strict=True)
        )


def ranked(sensitivities: Sequence[Sensitivity], metric: SensitivityMetric) -> tuple[Sensitivity, ...]:
    """Most sensitive first; what changes nothing by itself, as single layers often do before whole numbers, stands in
    the order of the first-order estimate, and equals stay in theirs.

    Raises:
        CalibrationError: the metric is 'kl' and the model has no output called 'logits'.
    """
    if metric == "kl" and any(item.kl is None for item in sensitivities):
        raise CalibrationError("ranking by kl needs an output called 'logits'. Rank by sqnr, or rename the output.")
    keys = {
        "sqnr": lambda item: item.sqnr_db,
        "cosine": lambda item: item.cosine,
        "kl": lambda item: -item.kl,
        "first_order": lambda item: item.first_order_db,
    }
    return tuple(sorted(sensitivities, key=lambda item: (keys[metric](item), item.first_order_db)))


def _noise_shares(statistics: Statistics, records: Sequence[LayerRecord], proto: onnx.ModelProto) -> dict[str, float]:
    """Estimated noise over signal at every quantized layer's own output, from statistics and weights alone.

    With channels taken as uncorrelated and rounding errors as independent of the values, the noise share is

        (Σ_c E[x_c²]·Σ_o Δw_oc² + E[Δx²]·Σ_oc w_oc²) / Σ_c E[x_c²]·Σ_o w_oc²

    for a weight w with rounding errors Δw, and E[Δa²]/E[a²] + E[Δb²]/E[b²] for a product of two activations; E[Δx²]
    is `expected_error`. It knows nothing of how far an error travels: cheap, and coarser than the measured metrics.
    """
    layers = {layer.name: layer for layer in statistics.layers}
    known = constants(proto)
    shares = {}
    for record in records:
        power, rounding = _power_and_noise(statistics, record.activation)
        if record.weight is None:
            other, other_noise = (1.0, 0.0) if record.second is None else _power_and_noise(statistics, record.second)
            shares[record.layer] = _ratio(rounding, power) + _ratio(other_noise, other)
            continue
        layer = layers[record.layer]
        assert layer.weight is not None
        values = array_of(known[layer.weight])
        errors = rounded_weight(values, record.weight, layer) - values
        channels = statistics.tensors[record.activation.tensor].channels
        powers: npt.NDArray[np.float64] = np.full(1, power)  # of grouped convolutions the mean over the channels
        if channels is not None and channels.rows and layer.groups == 1:
            powers = channels.squares / channels.rows
        kept = 1 if layer.op_type == "Conv" or layer.transposed else 0
        others = tuple(axis for axis in range(values.ndim) if axis != kept % values.ndim)
        signal, noise = (np.sum(np.square(each, dtype=np.float64), axis=others) for each in (values, errors))
        total = float(np.sum(noise * powers)) + rounding * float(np.sum(np.square(values)))
        shares[record.layer] = _ratio(total, float(np.sum(signal * powers)))
    return shares


def _ratio(noise: float, signal: float) -> float:
    return noise / signal if signal > 0 else 0.0


def _power_and_noise(statistics: Statistics, scale: ActivationScale) -> tuple[float, float]:
    """E[x²] and E[Δx²] of a tensor, from its histogram: the error at one step over everything is the power."""
    histogram = statistics.tensors[scale.tensor].histogram
    nothing_kept = max(-histogram.minimum, histogram.maximum, 1e-30) * 1e6
    return expected_error(histogram, nothing_kept, 0), expected_error(histogram, scale.scale, scale.zero_point)


def _decibels(noise_share: float) -> float:
    smallest = 10 ** (-BEST_SQNR_DB / 10)
    return -10 * math.log10(max(noise_share, smallest)) + 0.0


def _run(
    session: onnxruntime.InferenceSession, names: Sequence[str], feeds: Feeds, switch: npt.NDArray[np.bool_]
) -> list[Array]:
    try:
        outputs: list[Array] = session.run(list(names), {**feeds, _SELECTOR: switch})
    except RUNTIME_ERRORS as error:
        places = np.flatnonzero(switch).tolist()
        raise CalibrationError(f"the model with layers {places} quantized failed: {error}") from error
    return outputs


class _Difference:
    """Running sums over the samples, per float output."""

    def __init__(self, names: Sequence[str]) -> None:
        self.logits = names.index("logits") if "logits" in names else None
        self.signal = np.zeros(len(names))
        self.other = np.zeros(len(names))
        self.noise = np.zeros(len(names))
        self.divergence, self.distributions = 0.0, 0

    def add(self, expected: Sequence[Array], got: Sequence[Array]) -> None:
        for at, (y, other) in enumerate(zip(expected, got, strict=True)):
            exact, rounded = _comparable(y, other)
            self.signal[at] += float(np.sum(exact * exact))
            self.other[at] += float(np.sum(rounded * rounded))
            self.noise[at] += float(np.sum((rounded - exact) ** 2))
            if at == self.logits and y.ndim and y.size:
                log_p, log_q = _log_softmax(exact), _log_softmax(rounded)
                self.divergence += float((np.exp(log_p) * (log_p - log_q)).sum())
                self.distributions += y.size // y.shape[-1]

    def sqnr_db(self) -> float:
        share = float(np.mean(self.noise / np.maximum(self.signal, np.finfo(np.float64).tiny)))
        return _decibels(share)

    def cosine(self) -> float:
        """From 1 - cos = (|d|² - (|a| - |b|)²) / (2·|a|·|b|), which does not cancel for nearly equal outputs."""
        a, b = np.sqrt(self.signal), np.sqrt(self.other)
        apart = (self.noise - (a - b) ** 2) / np.maximum(2 * a * b, np.finfo(np.float64).tiny)
        return float(np.mean(np.clip(1 - apart, -1.0, 1.0)))

    def kl(self) -> float | None:
        return max(self.divergence / self.distributions, 0.0) if self.distributions else None


def _comparable(y: Array, other: Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Two outputs as numbers whose difference is noise, in one shape.

    Whole numbers are names: right is 1 and wrong is 0. What only one of the two has, since the length depends on the
    data, is compared with nothing; what is not finite in one alone, with 0.
    """
    if y.shape != other.shape:
        shape = tuple(max(sizes) for sizes in zip(y.shape, other.shape, strict=True))
        both = np.zeros((2, *shape), np.result_type(y, other))
        inside = [tuple(slice(size) for size in each.shape) for each in (y, other)]
        both[0][inside[0]], both[1][inside[1]] = y, other
        y, other = both
    if y.dtype.kind != "f":
        return np.ones(y.shape), (y == other).astype(np.float64)
    exact, rounded = y.astype(np.float64), other.astype(np.float64)
    if not (np.isfinite(exact).all() and np.isfinite(rounded).all()):
        alike = (exact == rounded) | (np.isnan(exact) & np.isnan(rounded))
        known = np.isfinite(exact) & np.isfinite(rounded)
        exact = np.where(known, exact, np.where(alike | ~np.isfinite(exact), 0.0, exact))
        rounded = np.where(known, rounded, np.where(alike | ~np.isfinite(rounded), 0.0, rounded))
    return exact, rounded


def _log_softmax(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = x - x.max(axis=-1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


# --- the switchable model ------------------------------------------------------------------------------------------


def _switchable(original: onnx.ModelProto, layers: Sequence[LayerRecord]) -> onnx.ModelProto:
    """The model with `_SELECTOR`, a boolean per layer: which of `layers` are quantized."""
    proto = copied(original)
    known = constants(proto)
    records = {record.layer: (number, record) for number, record in enumerate(layers)}
    nodes: list[onnx.NodeProto] = []
    for node in proto.graph.node:
        if node.name not in records:
            nodes.append(node)
            continue
        number, record = records[node.name]
        switch, outside = _switch(node, number, record, known[node.input[1]] if record.weight is not None else None)
        nodes.extend(switch)
        proto.graph.initializer.extend(outside)
    replace_nodes(proto.graph, nodes)
    proto.graph.input.append(helper.make_tensor_value_info(_SELECTOR, TensorProto.BOOL, [len(layers)]))
    return proto


def _switch(
    node: onnx.NodeProto, number: int, record: LayerRecord, weight: TensorProto | None
) -> tuple[list[onnx.NodeProto], list[TensorProto]]:
    """What takes the place of a node: an If between it and the same on fake-quantized operands, which is what the
    lowered layer computes, in float; and the tensors of the outer graph, where runtimes look for those in files."""
    prefix = f"workbench.layer{number}"
    tensors: list[TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def constant(name: str, values: Array) -> str:
        tensors.append(tensor_of(values, f"{prefix}.{name}"))
        return f"{prefix}.{name}"

    def add(op_type: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [f"{prefix}.{name}"], **attributes))
        return f"{prefix}.{name}"

    def fake(tensor: str, name: str, scale: ActivationScale) -> str:
        parameters = (
            constant(f"{name}.scale", np.array(scale.scale, np.float32)),
            constant(f"{name}.zero_point", np.array(scale.zero_point, np.int8)),
        )
        integers = add("QuantizeLinear", (tensor, *parameters), f"{name}.int8")
        return add("DequantizeLinear", (integers, *parameters), f"{name}.fake")

    plain, quantized = onnx.NodeProto(), onnx.NodeProto()
    plain.CopyFrom(node)
    quantized.CopyFrom(node)
    plain.output[0], quantized.output[0] = f"{prefix}.float", f"{prefix}.int8"
    quantized.input[0] = fake(node.input[0], "activation", record.activation)
    if record.second is not None:
        quantized.input[1] = fake(node.input[1], "second", record.second)
    elif record.weight is not None and weight is not None:  # Cast and Mul: DequantizeLinear has no channels before 13
        groups = int(attributes_of(node).get("group", 1)) if node.op_type == "ConvTranspose" else 1
        values = array_of(weight)
        integers = constant("weight.int8", integers_of(values, record.weight, groups))
        scales = constant("weight.scales", scales_along(record.weight, values.shape, groups))
        floats = add("Cast", [integers], "weight.float", to=TensorProto.FLOAT)
        quantized.input[1] = add("Mul", [floats, scales], "weight.fake")
    nodes.append(quantized)
    output = quantized.output[0] if record.output is None else fake(quantized.output[0], "output", record.output)
    outside = [tensor for tensor in tensors if refers_apart(tensor)]
    inside = [tensor for tensor in tensors if not refers_apart(tensor)]

    def branch(name: str, nodes: Sequence[onnx.NodeProto], output: str, held: Sequence[TensorProto]) -> onnx.GraphProto:
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        return helper.make_graph(nodes, f"{prefix}.{name}", [], [result], held)

    branches = {
        "then_branch": branch("then", nodes, output, inside),
        "else_branch": branch("else", [plain], plain.output[0], []),
    }
    selected, place = f"{prefix}.selected", tensor_of(np.array(number, np.int64), f"{prefix}.number")
    chosen = helper.make_node("Gather", [_SELECTOR, place.name], [selected], name=selected, axis=0)
    switch = helper.make_node("If", [selected], list(node.output), name=node.name, **branches)
    return [chosen, switch], [place, *outside]
