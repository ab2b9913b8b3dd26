"""The QDQ form that OpenVINO's CPU plugin executes in integers: the record before, and the graph after `lower_static`.

What shapes it (OpenVINO 2026.4.1, AVX512-VNNI, measured; `tests/targets/openvino/test_target.py` repeats the counts):

- A product of two activations runs in integers only when neither factor has a zero point. One that stays in float for
  this reason pays for conversions that cost more than INT8 gains elsewhere in the attention block.
- The pair of a product's factor must stand at the projection that makes the tensor, before Reshape, Transpose and the
  division by the root of the head size: then the projection's kernel writes int8. Other pairs stay where they are: to
  transpose bytes takes OpenVINO twice as long as to transpose floats.
- Products are fastest on int8 factors, layers with weights on uint8: int8 inputs cost those 16 % more at
  (batch, length) = (8, 64).
- A Conv runs in integers as it stands between dequantized factors, whatever becomes of its output; ConvInteger does
  not. With its output and the tensors of additions rounded too, nothing between the layers of a residual net is float.
- A 1×1 Conv with strides runs in float: a MaxPool is put before it, in the middle of its Q/DQ pair. Ours stands before
  the pair is looked at (`strides.py`).
- A Conv without bias, or with one of 0, whose input has a zero point is wrong by the zero point's share where more
  than one operator reads it: 93 to 100 % of the result in a net of one layer. Any other bias puts it right.
- SiLU and hard-swish belong to the convolution's kernel while they are float.
- On AVX2 every integer kernel but that of depthwise convolutions adds pairs of products in 16 bits, of any types. With
  weights within ±64 all are exact; a product of activations, whose factors take all their steps, stays in float there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from workbench.graph.apart import array_of, tensor_of
from workbench.graph.nodes import Names, copied, names_read, replace_nodes
from workbench.graph.read import constants
from workbench.quantization.lowering.elementwise import with_integers_between
from workbench.quantization.lowering.prepare import prepare
from workbench.quantization.lowering.qdq import QuantizedTensors, check_tensor, lower_static
from workbench.quantization.lowering.strides import with_strides_moved_up
from workbench.quantization.lowering.surgery import editable_copy, prune_constants
from workbench.quantization.record import ActivationScale, LayerRecord, QuantizationRecord
from workbench.values.errors import LoweringError

_ROUNDED_FOR = (["Add"], ["Relu"], ["Clip"])
"""Who may read a convolution's rounded output, alone: behind a Concat of two scales results are wrong."""
_NOTHING = 1e-30
"""Vanishes in every sum of float32; OpenVINO drops a bias of 0."""
_MOVES_VALUES = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that commute with per-tensor quantization of their first input."""


def without_zero_points(record: QuantizationRecord) -> QuantizationRecord:
    """The record with symmetric scales for every factor of a product of activations; other tensors as they were.

    A first factor that is never negative (Softmax) keeps all 256 steps as uint8 with zero point 0, here -128. Every
    other one gets scale max(-low, high) / 127. A tensor that layers with weights read too is changed for them as well.
    """
    second = {layer.second.tensor for layer in record.layers if layer.second is not None}
    first = {layer.activation.tensor for layer in record.layers if layer.second is not None}

    def changed(activation: ActivationScale) -> ActivationScale:
        kept = (0,) if activation.tensor in second else (0, -128)
        if activation.tensor not in first | second or activation.zero_point in kept:
            return activation
        high = max(-activation.low, activation.high)
        return replace(activation, scale=high / 127, zero_point=0, low=-high, high=high)

    def symmetric(layer: LayerRecord) -> LayerRecord:
        return replace(
            layer,
            activation=changed(layer.activation),
            second=None if layer.second is None else changed(layer.second),
            output=None if layer.output is None else changed(layer.output),
        )

    return replace(record, layers=tuple(symmetric(layer) for layer in record.layers))


def openvino_form(
    proto: ModelProto, record: QuantizationRecord, *, saturates: bool = False, integers_between: bool = False
) -> ModelProto:
    """The model with every recorded layer between Q/DQ pairs, as OpenVINO executes them in integers.

    Pure and deterministic: equal arguments give equal protos. Products of activations use the scales of
    `without_zero_points`, all else those of the record. Biases stay float.

    Args:
        saturates: the form for processors that add pairs of products in 16 bits.
        integers_between: with 8-bit tensors between layers, see `with_integers_between`.

    Raises:
        LoweringError: as `lower_static`.
    """
    if saturates:
        record = replace(record, layers=tuple(layer for layer in record.layers if layer.second is None))
    symmetric = without_zero_points(record)
    prepared = prepare(proto, symmetric)
    layers = [replace(layer, balance=None, bias_correction=None) for layer in symmetric.layers]  # prepared above
    readers: dict[str, list[str]] = {}
    for node in prepared.graph.node:
        for name in names_read(node):
            readers.setdefault(name, []).append(node.op_type)
    convolutions = {
        layer.layer: layer
        for layer in layers
        if layer.op_type == "Conv"
        and not (integers_between and layer.output is not None and readers.get(layer.output.tensor) in _ROUNDED_FOR)
    }
    others = tuple(layer for layer in layers if layer.layer not in convolutions)
    model = lower_static(prepared, replace(symmetric, layers=others), seven_bits=saturates)
    model = _with_quantized_factors(model, convolutions, saturates)
    if integers_between:
        model = with_integers_between(model, everything=False)
    model = _with_biases(with_strides_moved_up(model, everywhere=True))
    return at_the_source(model, {layer.layer for layer in layers if layer.second is not None})


def _with_quantized_factors(model: ModelProto, convolutions: Mapping[str, LayerRecord], seven_bits: bool) -> ModelProto:
    missing = convolutions.keys() - {node.name for node in model.graph.node if node.op_type == "Conv"}
    for name in sorted(missing):
        raise LoweringError(f"Conv {name!r} of the record is not in the model. Calibrate again.")
    if not convolutions:
        return model
    result = editable_copy(model, opset=13)  # from here on DequantizeLinear knows `axis`
    tensors = QuantizedTensors(result, seven_bits=seven_bits)
    for node in result.graph.node:
        layer = convolutions.get(node.name)
        if layer is not None:
            if layer.weight is None:
                raise LoweringError(f"{node.name}: the record has no weight scale for this Conv. Calibrate again.")
            check_tensor(node, node.input[0], layer.activation)
            node.input[0] = tensors.dequantized(layer.activation, "uint8")
            node.input[1] = tensors.weight(node.name, node.input[1], layer.weight)
        tensors.nodes.append(node)
    replace_nodes(result.graph, tensors.nodes)
    prune_constants(result.graph)
    return result


def _with_biases(model: ModelProto) -> ModelProto:
    """With a bias that adds nothing for each quantized Conv whose bias is 0 or absent, see above."""
    makers = {name: node for node in model.graph.node for name in node.output}
    known = constants(model)
    names = Names(model.graph)

    def stored(name: str) -> str:
        """Of a dequantized constant the integers; the name itself otherwise."""
        return makers[name].input[0] if name in makers and makers[name].op_type == "DequantizeLinear" else name

    for node in model.graph.node:
        if node.op_type != "Conv" or stored(node.input[1]) == node.input[1] or stored(node.input[1]) not in known:
            continue
        given = [stored(name) for name in node.input[2:] if name]
        if any(name not in known or array_of(known[name]).any() for name in given):
            continue
        values = np.full(known[stored(node.input[1])].dims[0], _NOTHING, np.float32)
        bias = tensor_of(values, names.fresh(f"{node.name}_bias"))
        model.graph.initializer.append(bias)
        node.input[2:] = [bias.name]
    prune_constants(model.graph)
    return model


def at_the_source(model: ModelProto, products: Collection[str]) -> ModelProto:
    """A model from `lower_static` with the Q/DQ pairs of products moved up to the operator that computes the values.

    A pair moves above operators that only move values, and above a multiplication by a positive scalar, which its
    scale takes over; not above a tensor that anything else reads. It becomes int8 where its zero point is 0. Tensors
    keep their names: those between the new place and the old one hold dequantized values.

    Pure and deterministic. Rounding differs from that of the given model where the scalar is no power of two, and
    there only for values within one float32 rounding of a tie.

    Args:
        products: names of the MatMuls of two activations.
    """
    result = copied(model)
    graph, known, names = result.graph, constants(result), Names(result.graph)
    made_by = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in names_read(node):
            readers.setdefault(name, []).append(node)
    outputs = {output.name for output in graph.output}
    dropped: set[str] = set()  # nodes by their output, as below
    renamed: dict[str, str] = {}  # what a pair gave → the tensor that carries its values now
    before: dict[str, list[NodeProto]] = {}  # node → the pairs that come before it
    for dequantize in graph.node:
        quantize = made_by.get(dequantize.input[0]) if dequantize.op_type == "DequantizeLinear" else None
        if quantize is None or quantize.op_type != "QuantizeLinear" or not _per_tensor(quantize, known):
            continue
        was_integers, was_floats = quantize.output[0], dequantize.output[0]
        after = readers.get(was_floats, [])
        in_subgraphs = any(was_floats not in reader.input for reader in after)
        if len(readers[was_integers]) != 1 or was_floats in outputs or in_subgraphs:
            continue
        if not any(reader.name in products for reader in after):
            continue
        first, tensor, factor = quantize, quantize.input[0], 1.0
        while len(readers[tensor]) == 1 and tensor not in outputs:
            step = _passable(made_by.get(tensor), known)
            if step is None:
                break
            first, tensor, factor = made_by[tensor], step[0], factor * step[1]
        zero_point = array_of(known[quantize.input[2]])
        signed = zero_point.dtype == np.uint8 and int(zero_point) == 128
        if first is quantize and not signed:
            continue
        scale = np.asarray(float(array_of(known[quantize.input[1]])) / factor, np.float32)
        parameters = []
        for part, value in (("scale", scale), ("zero_point", np.asarray(0, np.int8) if signed else zero_point)):
            parameters.append(names.fresh(f"{tensor}_{part}"))
            graph.initializer.append(tensor_of(value, parameters[-1]))
        integers, floats = was_integers, was_floats
        if first is not quantize:
            integers, floats = (names.fresh(f"{tensor}_{kind}") for kind in ("quantized", "dequantized"))
            first.input[list(first.input).index(tensor)] = floats
            renamed[was_floats] = quantize.input[0]
        before.setdefault(first.output[0], []).extend(
            (
                helper.make_node("QuantizeLinear", [tensor, *parameters], [integers], name=quantize.name),
                helper.make_node("DequantizeLinear", [integers, *parameters], [floats], name=dequantize.name),
            )
        )
        dropped.update((was_integers, was_floats))
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes.extend(before.get(node.output[0], ()))
        if node.output[0] not in dropped:
            for index, name in enumerate(node.input):
                node.input[index] = renamed.get(name, name)
            nodes.append(node)
    replace_nodes(graph, nodes)
    prune_constants(graph)
    return result


def _per_tensor(quantize: NodeProto, known: dict[str, TensorProto]) -> bool:
    return (
        len(quantize.input) == 3
        and all(name in known for name in quantize.input[1:])
        and not known[quantize.input[1]].dims
        and known[quantize.input[2]].data_type in (TensorProto.UINT8, TensorProto.INT8)
    )


def _passable(node: NodeProto | None, known: dict[str, TensorProto]) -> tuple[str, float] | None:
    """(the input that the values come from, the positive scalar they are multiplied by), None for another operator."""
    if node is None or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type in _MOVES_VALUES:
        return (node.input[0], 1.0) if node.input[0] not in known else None
    if node.op_type not in ("Mul", "Div"):
        return None
    scalars = [i for i, name in enumerate(node.input) if name in known and list(known[name].dims) in ([], [1])]
    if len(scalars) != 1 or (node.op_type == "Div" and scalars != [1]):
        return None
    value = float(array_of(known[node.input[scalars[0]]]).item())
    if not (np.isfinite(value) and value > 0):
        return None
    return node.input[1 - scalars[0]], value if node.op_type == "Mul" else 1 / value
