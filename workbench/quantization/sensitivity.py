"""Which layers suffer most from INT8: quantize one at a time and look at the model's output.

All variants run in one session. Every quantizable node becomes an `If` on one extra graph input: the layer whose
number is fed computes with fake-quantized operands, all others with the float ones, and only the branch taken costs
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from workbench.candidate import Quantization
from workbench.errors import CalibrationError
from workbench.graph import constants, load_graph
from workbench.model import Model
from workbench.quantization.algorithms import choose
from workbench.quantization.observe import RUNTIME_ERRORS, Array, Feeds, Statistics, session_of
from workbench.quantization.record import ActivationScale, LayerRecord, WeightScale

BEST_SQNR_DB = 200.0
"""Stands for every smaller error, none included."""

_SELECTOR = "workbench.quantized_layer"
_NONE = -1
_MIN_OPSET = 10  # QuantizeLinear
_LARGEST_MODEL = 1_600_000_000  # with its int8 copies it must stay below the 2 GiB of one protobuf message


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSensitivity:
    """What quantizing this layer alone does to the model's output.

    Attributes:
        sqnr_db: 10·log10(Σ y² / Σ (y_int8 - y)²) over all samples; averaged as noise shares over float outputs.
            Low is sensitive.
        kl: mean KL(softmax(y) ‖ softmax(y_int8)) in nats over the last axis of the output called 'logits'; None
            without such an output.
    """

    layer: str
    op_type: str
    sqnr_db: float
    kl: float | None


def rank_layers(
    model: Model, statistics: Statistics, recipe: Quantization, batches: Iterable[Feeds], *, threads: int = 2
) -> tuple[LayerSensitivity, ...]:
    """Every layer that the recipe quantizes, most sensitive (lowest SQNR) first; equals in graph order.

    Costs one forward pass per layer and sample: a few dozen samples rank well. `recipe.keep_float` is not looked at.

    Raises:
        CalibrationError: no batches, or the runtime refuses the feeds or the rewritten model.
    """
    if model.opset < _MIN_OPSET:
        raise CalibrationError(f"{model.path.name} has opset {model.opset}; ranking needs {_MIN_OPSET} or later.")
    if model.size_bytes > _LARGEST_MODEL:
        raise CalibrationError(
            f"{model.path.name} has {model.size_bytes} bytes; ranking takes at most {_LARGEST_MODEL}."
        )
    layers = choose(statistics, replace(recipe, keep_float=0)).layers
    session = session_of(_switchable(model, layers), model)
    names = [output.name for output in session.get_outputs() if output.type == "tensor(float)"]
    totals = [_Difference(names) for _ in layers]
    samples = False
    with ThreadPoolExecutor(max_workers=threads) as pool:
        for feeds in batches:
            samples = True
            expected = _run(session, names, feeds, _NONE)
            variants = pool.map(lambda i, fed=feeds: _run(session, names, fed, i), range(len(layers)))
            for total, got in zip(totals, variants, strict=True):
                total.add(expected, got)
    if not samples:
        raise CalibrationError("there are no samples to rank layers with. Check the dataset's `calibration` file.")
    ranking = [
        LayerSensitivity(layer=layer.layer, op_type=layer.op_type, sqnr_db=total.sqnr_db(), kl=total.kl())
        for layer, total in zip(layers, totals, strict=True)
    ]
    return tuple(sorted(ranking, key=lambda item: item.sqnr_db))


def _run(session: onnxruntime.InferenceSession, names: Sequence[str], feeds: Feeds, selected: int) -> list[Array]:
    try:
        outputs: list[Array] = session.run(list(names), {**feeds, _SELECTOR: np.array(selected, np.int64)})
    except RUNTIME_ERRORS as error:
        raise CalibrationError(f"the model with layer {selected} quantized failed: {error}") from error
    return outputs


class _Difference:
    """Running sums over the samples, per float output."""

    def __init__(self, names: Sequence[str]) -> None:
        self.logits = names.index("logits") if "logits" in names else None
        self.signal = np.zeros(len(names))
        self.noise = np.zeros(len(names))
        self.divergence, self.distributions = 0.0, 0

    def add(self, expected: Sequence[Array], got: Sequence[Array]) -> None:
        for at, (y, other) in enumerate(zip(expected, got, strict=True)):
            y, other = y.astype(np.float64), other.astype(np.float64)
            self.signal[at] += float(np.square(y).sum())
            self.noise[at] += float(np.square(other - y).sum())
            if at == self.logits and y.ndim > 0:
                log_p, log_q = _log_softmax(y), _log_softmax(other)
                self.divergence += float((np.exp(log_p) * (log_p - log_q)).sum())
                self.distributions += y.size // max(y.shape[-1], 1)

    def sqnr_db(self) -> float:
        share = float(np.mean(self.noise / np.maximum(self.signal, np.finfo(np.float64).tiny)))
        smallest = 10 ** (-BEST_SQNR_DB / 10)
        return -10 * math.log10(max(share, smallest)) + 0.0

    def kl(self) -> float | None:
        return max(self.divergence / self.distributions, 0.0) if self.distributions else None


def _log_softmax(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = x - x.max(axis=-1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


# --- the switchable model ------------------------------------------------------------------------------------------


def _switchable(model: Model, layers: Sequence[LayerRecord]) -> bytes:
    """The model with `_SELECTOR`, an int64 scalar: which of `layers` is quantized, or `_NONE`."""
    proto = load_graph(model)
    known = constants(proto)
    records = {record.layer: (number, record) for number, record in enumerate(layers)}
    nodes: list[onnx.NodeProto] = []
    for node in proto.graph.node:
        if node.name not in records:
            nodes.append(node)
            continue
        number, record = records[node.name]
        weight = known[node.input[1]] if record.weight is not None else None
        proto.graph.initializer.append(numpy_helper.from_array(np.array(number, np.int64), f"{_prefix(number)}.number"))
        nodes.extend(_switch(node, number, record, weight))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.graph.input.append(helper.make_tensor_value_info(_SELECTOR, TensorProto.INT64, []))
    return bytes(proto.SerializeToString())


def _prefix(number: int) -> str:
    return f"workbench.layer{number}"


def _switch(
    node: onnx.NodeProto, number: int, record: LayerRecord, weight: TensorProto | None
) -> tuple[onnx.NodeProto, ...]:
    prefix = _prefix(number)
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    plain.output[0] = f"{prefix}.float"
    then_branch = _quantized_branch(node, prefix, record, weight)
    else_branch = helper.make_graph([plain], f"{prefix}.else", [], [_float(plain.output[0])])
    selected = f"{prefix}.selected"
    return (
        helper.make_node("Equal", [_SELECTOR, f"{prefix}.number"], [selected], name=selected),
        helper.make_node(
            "If", [selected], list(node.output), name=node.name, then_branch=then_branch, else_branch=else_branch
        ),
    )


def _quantized_branch(
    node: onnx.NodeProto, prefix: str, record: LayerRecord, weight: TensorProto | None
) -> onnx.GraphProto:
    """The node on fake-quantized operands: what the lowered layer computes, in float."""
    nodes: list[onnx.NodeProto] = []
    tensors: list[TensorProto] = []
    first = _fake_quantized(node.input[0], f"{prefix}.activation", record.activation, nodes, tensors)
    if record.second is not None:
        second = _fake_quantized(node.input[1], f"{prefix}.second", record.second, nodes, tensors)
    elif record.weight is not None and weight is not None:
        second = _stored_weight(f"{prefix}.weight", numpy_helper.to_array(weight), record.weight, nodes, tensors)
    quantized = onnx.NodeProto()
    quantized.CopyFrom(node)
    quantized.input[0], quantized.input[1], quantized.output[0] = first, second, f"{prefix}.int8"
    nodes.append(quantized)
    output = quantized.output[0]
    if record.output is not None:
        output = _fake_quantized(output, f"{prefix}.output", record.output, nodes, tensors)
    return helper.make_graph(nodes, f"{prefix}.then", [], [_float(output)], tensors)


def _float(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _fake_quantized(
    tensor: str, prefix: str, scale: ActivationScale, nodes: list[onnx.NodeProto], tensors: list[TensorProto]
) -> str:
    parameters = [f"{prefix}.scale", f"{prefix}.zero_point"]
    tensors.append(numpy_helper.from_array(np.array(scale.scale, np.float32), parameters[0]))
    tensors.append(numpy_helper.from_array(np.array(scale.zero_point, np.int8), parameters[1]))
    integers, floats = f"{prefix}.int8", f"{prefix}.fake"
    nodes.append(helper.make_node("QuantizeLinear", [tensor, *parameters], [integers]))
    nodes.append(helper.make_node("DequantizeLinear", [integers, *parameters], [floats]))
    return floats


def _stored_weight(
    prefix: str, values: Array, scale: WeightScale, nodes: list[onnx.NodeProto], tensors: list[TensorProto]
) -> str:
    """The weight as int8 in the file; Cast and Mul, as DequantizeLinear knows no channels before opset 13."""
    shape = [1] * values.ndim
    if scale.axis is not None:
        shape[scale.axis] = len(scale.scales)
    scales = np.array(scale.scales, np.float32).reshape(shape)
    integers = np.clip(np.rint(values / scales), -128, 127).astype(np.int8)
    tensors.append(numpy_helper.from_array(integers, f"{prefix}.int8"))
    tensors.append(numpy_helper.from_array(scales, f"{prefix}.scales"))
    nodes.append(helper.make_node("Cast", [f"{prefix}.int8"], [f"{prefix}.float"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Mul", [f"{prefix}.float", f"{prefix}.scales"], [f"{prefix}.fake"]))
    return f"{prefix}.fake"
