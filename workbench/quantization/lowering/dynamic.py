"""Dynamic INT8: weights quantized ahead, activations by their own range at every call; needs no calibration.

    x ─► DynamicQuantizeLinear ─► MatMulInteger ─► Cast ─► Mul(scale) ─► Add(bias)

Only standard operators, in the order ONNX Runtime fuses to DynamicQuantizeMatMul (one reader of `x`) and
MatMulIntegerToFloat (several, which then share one quantization of `x`). It has no counterpart on Ascend.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.layers import quantizable_layers
from workbench.graph.nodes import replace_nodes
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.qdq import add_bias, product_of
from workbench.quantization.lowering.qdq_tensors import QuantizedTensors
from workbench.quantization.lowering.surgery import editable_copy, prune_constants, weight_is_transposed
from workbench.quantization.record import WeightScale
from workbench.quantization.weights import integers_of
from workbench.values.candidate import Granularity
from workbench.values.errors import LoweringError

_OPSET = 11  # DynamicQuantizeLinear is there from 11 on


def lower_dynamic(proto: ModelProto, granularity: Granularity) -> ModelProto:
    """The model with every MatMul and Gemm layer by a constant weight in dynamic INT8; all else untouched.

    Pure and deterministic as `qdq.lower_static`. Weights are symmetric, scale = max|w| / 127 over the tensor or over
    an output channel.

    Raises:
        LoweringError: no layer can be quantized, weights are NaN, or the model's opset cannot be raised.
    """
    source = normalized(proto)
    taken = {layer.name for layer in quantizable_layers(source) if layer.op_type in ("MatMul", "Gemm") and layer.weight}
    if not taken:
        raise LoweringError("No MatMul or Gemm multiplies by a constant float32 matrix; nothing can be INT8 here.")
    model = editable_copy(source, opset=_OPSET)
    tensors, activations = QuantizedTensors(model), dict[str, tuple[str, str, str]]()
    for node in model.graph.node:
        if node.name in taken:
            _lower(tensors, node, activations, per_channel=granularity == "channel")
        else:
            tensors.nodes.append(node)
    replace_nodes(model.graph, tensors.nodes)
    prune_constants(model.graph)
    return model


def _lower(
    tensors: QuantizedTensors, node: NodeProto, activations: dict[str, tuple[str, str, str]], *, per_channel: bool
) -> None:
    """The nodes in the place of one layer; a tensor is quantized once, whoever reads it."""
    names, tensor, output = tensors.names, node.input[0], node.output[0]
    if tensor not in activations:
        integers, scale, zero = (names.fresh(f"{tensor}_{kind}") for kind in ("quantized", "scale", "zero_point"))
        name = names.fresh(f"{tensor}_DynamicQuantizeLinear")
        outputs = [integers, scale, zero]
        tensors.nodes.append(helper.make_node("DynamicQuantizeLinear", [tensor], outputs, name=name))
        activations[tensor] = (integers, scale, zero)
    x, x_scale, x_zero_point = activations[tensor]
    w, values = tensors.floats(node.name, node.input[1])
    values = np.ascontiguousarray(values.T) if weight_is_transposed(node) else values
    largest = np.abs(values).max(axis=0 if per_channel else None)
    # a channel of zeros stays zeros under any scale
    scales = np.where(largest > 0, largest / np.float32(127), np.float32(1)).astype(np.float32)
    weight = WeightScale(scales=tuple(np.atleast_1d(scales).tolist()), axis=1 if per_channel else None)
    w_int8 = tensors.constant(f"{w}_int8", integers_of(values, weight))
    w_scale = tensors.constant(f"{w}_scale", scales)
    w_zero_point = tensors.constant(f"{w}_zero_point", np.zeros(scales.shape, np.int8))
    integers, floats, scale = (names.fresh(f"{output}_{part}") for part in ("int32", "unscaled", "scale"))
    inputs = [x, w_int8, x_zero_point, w_zero_point]
    tensors.nodes.append(helper.make_node("MatMulInteger", inputs, [integers], name=node.name))
    tensors.add("Cast", [integers], floats, to=TensorProto.FLOAT)
    tensors.add("Mul", [x_scale, w_scale], scale)
    product = product_of(tensors, node)
    tensors.add("Mul", [floats, scale], product)
    add_bias(tensors, node, product)
