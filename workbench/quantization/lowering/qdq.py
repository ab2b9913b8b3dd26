"""INT8 in the forms ONNX Runtime executes: static as QuantizeLinear/DequantizeLinear (QDQ) around float operators, and
dynamic (`lower_dynamic`).

    x ─► Q ─► DQ ─► MatMul ─► Add(bias)          activations uint8, weights int8: U8S8, the fast pair on x86
              w ─► DQ ──┘

What shapes the result (onnxruntime 1.31.1, measured; `tests/targets/onnxruntime/test_target.py` repeats it):

- A Gemm between float operators runs in float, so every Gemm becomes MatMul + Add.
- Only the layer reads the quantized tensor. Residual connections keep the float one: no DequantizeLinear is left
  in the compiled graph, and no second rounding in the sum.
- Outputs of MatMul stay float: MatMulIntegerToFloat writes them at the price of QLinearMatMul, and is more exact.
- A tensor read as the second factor of MatMul(activation, activation) is int8, so that this product is U8S8 too.
- Convolutions have three forms, see below. AveragePool reads a Q/DQ pair and computes in float: the
  runtime has no integer kernel for it that gives a float result.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.layers import quantizable_layers
from workbench.graph.nodes import attributes_of, replace_nodes
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.prepare import integer_bias, prepare, round_biases, sum_factors
from workbench.quantization.lowering.qdq_tensors import QuantizedTensors, check_tensor, fitting_integers
from workbench.quantization.lowering.surgery import (
    check_layers,
    editable_copy,
    prune_constants,
    rewired,
    weight_is_transposed,
)
from workbench.quantization.record import LayerRecord, QuantizationRecord, WeightScale
from workbench.quantization.weights import integers_of, scales_along
from workbench.values.candidate import Granularity
from workbench.values.errors import LoweringError

_PER_TENSOR_OPSET = 10
_DYNAMIC_OPSET = 11  # DynamicQuantizeLinear is there from 11 on
_PER_CHANNEL_OPSET = 13  # QuantizeLinear and DequantizeLinear know `axis` from here on


def lower_static(proto: ModelProto, record: QuantizationRecord, *, seven_bits: bool = False) -> ModelProto:
    """`prepare(proto, record)` with every recorded layer quantized; all else untouched.

    Pure and deterministic: `proto` is not changed, equal arguments give equal protos. Node names must be unique.
    Dynamic axes, inputs, outputs and the set of operator domains stay as they are; constants that only the float
    form used are gone. Weights are the integers of the deploy form, as are the biases of a record that follows AMCT.
    `record.force_fp16` changes nothing here: it belongs to the device.

    Args:
        seven_bits: see `QuantizedTensors`.

    Raises:
        LoweringError: a recorded layer is absent or differs from the model (tensor, channels, scales of a shared
            tensor), cannot be quantized, has weights that are NaN, or the model's opset cannot be raised.
    """
    per_channel = any(layer.weight is not None and layer.weight.axis is not None for layer in record.layers)
    model = editable_copy(prepare(proto, record), opset=_PER_CHANNEL_OPSET if per_channel else _PER_TENSOR_OPSET)
    if record.follows_amct:
        round_biases(model, record, proto)
    layers = {layer.layer: layer for layer in record.layers}
    check_layers(model, layers)
    tensors = QuantizedTensors(model, seven_bits=seven_bits)
    for node in model.graph.node:
        layer = layers.get(node.name)
        if layer is None:
            tensors.nodes.append(node)
        else:
            _lower(tensors, node, layer)
    replace_nodes(model.graph, tensors.nodes)
    prune_constants(model.graph)
    return model


def _lower(tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord) -> None:
    """The nodes in the place of one recorded layer."""
    check_tensor(node, node.input[0], layer.activation)
    match node.op_type:
        case "Conv" | "ConvTranspose":
            if layer.weight is None:
                raise LoweringError(f"{node.name}: the record has no weight scale for this {node.op_type}.")
            _lower_convolution(tensors, node, layer, layer.weight)
        case "AveragePool":
            tensors.nodes.append(rewired(node, [tensors.dequantized(layer.activation, "uint8")]))
        case "MatMul" if layer.second is not None:
            check_tensor(node, node.input[1], layer.second)
            a, b = tensors.dequantized(layer.activation, "uint8"), tensors.dequantized(layer.second, "int8")
            tensors.nodes.append(helper.make_node("MatMul", [a, b], list(node.output), name=node.name))
        case "MatMul" | "Gemm" if layer.weight is not None:
            transposed = weight_is_transposed(node)
            x = tensors.dequantized(layer.activation, "uint8")
            w = tensors.weight(node.name, node.input[1], layer.weight, transposed=transposed)
            product = product_of(tensors, node)
            tensors.nodes.append(helper.make_node("MatMul", [x, w], [product], name=node.name))
            add_bias(tensors, node, product)
        case _:
            raise LoweringError(f"{node.name}: this {node.op_type} has no INT8 form here. Remove it from the record.")


def product_of(tensors: QuantizedTensors, node: NodeProto) -> str:
    """What the product of a MatMul or Gemm is called: its output, unless a bias is to be added (`add_bias`)."""
    biased = node.op_type == "Gemm" and len(node.input) > 2 and bool(node.input[2])
    return tensors.names.fresh(f"{node.output[0]}_product") if biased else str(node.output[0])


def add_bias(tensors: QuantizedTensors, node: NodeProto, product: str) -> None:
    if product != node.output[0]:
        name = tensors.names.fresh(f"{node.name}_bias")
        tensors.nodes.append(helper.make_node("Add", [product, node.input[2]], [node.output[0]], name=name))


# --- convolutions ----------------------------------------------------------------------------------------------------
#
# with a scale for the output     x ─► Q ─► DQ ─► Conv(DQ int8 w, DQ int32 b) ─► Q ─► DQ      QLinearConv
# without (every AMCT record)     x ─► Q ─► ConvInteger ─► Add(int32 b) ─► Cast ─► Mul        ConvInteger
# no integer kernel pays          x ─► Q ─► DQ ─► Conv with the weights its integers stand for
#
# The second form is AMCT's own arithmetic: (sum + int32 bias) · scale_d · scale_w, zero padding being the zero point
# (amct.md §4.8, §6.5). ConvInteger multiplies weights from the left: int8 weights by uint8 activations have no fast
# kernel there; so the weights are uint8 with zero point 128 and the activations int8, which is the fast pair
# (onnxruntime 1.31.1). The third form is for depthwise convolutions without a scale for the output (ConvInteger takes
# longer than float) and for ConvTranspose, which has no integer kernel at all.


def _lower_convolution(tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord, weight: WeightScale) -> None:
    has_bias, factors = len(node.input) > 2 and bool(node.input[2]), sum_factors(layer)
    output, transpose = node.output[0], node.op_type == "ConvTranspose"
    groups = int(attributes_of(node).get("group", 1))
    if layer.output is not None and not transpose:
        check_tensor(node, output, layer.output)
        inputs = [tensors.dequantized(layer.activation, "uint8"), tensors.weight(node.name, node.input[1], weight)]
        if has_bias:
            inputs.append(_dequantized_bias(tensors, node, factors))
        floats = tensors.names.fresh(f"{output}_float")
        tensors.nodes.append(rewired(node, inputs, [floats]))
        tensors.requantized(layer.output, floats)
        return
    stored = tensors.known.get(node.input[1])
    if transpose or (stored is not None and stored.dims[1] == 1 and groups > 1):
        x = tensors.dequantized(layer.activation, "uint8")
        name, values = tensors.floats(node.name, node.input[1])
        groups = groups if transpose else 1
        integers = fitting_integers(node.name, values, weight, groups)
        rounded = integers.astype(np.float32) * scales_along(weight, values.shape, groups)
        tensors.nodes.append(rewired(node, [x, tensors.constant(f"{name}_rounded", rounded), *node.input[2:]]))
        return
    name, values = tensors.floats(node.name, node.input[1])
    integers = fitting_integers(node.name, values, weight)
    x = tensors.quantized(layer.activation, "int8")
    _, zero_point = tensors.parameters(layer.activation, "int8")
    w = tensors.constant(f"{name}_uint8", (integers.astype(np.int16) + 128).astype(np.uint8))
    product = tensors.names.fresh(f"{output}_int32")
    inputs = [x, w, zero_point, tensors.constant(f"{name}_uint8_zero_point", np.asarray(128, np.uint8))]
    convolution = rewired(node, inputs, [product])
    convolution.op_type = "ConvInteger"
    tensors.nodes.append(convolution)
    along = [1, -1, *[1] * (values.ndim - 2)]
    if has_bias:
        bias = integer_bias(node.name, node.input[2], tensors.known, factors).reshape(along)
        stored_bias = tensors.constant(f"{node.input[2]}_int32", bias)
        product = tensors.add("Add", [product, stored_bias], tensors.names.fresh(f"{output}_with_bias"))
    floats = tensors.add("Cast", [product], tensors.names.fresh(f"{output}_unscaled"), to=TensorProto.FLOAT)
    scale = tensors.constant(f"{output}_factor", factors.reshape(along) if factors.ndim else factors)
    tensors.add("Mul", [floats, scale], output)


def _dequantized_bias(tensors: QuantizedTensors, node: NodeProto, factors: npt.NDArray[np.float32]) -> str:
    """The DequantizeLinear of an int32 bias with scale x_scale · w_scale; returns the tensor's name."""
    name = node.input[2]
    integers = integer_bias(node.name, name, tensors.known, factors)
    inputs = [tensors.constant(f"{name}_int32", integers), tensors.constant(f"{name}_scale", factors)]
    if factors.ndim:
        inputs.append(tensors.constant(f"{name}_zero_point", np.zeros(factors.shape, np.int32)))
    output = tensors.names.fresh(f"{name}_dequantized")
    return tensors.add("DequantizeLinear", inputs, output, **({"axis": 0} if factors.ndim else {}))


# --- activations by their own range at every call --------------------------------------------------------------------


def lower_dynamic(proto: ModelProto, granularity: Granularity) -> ModelProto:
    """The model with every MatMul and Gemm layer by a constant weight in dynamic INT8; all else untouched.

        x ─► DynamicQuantizeLinear ─► MatMulInteger ─► Cast ─► Mul(scale) ─► Add(bias)

    Only standard operators, in the order ONNX Runtime fuses to DynamicQuantizeMatMul (one reader of `x`) and
    MatMulIntegerToFloat (several, which then share one quantization of `x`). It has no counterpart on Ascend. Pure and
    deterministic. Weights are symmetric, scale = max|w| / 127 over the tensor or over an output channel.

    Raises:
        LoweringError: no layer can be quantized, weights are NaN, or the model's opset cannot be raised.
    """
    source = normalized(proto)
    taken = {layer.name for layer in quantizable_layers(source) if layer.op_type in ("MatMul", "Gemm") and layer.weight}
    if not taken:
        raise LoweringError("No MatMul or Gemm multiplies by a constant float32 matrix; nothing can be INT8 here.")
    model = editable_copy(source, opset=_DYNAMIC_OPSET)
    tensors, activations = QuantizedTensors(model), dict[str, tuple[str, str, str]]()
    for node in model.graph.node:
        if node.name in taken:
            _lower_dynamic(tensors, node, activations, per_channel=granularity == "channel")
        else:
            tensors.nodes.append(node)
    replace_nodes(model.graph, tensors.nodes)
    prune_constants(model.graph)
    return model


def _lower_dynamic(
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
