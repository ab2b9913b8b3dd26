"""Static INT8 as QuantizeLinear/DequantizeLinear (QDQ) around float operators, in the form ONNX Runtime executes.

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

from collections.abc import Generator, Iterator

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.nodes import replace_nodes
from workbench.quantization.lowering.integer_bias import integer_bias, round_biases, sum_factors
from workbench.quantization.lowering.prepare import prepare
from workbench.quantization.lowering.qdq_tensors import (
    QuantizedTensors,
    check_tensor,
    fitting_integers,
)
from workbench.quantization.lowering.surgery import (
    bias_add,
    check_layers,
    editable_copy,
    matmul_parts,
    prune_constants,
    rewired,
)
from workbench.quantization.record import ActivationScale, LayerRecord, QuantizationRecord
from workbench.quantization.weights import scales_along
from workbench.values.errors import LoweringError

_PER_TENSOR_OPSET = 10
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
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        layer = layers.get(node.name)
        nodes.extend([node] if layer is None else _lowered(tensors, node, layer))
    replace_nodes(model.graph, nodes)
    prune_constants(model.graph)
    return model


def _lowered(tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
    """The nodes that take the place of one recorded layer, in execution order."""
    if node.op_type in ("Conv", "ConvTranspose"):
        if layer.weight is None:
            raise LoweringError(f"{node.name}: the record has no weight scale for this {node.op_type}.")
        yield from lowered_convolution(tensors, node, layer)
    elif node.op_type == "AveragePool":
        yield from _pooling(tensors, node, layer)
    elif node.op_type not in ("MatMul", "Gemm"):
        raise LoweringError(f"{node.name}: {node.op_type} has no INT8 form here. Remove it from the record.")
    elif layer.second is not None:
        yield from _product_of_activations(tensors, node, layer, layer.second)
    else:
        yield from _matmul(tensors, node, layer)


def _matmul(tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
    parts = matmul_parts(node)
    check_tensor(node, parts.x, layer.activation)
    assert layer.weight is not None
    x = yield from tensors.dequantized(layer.activation, "uint8")
    w = yield from tensors.weight(node.name, parts.w, layer.weight, transposed=parts.transposed, factor=parts.alpha)
    product = node.output[0] if parts.bias is None else tensors.names.fresh(f"{node.output[0]}_product")
    yield helper.make_node("MatMul", [x, w], [product], name=node.name)
    if parts.bias is not None:
        yield bias_add(tensors.names, tensors.graph, node, parts, product, tensors.known)


def _product_of_activations(
    tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord, second: ActivationScale
) -> Iterator[NodeProto]:
    if node.op_type != "MatMul":
        raise LoweringError(f"{node.name}: a {node.op_type} of two activations cannot be lowered. Keep it in float.")
    check_tensor(node, node.input[0], layer.activation)
    check_tensor(node, node.input[1], second)
    a = yield from tensors.dequantized(layer.activation, "uint8")
    b = yield from tensors.dequantized(second, "int8")
    yield helper.make_node("MatMul", [a, b], list(node.output), name=node.name)


def _pooling(tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
    check_tensor(node, node.input[0], layer.activation)
    x = yield from tensors.dequantized(layer.activation, "uint8")
    yield rewired(node, [x])


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


def lowered_convolution(tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
    """The nodes in place of a Conv or ConvTranspose, in execution order.

    Raises:
        LoweringError: weight, bias or scales do not fit.
    """
    check_tensor(node, node.input[0], layer.activation)
    if node.op_type == "ConvTranspose":
        yield from _simulated(tensors, node, layer)
    elif layer.output is not None:
        yield from _with_output_scale(tensors, node, layer)
    elif _is_depthwise(tensors, node):
        yield from _simulated(tensors, node, layer)
    else:
        yield from _integer(tensors, node, layer)


def _with_output_scale(tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
    assert layer.output is not None
    assert layer.weight is not None
    check_tensor(node, node.output[0], layer.output)
    x = yield from tensors.dequantized(layer.activation, "uint8")
    w = yield from tensors.weight(node.name, node.input[1], layer.weight)
    inputs = [x, w]
    if _has_bias(node):
        inputs.append((yield from _dequantized_bias(tensors, node, layer)))
    output = tensors.names.fresh(f"{node.output[0]}_float")
    yield rewired(node, inputs, [output])
    yield from tensors.requantized(layer.output, output)


def _integer(tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
    assert layer.weight is not None
    name, values = tensors.floats(node.name, node.input[1])
    integers = fitting_integers(node.name, values, layer.weight)
    x = yield from tensors.quantized(layer.activation, "int8")
    _, zero_point = tensors.parameters(layer.activation, "int8")
    w = tensors.constant(f"{name}_uint8", (integers.astype(np.int16) + 128).astype(np.uint8))
    product = tensors.names.fresh(f"{node.output[0]}_int32")
    inputs = [x, w, zero_point, tensors.constant(f"{name}_uint8_zero_point", np.asarray(128, np.uint8))]
    convolution = rewired(node, inputs, [product])
    convolution.op_type = "ConvInteger"
    yield convolution
    along = [1, -1, *[1] * (values.ndim - 2)]
    if _has_bias(node):
        bias = tensors.constant(
            f"{node.input[2]}_int32",
            integer_bias(node.name, node.input[2], tensors.known, sum_factors(layer)).reshape(along),
        )
        total = tensors.names.fresh(f"{node.output[0]}_with_bias")
        yield tensors.node("Add", [product, bias], total)
        product = total
    floats = tensors.names.fresh(f"{node.output[0]}_unscaled")
    cast = tensors.node("Cast", [product], floats)
    cast.attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
    yield cast
    factors = sum_factors(layer)
    scale = tensors.constant(f"{node.output[0]}_factor", factors.reshape(along) if factors.ndim else factors)
    yield tensors.node("Mul", [floats, scale], node.output[0])


def _simulated(tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
    assert layer.weight is not None
    x = yield from tensors.dequantized(layer.activation, "uint8")
    name, values = tensors.floats(node.name, node.input[1])
    groups = _attribute(node, "group", 1) if node.op_type == "ConvTranspose" else 1
    integers = fitting_integers(node.name, values, layer.weight, groups)
    rounded = integers.astype(np.float32) * scales_along(layer.weight, values.shape, groups)
    w = tensors.constant(f"{name}_rounded", rounded)
    yield rewired(node, [x, w, *node.input[2:]])


def _dequantized_bias(
    tensors: QuantizedTensors, node: NodeProto, layer: LayerRecord
) -> Generator[NodeProto, None, str]:
    """The DequantizeLinear of an int32 bias with scale x_scale · w_scale; returns the tensor's name."""
    name = node.input[2]
    factors = sum_factors(layer)
    inputs = [
        tensors.constant(f"{name}_int32", integer_bias(node.name, node.input[2], tensors.known, sum_factors(layer)))
    ]
    inputs.append(tensors.constant(f"{name}_scale", factors))
    if factors.ndim:
        inputs.append(tensors.constant(f"{name}_zero_point", np.zeros(factors.shape, np.int32)))
    output = tensors.names.fresh(f"{name}_dequantized")
    yield tensors.node("DequantizeLinear", inputs, output, axis=0 if factors.ndim else None)
    return output


def _is_depthwise(tensors: QuantizedTensors, node: NodeProto) -> bool:
    """One input channel per group."""
    weight = tensors.known.get(node.input[1])
    return weight is not None and weight.dims[1] == 1 and _attribute(node, "group", 1) > 1


def _has_bias(node: NodeProto) -> bool:
    return len(node.input) > 2 and bool(node.input[2])


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)
