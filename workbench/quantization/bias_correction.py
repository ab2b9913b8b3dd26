"""Bias correction: the mean error that INT8 puts on each output channel, taken back out of the bias.

Source: Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction",
arXiv:1906.04721, the empirical variant. Here it is local: every layer sees the activations of the float model.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, load_graph
from workbench.quantization.activations import activations, ordinary_rows
from workbench.quantization.balance import grouped_weight
from workbench.quantization.lowering.prepare import balanced_as
from workbench.quantization.lowering.surgery import float_constant
from workbench.quantization.observe import Feeds
from workbench.quantization.record import ActivationScale, QuantizationRecord
from workbench.quantization.rounding import rounded_weight
from workbench.quantization.windows import windows
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

_Floats = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]


def bias_corrections(model: Model, batches: Iterable[Feeds], record: QuantizationRecord) -> dict[str, _Floats]:
    """E[W x] - E[Ŵ Q(x)] per output channel of every recorded layer with a weight, for `LayerRecord.bias_correction`.

    One pass over the data in the record's balanced model. The mean over samples and positions is linear, so only the
    channel means of x and of Q(x) are kept: memory does not grow with the data. A convolution needs them per kernel
    element, since padding hides positions from some. Samples count by their positions, tokens of
    massive activations not at all (`ordinary_rows`). Corrections that the
    record has already are not applied first: the result replaces them.

    Returns:
        Layer name → float32 [Cout], in the record's order.

    Raises:
        CalibrationError: see `activations`, or a record that does not fit the model.
    """
    proto = balanced_as(load_graph(model), record)
    nodes = {node.name: node for node in proto.graph.node}
    layers = {layer.name: layer for layer in quantizable_layers(proto)}
    wanted = {layer.layer: layer for layer in record.layers if layer.weight is not None}
    if missing := sorted(wanted.keys() - layers.keys()):
        raise CalibrationError(f"layer {missing[0]!r} of the record is none of this model. Calibrate again.")
    inputs: dict[tuple[str, ActivationScale, str], list[str]] = {}
    for name, recorded in wanted.items():
        # layers that read one tensor with one scale need its means once; a convolution its own, by its windows
        window = name if recorded.op_type in ("Conv", "ConvTranspose") else ""
        inputs.setdefault((layers[name].activation, recorded.activation, window), []).append(name)
    sums = {key: _Sums() for key in inputs}
    for run in activations(model, proto, [tensor for tensor, _, _ in inputs], batches):
        for key in inputs:
            tensor, scale, window = key
            layer = layers[inputs[key][0]]
            sums[key].add(run.values[tensor], scale, nodes[layer.name] if window else None, layer)
    known = constants(proto)
    found: dict[str, _Floats] = {}
    for key, names in inputs.items():
        means, rounded_means = sums[key].means()
        for name in names:
            layer, weight = layers[name], wanted[name].weight
            assert layer.weight is not None
            assert weight is not None
            values_ = float_constant(layer.weight, known[layer.weight], name)
            quantized = rounded_weight(values_, weight, layer)
            error = _mean_output(values_, layer, means) - _mean_output(quantized, layer, rounded_means)
            found[name] = error.astype(np.float32)
    return {name: found[name] for name in wanted}


def quantize_dequantize(values: _Floats, scale: ActivationScale) -> _Floats:
    """Q(x): what an INT8 layer reads in place of x (record.py)."""
    step = np.float32(scale.scale)
    integers = np.rint(values / step)
    np.clip(integers, -128 - scale.zero_point, 127 - scale.zero_point, out=integers)
    rounded: _Floats = integers * step
    return rounded


class _Sums:
    """Sums of one input and of its rounded form: float64 [Cin, kernel elements], over `count` output positions."""

    def __init__(self) -> None:
        self._x: _Doubles | float = 0.0
        self._rounded: _Doubles | float = 0.0
        self._count = 0

    def add(self, values: _Floats, scale: ActivationScale, node: NodeProto | None, layer: Layer) -> None:
        if node is None:
            rows = ordinary_rows(values)
            self._count += len(rows)
            self._x += _channel_sums(rows, -1)[:, None]
            self._rounded += _channel_sums(quantize_dequantize(rows, scale), -1)[:, None]
            return
        rounded = quantize_dequantize(values, scale)
        positions, elements = windows(node, values.shape[2:], layer.weight_shape[2:])
        self._count += values.shape[0] * positions
        selections = [(slice(None), slice(None), *element) for element in elements]
        self._x += np.stack([_channel_sums(values[selection], 1) for selection in selections], axis=1)
        self._rounded += np.stack([_channel_sums(rounded[selection], 1) for selection in selections], axis=1)

    def means(self) -> tuple[_Doubles, _Doubles]:
        count = max(self._count, 1)
        return np.asarray(self._x) / count, np.asarray(self._rounded) / count


def _channel_sums(values: _Floats, axis: int) -> _Doubles:
    others = tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    sums: _Doubles = values.sum(axis=others, dtype=np.float64)
    return sums


def _mean_output(weight: _Floats, layer: Layer, means: _Doubles) -> _Doubles:
    grouped = grouped_weight(weight, layer).astype(np.float64)
    groups, _, cin, taps = grouped.shape
    outputs: _Doubles = np.einsum("goct,gct->go", grouped, means.reshape(groups, cin, taps)).reshape(-1)
    return outputs
