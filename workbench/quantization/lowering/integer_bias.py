"""Biases on the grid of their layer's int32 sums, as AMCT's deploy form holds them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto

from workbench.graph.apart import tensor_of
from workbench.graph.nodes import Names
from workbench.graph.read import constants
from workbench.quantization.lowering.surgery import float_constant, prune_constants
from workbench.quantization.record import LayerRecord, QuantizationRecord
from workbench.values.errors import LoweringError


def integer_bias(
    layer: str, name: str, known: Mapping[str, TensorProto], factors: npt.NDArray[np.float32]
) -> npt.NDArray[np.int32]:
    """Round half to even of bias / (scale_d · scale_w), in float32 as AMCT computes it (amct.md §4.8).

    Raises:
        LoweringError: it is computed, or does not fit into int32.
    """
    if name not in known:
        raise LoweringError(f"{layer}: the bias {name} is computed. Keep this layer in float.")
    quotients = np.rint(float_constant(name, known[name], layer) / factors).astype(np.float64)
    limits = np.iinfo(np.int32)
    if quotients.size and (quotients.min() < limits.min or quotients.max() > limits.max):
        raise LoweringError(
            f"{layer}: Do bias quantize failed (AMCT's words): its bias does not fit into int32 at scale "
            f"{factors.min():g}, it becomes {float(quotients.flat[np.abs(quotients).argmax()]):.6g}. Keep this "
            "layer in float."
        )
    integers: npt.NDArray[np.int32] = quotients.astype(np.int32)
    return integers


def round_biases(model: ModelProto, record: QuantizationRecord, original: ModelProto) -> None:
    """For a lowering that adds in float: replace biases by what the device adds, in place.

    The bias b of a recorded Gemm or MatMul becomes round(b / f) · f with f = scale_d · scale_w.
    float32, half to even (amct.md §4.8). A bias that AMCT leaves in float stays as it is: one that `original` adds
    from the left (amct.md §6.4), and one that is computed. Convolutions have int32 biases in every lowering.

    Args:
        model: what `prepare` gives.
        original: the model before any preparation, which alone tells on which side a bias stood.
    """
    layers = {layer.layer: layer for layer in record.layers if layer.op_type in ("Gemm", "MatMul") and layer.weight}
    on_the_left = {n.name for n in original.graph.node if n.op_type == "Add" and n.input[0] in constants(original)}
    known = constants(model)
    names = Names(model.graph)
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for node in list(model.graph.node):
        if node.name not in layers:
            continue
        if node.op_type == "Gemm":
            place = (node, 2) if len(node.input) > 2 and node.input[2] else None
        else:
            place = _bias_of_matmul(node, readers, on_the_left)
        if place is None or place[0].input[place[1]] not in known:
            continue
        holder, index = place
        bias = holder.input[index]
        values = float_constant(bias, known[bias], node.name)
        factors = sum_factors(layers[node.name])
        if factors.size not in (1, values.size):
            continue
        rounded = np.rint(values / factors) * factors
        holder.input[index] = names.fresh(f"{node.name}.bias")
        model.graph.initializer.append(tensor_of(rounded.astype(np.float32), holder.input[index]))
    prune_constants(model.graph)


def _bias_of_matmul(
    node: NodeProto, readers: Mapping[str, list[NodeProto]], on_the_left: set[str]
) -> tuple[NodeProto, int] | None:
    found = readers.get(node.output[0], [])
    if len(found) != 1 or found[0].op_type != "Add" or found[0].input[0] != node.output[0]:
        return None
    return None if found[0].name in on_the_left else (found[0], 1)


def sum_factors(layer: LayerRecord) -> npt.NDArray[np.float32]:
    """What one step of a layer's integer sums is worth, scale_d · scale_w in float32: shape [] or [Cout]."""
    assert layer.weight is not None
    scales = np.asarray(layer.weight.scales, np.float32)
    factors = np.float32(layer.activation.scale) * (scales[0] if layer.weight.axis is None else scales)
    return np.asarray(factors, np.float32)
