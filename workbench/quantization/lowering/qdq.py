"""Static INT8 as QuantizeLinear/DequantizeLinear (QDQ) around float operators, in the form ONNX Runtime executes.

    x ─► Q ─► DQ ─► MatMul ─► Add(bias)          activations uint8, weights int8: U8S8, the fast pair on x86
              w ─► DQ ──┘

What shapes the result (onnxruntime 1.31.1, measured; `tests/targets/onnxruntime/test_target.py` repeats it):

- A Gemm between float operators runs in float, so every Gemm becomes MatMul + Add.
- Only the layer reads the quantized tensor. Residual connections keep the float one: no DequantizeLinear is left
  in the compiled graph, and no second rounding in the sum.
- Outputs of MatMul stay float: MatMulIntegerToFloat writes them at the price of QLinearMatMul, and is more exact.
- A tensor read as the second factor of MatMul(activation, activation) is int8, so that this product is U8S8 too.
- Convolutions have three forms, see `qdq_convolution`. AveragePool reads a Q/DQ pair and computes in float: the
  runtime has no integer kernel for it that gives a float result.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import ModelProto, NodeProto, helper

from workbench.graph.nodes import replace_nodes
from workbench.quantization.lowering.integer_bias import round_biases
from workbench.quantization.lowering.prepare import prepare
from workbench.quantization.lowering.qdq_convolution import lowered_convolution
from workbench.quantization.lowering.qdq_tensors import QuantizedTensors, check_tensor
from workbench.quantization.lowering.surgery import (
    bias_add,
    check_layers,
    editable_copy,
    matmul_parts,
    prune_constants,
    rewired,
)
from workbench.quantization.record import ActivationScale, LayerRecord, QuantizationRecord
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
