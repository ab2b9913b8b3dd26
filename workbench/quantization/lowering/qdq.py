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

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.apart import tensor_of
from workbench.graph.layers import quantizable_layers
from workbench.graph.nodes import Names, attributes_of, replace_nodes
from workbench.graph.read import constants
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.prepare import integer_bias, prepare, round_biases, sum_factors
from workbench.quantization.lowering.surgery import (
    check_layers,
    editable_copy,
    float_constant,
    prune_constants,
    rewired,
    weight_is_transposed,
)
from workbench.quantization.record import ActivationScale, LayerRecord, QuantizationRecord, WeightScale
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


# --- tensors on their way through a Q/DQ pair ------------------------------------------------------------------------


ActivationType = Literal["uint8", "int8"]
Floats = npt.NDArray[np.float32]

_Key = tuple[str, ActivationType, float, int]
"""Tensor, type, scale and zero point: what makes two quantized forms of a tensor the same."""


class QuantizedTensors:
    """A tensor gets one Q/DQ pair per scale, a weight one constant, however many layers read it.

    Attributes:
        nodes: of the growing graph, in execution order; methods append what is new, and return the tensor's name.

    Args:
        seven_bits: weights are within ±64, for kernels that add pairs of products in 16 bits: twice the scales, and
            nearest rounding, since what was learned was learned for other integers.
    """

    def __init__(self, model: ModelProto, *, seven_bits: bool = False) -> None:
        self._seven_bits = seven_bits
        self.graph = model.graph
        self.nodes: list[NodeProto] = []
        self.names = Names(model.graph)
        self.known = constants(model)
        self._quantized: dict[_Key, str] = {}
        self._dequantized: dict[_Key, str] = {}
        self._weights: dict[tuple[str, WeightScale, bool], str] = {}
        self._stored: dict[tuple[str, bytes], str] = {}

    def quantized(self, parameters: ActivationScale, kind: ActivationType) -> str:
        """An activation's integers. Readers with equal scales share them; one with a scale of its own gets its own."""
        key = _key(parameters, kind)
        if key not in self._quantized:
            name = self.names.fresh(f"{parameters.tensor}_quantized")
            self.add("QuantizeLinear", [parameters.tensor, *self.parameters(parameters, kind)], name)
            self._quantized[key] = name
        return self._quantized[key]

    def dequantized(self, parameters: ActivationScale, kind: ActivationType) -> str:
        """An activation after a Q/DQ pair."""
        key, quantized = _key(parameters, kind), self.quantized(parameters, kind)
        if key not in self._dequantized:
            name = self.names.fresh(f"{parameters.tensor}_dequantized")
            self.add("DequantizeLinear", [quantized, *self.parameters(parameters, kind)], name)
            self._dequantized[key] = name
        return self._dequantized[key]

    def requantized(self, parameters: ActivationScale, floats: str) -> None:
        """The Q/DQ pair that makes a layer's own output of its float result; readers with that scale share it."""
        tensor, key = parameters.tensor, _key(parameters, "uint8")
        scale = self.parameters(parameters, "uint8")
        self._quantized[key] = self.add("QuantizeLinear", [floats, *scale], self.names.fresh(f"{tensor}_quantized"))
        self._dequantized[key] = self.add("DequantizeLinear", [self._quantized[key], *scale], tensor)

    def weight(self, layer: str, name: str, weight: WeightScale, *, transposed: bool = False) -> str:
        """A weight behind its DequantizeLinear, transposed where asked.

        Raises:
            LoweringError: it is no float32 constant, holds NaN, or does not fit the record.
        """
        name, values = self.floats(layer, name)
        key = (name, weight, transposed)
        if key in self._weights:
            return self._weights[key]
        if self._seven_bits:
            weight = replace(weight, scales=tuple(2 * scale for scale in weight.scales), rounding=None)
        integers = fitting_integers(layer, values, weight)
        if self._seven_bits:
            integers = integers.clip(-64, 64)
        scale = scales_along(weight, values.shape).reshape([] if weight.axis is None else [-1])
        axis = None if weight.axis is None else weight.axis % values.ndim
        if transposed:
            integers = np.ascontiguousarray(integers.T)
            axis = None if axis is None else 1 - axis
        inputs = [
            self.constant(f"{name}_int8", integers),
            self.constant(f"{name}_scale", scale),
            self.constant(f"{name}_zero_point", np.zeros(scale.shape, np.int8)),
        ]
        output = self.names.fresh(f"{name}_dequantized")
        self._weights[key] = self.add("DequantizeLinear", inputs, output, **({} if axis is None else {"axis": axis}))
        return output

    def floats(self, layer: str, name: str) -> tuple[str, Floats]:
        """A weight's own name (several may alias one constant) and its values.

        Raises:
            LoweringError: it is no float32 constant, or holds NaN.
        """
        if name not in self.known:
            raise LoweringError(f"{layer}: its second factor {name} is no constant; the record has a weight.")
        tensor = self.known[name]
        name = tensor.name or name
        return name, float_constant(name, tensor, layer)

    def parameters(self, activation: ActivationScale, kind: ActivationType) -> tuple[str, str]:
        """Names of an activation's scale and zero point."""
        zero_point = np.int8(activation.zero_point) if kind == "int8" else np.uint8(activation.zero_point + 128)
        return (
            self.constant(f"{activation.tensor}_scale", np.asarray(activation.scale, np.float32)),
            self.constant(f"{activation.tensor}_zero_point", np.asarray(zero_point)),
        )

    def constant(self, wish: str, values: npt.NDArray[np.generic] | np.generic) -> str:
        """Name of an initializer with these values; asked for again with the same wish, it is the same one."""
        tensor: TensorProto = tensor_of(np.asarray(values))
        key = (wish, tensor.SerializeToString(deterministic=True))
        if key not in self._stored:
            tensor.name = self._stored[key] = self.names.fresh(wish)
            self.graph.initializer.append(tensor)
            self.known[tensor.name] = tensor
        return self._stored[key]

    def add(self, op_type: str, inputs: Sequence[str], output: str, **attributes: float) -> str:
        name = self.names.fresh(f"{output}_{op_type}")
        node = helper.make_node(op_type, inputs, [output], name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self.nodes.append(node)
        return output


def fitting_integers(layer: str, values: Floats, weight: WeightScale, groups: int = 1) -> npt.NDArray[np.int8]:
    """The weight's int8 form in its own layout.

    Raises:
        LoweringError: the record's scales or rounding do not fit the weight.
    """
    try:
        return integers_of(values, weight, groups)
    except ValueError as error:
        raise LoweringError(f"{layer}: {error}. The record belongs to another model; calibrate again.") from error


def check_tensor(node: NodeProto, tensor: str, recorded: ActivationScale) -> None:
    """Raises LoweringError where the record means another tensor."""
    if tensor != recorded.tensor:
        raise LoweringError(
            f"{node.name}: the record has a scale for {recorded.tensor!r}, the model gives it {tensor!r}. "
            "The record belongs to another model; calibrate again."
        )


def _key(parameters: ActivationScale, kind: ActivationType) -> _Key:
    return parameters.tensor, kind, parameters.scale, parameters.zero_point
