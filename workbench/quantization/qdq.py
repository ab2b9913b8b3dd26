"""Static INT8 as QuantizeLinear/DequantizeLinear (QDQ) around float operators, in the form ONNX Runtime executes.

    x ─► Q ─► DQ ─► MatMul ─► Add(bias)          activations uint8, weights int8: U8S8, the fast pair on x86
              w ─► DQ ──┘

What shapes the result (onnxruntime 1.31.1, measured; `tests/targets/test_onnxruntime.py` repeats it):

- A Gemm between float operators runs in float, so every Gemm becomes MatMul + Add.
- Only the layer reads the quantized tensor. Residual connections keep the float one: no DequantizeLinear is left
  in the compiled graph, and no second rounding in the sum.
- Outputs of MatMul stay float: MatMulIntegerToFloat writes them at the price of QLinearMatMul, and is more exact.
- A tensor read as the second factor of MatMul(activation, activation) is int8, so that this product is U8S8 too.
- Conv needs its output quantized as well, and becomes QLinearConv with an int32 bias.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.errors import LoweringError, nearest
from workbench.graph import constants
from workbench.quantization.record import ActivationScale, LayerRecord, QuantizationRecord, WeightScale
from workbench.quantization.surgery import (
    Names,
    bias_add,
    editable_copy,
    float_constant,
    matmul_parts,
    prune_constants,
    replace_nodes,
    scalar_or_vector,
)

ActivationType = Literal["uint8", "int8"]

_PER_TENSOR_OPSET = 10
_PER_CHANNEL_OPSET = 13  # QuantizeLinear and DequantizeLinear know `axis` from here on


def lower_static(proto: ModelProto, record: QuantizationRecord) -> ModelProto:
    """The model with a Q/DQ pair on every factor of every recorded layer; all else untouched.

    Pure and deterministic: `proto` is not changed, equal arguments give equal protos. Node names must be unique.
    Dynamic axes, inputs, outputs and the set of operator domains stay as they are; constants that only the float
    form used are gone.

    Raises:
        LoweringError: a recorded layer is absent or differs from the model (tensor, channels, scales of a shared
            tensor), cannot be quantized, has weights that are NaN, or the model's opset cannot be raised.
    """
    per_channel = any(layer.weight is not None and layer.weight.axis is not None for layer in record.layers)
    model = editable_copy(proto, opset=_PER_CHANNEL_OPSET if per_channel else _PER_TENSOR_OPSET)
    layers = {layer.layer: layer for layer in record.layers}
    _check_layers(model, layers)
    rewriter = _Rewriter(model)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        layer = layers.get(node.name)
        nodes.extend([node] if layer is None else rewriter.lower(node, layer))
    replace_nodes(model.graph, nodes)
    prune_constants(model.graph)
    return model


def quantize_weight(
    values: npt.NDArray[np.float32], scale: npt.NDArray[np.float32], axis: int | None
) -> npt.NDArray[np.int8]:
    """round_half_even(w / scale) clipped to [-128, 127], in float32 as ONNX's QuantizeLinear computes it."""
    if axis is not None:
        scale = scale.reshape([-1 if dim == axis else 1 for dim in range(values.ndim)])
    integers: npt.NDArray[np.int8] = np.clip(np.rint(values / scale), -128, 127).astype(np.int8)
    return integers


def _check_layers(model: ModelProto, layers: Mapping[str, LayerRecord]) -> None:
    found = {node.name: node.op_type for node in model.graph.node if node.name}
    for name, layer in layers.items():
        if name not in found:
            candidates = [n for n, op_type in found.items() if op_type == layer.op_type]
            raise LoweringError(f"Layer {name!r} of the record is not in the model. {nearest(name, candidates)}")
        if found[name] != layer.op_type:
            raise LoweringError(f"Layer {name!r} is a {layer.op_type} in the record and a {found[name]} in the model.")


class _Rewriter:
    """The growing graph: which tensors are quantized already, and under which names."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self._names = Names(model.graph)
        self._constants = constants(model)
        self._activations: dict[tuple[str, ActivationType], tuple[ActivationScale, str]] = {}
        self._weights: dict[tuple[str, WeightScale, bool, float], str] = {}

    def lower(self, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
        """The nodes that take the place of one recorded layer, in execution order."""
        if node.op_type == "Conv":
            yield from self._conv(node, layer)
        elif node.op_type not in ("MatMul", "Gemm"):
            raise LoweringError(f"{node.name}: {node.op_type} has no INT8 form here. Remove it from the record.")
        elif layer.second is not None:
            yield from self._product_of_activations(node, layer, layer.second)
        else:
            yield from self._matmul(node, layer)

    def _matmul(self, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
        parts = matmul_parts(node)
        self._check_tensor(node, parts.x, layer.activation)
        assert layer.weight is not None
        x = yield from self._activation(layer.activation, "uint8")
        w = yield from self._weight(node, parts.w, layer.weight, transposed=parts.transposed, factor=parts.alpha)
        product = node.output[0] if parts.bias is None else self._names.fresh(f"{node.output[0]}_product")
        yield helper.make_node("MatMul", [x, w], [product], name=node.name)
        if parts.bias is not None:
            yield bias_add(self._names, self._graph, node, parts, product, self._constants)

    def _product_of_activations(
        self, node: NodeProto, layer: LayerRecord, second: ActivationScale
    ) -> Iterator[NodeProto]:
        if node.op_type != "MatMul":
            raise LoweringError(
                f"{node.name}: a {node.op_type} of two activations cannot be lowered. Keep it in float."
            )
        self._check_tensor(node, node.input[0], layer.activation)
        self._check_tensor(node, node.input[1], second)
        a = yield from self._activation(layer.activation, "uint8")
        b = yield from self._activation(second, "int8")
        yield helper.make_node("MatMul", [a, b], list(node.output), name=node.name)

    def _conv(self, node: NodeProto, layer: LayerRecord) -> Iterator[NodeProto]:
        if layer.output is None or layer.weight is None:
            raise LoweringError(f"{node.name}: a Conv needs the scale of its output in the record. Calibrate again.")
        self._check_tensor(node, node.input[0], layer.activation)
        self._check_tensor(node, node.output[0], layer.output)
        x = yield from self._activation(layer.activation, "uint8")
        w = yield from self._weight(node, node.input[1], layer.weight, transposed=False, factor=1.0)
        inputs = [x, w]
        if len(node.input) > 2 and node.input[2]:
            inputs.append((yield from self._conv_bias(node, layer)))
        lowered = NodeProto()
        lowered.CopyFrom(node)
        del lowered.input[:]
        lowered.input.extend(inputs)
        output = node.output[0]
        lowered.output[0] = self._names.fresh(f"{output}_float")
        yield lowered
        scale, zero_point = self._parameters(layer.output, "uint8")
        quantized = self._names.fresh(f"{output}_quantized")
        yield self._node("QuantizeLinear", [lowered.output[0], scale, zero_point], quantized)
        yield self._node("DequantizeLinear", [quantized, scale, zero_point], output)
        # readers of this output that are quantized themselves share the pair when they use the same scale
        self._activations[output, "uint8"] = (layer.output, output)

    def _conv_bias(self, node: NodeProto, layer: LayerRecord) -> Generator[NodeProto, None, str]:
        """The DequantizeLinear of an int32 bias with scale x_scale · w_scale; returns the tensor's name."""
        name = node.input[2]
        if name not in self._constants:
            raise LoweringError(f"{node.name}: the bias {name} is computed. Keep this Conv in float.")
        assert layer.weight is not None
        values = float_constant(name, self._constants[name], node.name)
        channels = layer.weight.axis is not None
        scale = np.float32(layer.activation.scale) * scalar_or_vector(layer.weight.scales, per_channel=channels)
        integers = np.rint(values.astype(np.float64) / scale)
        if np.abs(integers).max(initial=0.0) > np.iinfo(np.int32).max:
            raise LoweringError(f"{node.name}: its bias does not fit into int32 at scale {scale.min():g}.")
        constant = self._constant(f"{name}_int32", integers.astype(np.int32))
        inputs = [constant, self._constant(f"{name}_scale", scale)]
        if channels:
            inputs.append(self._constant(f"{name}_zero_point", np.zeros(scale.shape, np.int32)))
        output = self._names.fresh(f"{name}_dequantized")
        yield self._node("DequantizeLinear", inputs, output, axis=0 if channels else None)
        return output

    def _activation(self, parameters: ActivationScale, kind: ActivationType) -> Generator[NodeProto, None, str]:
        """Nodes of a tensor's Q/DQ pair where it is still missing; returns the dequantized tensor's name."""
        tensor = parameters.tensor
        if (tensor, kind) in self._activations:
            earlier, name = self._activations[tensor, kind]
            if (earlier.scale, earlier.zero_point) != (parameters.scale, parameters.zero_point):
                raise LoweringError(
                    f"{tensor}: the record gives two scales, {earlier.scale:g} and {parameters.scale:g}, to one "
                    "tensor. Layers that share an input must share its scale."
                )
            return name
        scale, zero_point = self._parameters(parameters, kind)
        quantized = self._names.fresh(f"{tensor}_quantized")
        dequantized = self._names.fresh(f"{tensor}_dequantized")
        yield self._node("QuantizeLinear", [tensor, scale, zero_point], quantized)
        yield self._node("DequantizeLinear", [quantized, scale, zero_point], dequantized)
        self._activations[tensor, kind] = (parameters, dequantized)
        return dequantized

    def _weight(
        self, node: NodeProto, name: str, weight: WeightScale, *, transposed: bool, factor: float
    ) -> Generator[NodeProto, None, str]:
        """Nodes of a weight's DQ where it is still missing; returns the dequantized tensor's name."""
        if name not in self._constants:
            raise LoweringError(f"{node.name}: its second factor {name} is no constant; the record has a weight.")
        tensor = self._constants[name]
        name = tensor.name or name  # several names may alias one constant
        key = (name, weight, transposed, factor)
        if key in self._weights:
            return self._weights[key]
        values = float_constant(name, tensor, node.name)
        axis = weight.axis
        scale = scalar_or_vector(weight.scales, per_channel=axis is not None)
        if axis is not None:
            axis = axis if axis >= 0 else axis + values.ndim
            if not 0 <= axis < values.ndim or values.shape[axis] != scale.size:
                raise LoweringError(
                    f"{node.name}: {scale.size} scales on axis {weight.axis} of a weight of shape {values.shape}."
                )
        integers = quantize_weight(values, scale, axis)
        if transposed:
            integers = np.ascontiguousarray(integers.T)
            axis = None if axis is None else 1 - axis
        inputs = [self._constant(f"{name}_int8", integers)]
        inputs.append(self._constant(f"{name}_scale", scale * np.float32(factor)))
        inputs.append(self._constant(f"{name}_zero_point", np.zeros(scale.shape, np.int8)))
        output = self._names.fresh(f"{name}_dequantized")
        yield self._node("DequantizeLinear", inputs, output, axis=axis)
        self._weights[key] = output
        return output

    def _parameters(self, activation: ActivationScale, kind: ActivationType) -> tuple[str, str]:
        zero_point = np.int8(activation.zero_point) if kind == "int8" else np.uint8(activation.zero_point + 128)
        return (
            self._constant(f"{activation.tensor}_scale", np.asarray(activation.scale, np.float32)),
            self._constant(f"{activation.tensor}_zero_point", np.asarray(zero_point)),
        )

    def _constant(self, wish: str, values: npt.NDArray[np.generic]) -> str:
        tensor: TensorProto = numpy_helper.from_array(values, self._names.fresh(wish))
        self._graph.initializer.append(tensor)
        return tensor.name

    def _node(self, op_type: str, inputs: list[str], output: str, axis: int | None = None) -> NodeProto:
        node = helper.make_node(op_type, inputs, [output], name=self._names.fresh(f"{output}_{op_type}"))
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
        return node

    def _check_tensor(self, node: NodeProto, tensor: str, recorded: ActivationScale) -> None:
        if tensor != recorded.tensor:
            raise LoweringError(
                f"{node.name}: the record has a scale for {recorded.tensor!r}, the model gives it {tensor!r}. "
                "The record belongs to another model; calibrate again."
            )
