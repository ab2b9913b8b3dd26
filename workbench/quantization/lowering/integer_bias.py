"""Biases on the grid of their layer's int32 sums, as AMCT's deploy form holds them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto

from workbench.graph.apart import tensor_of
from workbench.graph.nodes import Names
from workbench.graph.read import constants
from workbench.quantization.lowering.folding import Wiring
from workbench.quantization.lowering.prepare import bias_place
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
    on_the_left = {n.name for n in original.graph.node if n.op_type == "Add" and n.input[0] in constants(original)}
    nodes, names, wiring = {node.name: node for node in model.graph.node}, Names(model.graph), Wiring(model)
    for layer in record.layers:
        node = nodes.get(layer.layer)
        if node is None or layer.weight is None or node.op_type not in ("Gemm", "MatMul"):
            continue
        holder, index = bias_place(wiring, node) or ("", 0)
        if not holder or holder in on_the_left:
            continue
        bias = nodes[holder].input[index]
        values, factors = float_constant(bias, wiring.constants[bias], layer.layer), sum_factors(layer)
        rounded = np.rint(values / factors) * factors if factors.size in (1, values.size) else values
        nodes[holder].input[index] = names.fresh(f"{layer.layer}.bias")
        model.graph.initializer.append(tensor_of(rounded.astype(np.float32), nodes[holder].input[index]))
    prune_constants(model.graph)


def sum_factors(layer: LayerRecord) -> npt.NDArray[np.float32]:
    """What one step of a layer's integer sums is worth, scale_d · scale_w in float32: shape [] or [Cout]."""
    assert layer.weight is not None
    scales = np.asarray(layer.weight.scales, np.float32)
    factors = np.float32(layer.activation.scale) * (scales[0] if layer.weight.axis is None else scales)
    return np.asarray(factors, np.float32)
