"""convert_qat_model: a QDQ model (quantization-aware training) as deploy and fake-quant models (amct.md §6.7).

    x ─► Q ─► DQ ─► Conv ◄─ DQ ◄─ int8 weight          x ─► AscendQuant ─► Conv(int8) ─► AscendDequant

The model is turned back into a float model and a record, and lowered like any other: weights on the int8 grid give
the same integers again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.cann_emulator.amct_onnx.configuration import PathLike
from workbench.cann_emulator.amct_onnx.files import write
from workbench.cann_emulator.amct_onnx.layers import read_float_model
from workbench.cann_emulator.amct_onnx.log import say
from workbench.cann_emulator.amct_onnx.quantize import save_deploy
from workbench.graph.layers import quantizable_layers
from workbench.graph.nodes import replace_nodes
from workbench.graph.read import constants
from workbench.quantization.amct.record_file import record_text
from workbench.quantization.lowering.ascend_quant import ANTI_QUANT, QUANT
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.lowering.surgery import prune_constants
from workbench.quantization.record import (
    ActivationScale,
    LayerRecord,
    Provenance,
    QuantizationRecord,
    WeightScale,
)
from workbench.values.errors import LoweringError

_Array = npt.NDArray[Any]
_Q, _DQ = "QuantizeLinear", "DequantizeLinear"
_PER_CHANNEL = ("Conv", "ConvTranspose")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Factors of a Q/DQ pair, or of the DQ of a constant; zero points in the int8 domain.

    Attributes:
        source: the tensor before QuantizeLinear; None for a constant.
    """

    source: str | None
    scales: _Array
    zero_points: _Array
    axis: int


def convert_qat_model(model_file: PathLike, save_path: PathLike, record_file: PathLike | None = None) -> None:
    """Write the deploy model, the fake-quant model and, where it is asked for, the record file of a QDQ model.

    Raises:
        RuntimeError: the model has no layer between Q/DQ pairs, or one beyond the limits of amct.md §6.7.
    """
    qdq = read_float_model(model_file).original
    known = constants(qdq)
    made_by = {name: node for node in qdq.graph.node for name in node.output}
    pairs = {node.output[0]: _pair(node, made_by, known) for node in qdq.graph.node if node.op_type == _DQ}
    proto = normalized(_float_model(qdq, pairs, known))
    readers = {node.name: node for node in qdq.graph.node}
    records: list[LayerRecord] = []
    additions: dict[str, _Pair] = {}
    for layer in quantizable_layers(proto):
        node = readers[layer.name]
        first = pairs.get(node.input[0])
        weight = pairs.get(node.input[1]) if len(node.input) > 1 else None
        if first is None or first.source is None or weight is None or layer.weight is None:
            continue
        records.append(_layer_record(layer.name, node.op_type, layer.activation, first, weight, layer.output_axis))
    for node in qdq.graph.node:
        if node.op_type == "Add":
            for name in node.input:
                if name in pairs and pairs[name].source is not None:
                    additions[name] = pairs[name]
    served = {readers[layer.layer].input[0] for layer in records} | additions.keys()
    dropped = [name for name, pair in pairs.items() if pair.source is not None and name not in served]
    if dropped:
        words = (
            f"{len(dropped)} Q/DQ pairs are before no layer that is converted, and removed: {', '.join(dropped[:5])}"
        )
        say(words, level=logging.WARNING)
    if not records and not additions:
        raise RuntimeError(f"{os.path.realpath(model_file)} has no layer between QuantizeLinear and DequantizeLinear.")
    record = QuantizationRecord(
        model_sha256="0" * 64,
        layers=tuple(records),
        float_layers=(),
        provenance=Provenance(engine="amct-file", recipe={}, statistics=None, code_revision=""),
        fold_balance=False,
    )
    try:
        deploy = lower_deploy(proto, record)
    except LoweringError as error:
        raise RuntimeError(str(error)) from error
    _quantize_additions(deploy, qdq, additions)
    save_deploy(deploy, save_path, force_fp16=False)
    if record_file is not None:
        write(record_file, record_text(record))
    say(f"Convert QAT model success: {len(records)} layers.")


def _pair(node: NodeProto, made_by: Mapping[str, NodeProto], known: Mapping[str, TensorProto]) -> _Pair:
    scales, zero_points, axis = _factors(node, known)
    if node.input[0] in known:
        return _Pair(source=None, scales=scales, zero_points=zero_points, axis=axis)
    before = made_by.get(node.input[0])
    if before is None or before.op_type != _Q:
        raise RuntimeError(f"{node.name}: DequantizeLinear without a QuantizeLinear before it cannot be converted.")
    other_scales, other_zero_points, other_axis = _factors(before, known)
    same = np.array_equal(scales, other_scales) and np.array_equal(zero_points, other_zero_points)
    if not same or axis != other_axis:
        raise RuntimeError(f"{before.name} and {node.name} must have the same scale and zero point.")
    constant = before.input[0] in known
    return _Pair(source=None if constant else before.input[0], scales=scales, zero_points=zero_points, axis=axis)


def _factors(node: NodeProto, known: Mapping[str, TensorProto]) -> tuple[_Array, _Array, int]:
    if any(name not in known for name in node.input[1:]):
        raise RuntimeError(f"{node.name}: scale and zero point must be constants.")
    scales = numpy_helper.to_array(known[node.input[1]]).astype(np.float32).reshape(-1)
    points = numpy_helper.to_array(known[node.input[2]]) if len(node.input) > 2 else np.zeros(1, np.uint8)
    shift = 128 if points.dtype == np.uint8 else 0
    axis = next((helper.get_attribute_value(a) for a in node.attribute if a.name == "axis"), 1)
    # a zero point beyond int8 (they may be int32) is legalised (amct.md §6.7)
    return scales, np.clip(points.astype(np.int64).reshape(-1) - shift, -128, 127), int(axis)


def _float_model(qdq: ModelProto, pairs: Mapping[str, _Pair], known: Mapping[str, TensorProto]) -> ModelProto:
    """The model without Q and DQ: constants dequantized, activations as they were."""
    model = ModelProto()
    model.CopyFrom(qdq)
    renamed: dict[str, str] = {}
    made_by = {name: node for node in qdq.graph.node for name in node.output}
    for output, pair in pairs.items():
        if pair.source is not None:
            renamed[output] = pair.source
            continue
        node = made_by[output]
        model.graph.initializer.append(numpy_helper.from_array(_dequantized(node, made_by, known), output))
    kept = []
    outputs = {value.name for value in qdq.graph.output}
    for node in model.graph.node:
        if node.op_type in (_Q, _DQ):
            if node.output[0] in outputs:
                raise RuntimeError(
                    f"{node.name}: a {node.op_type} that gives the model's output is not converted here."
                )
            continue
        names = [renamed.get(name, name) for name in node.input]
        del node.input[:]
        node.input.extend(names)
        kept.append(node)
    replace_nodes(model.graph, kept)
    prune_constants(model.graph)
    return model


def _dequantized(node: NodeProto, made_by: Mapping[str, NodeProto], known: Mapping[str, TensorProto]) -> _Array:
    scales, _, axis = _factors(node, known)
    points = numpy_helper.to_array(known[node.input[2]]) if len(node.input) > 2 else np.zeros(1, np.uint8)
    if node.input[0] in known:
        stored = numpy_helper.to_array(known[node.input[0]])
        low, high = -(2**31), 2**31 - 1
    else:
        stored = numpy_helper.to_array(known[made_by[node.input[0]].input[0]])
        low, high = (0, 255) if points.dtype == np.uint8 else (-128, 127)
    shape = [1] * stored.ndim
    if scales.size > 1:
        shape[axis] = -1
    steps, shifts = (
        scales.reshape(shape),
        points.astype(np.int64).reshape(shape if points.size > 1 else [1] * stored.ndim),
    )
    if node.input[0] not in known:
        stored = np.clip(np.rint(stored / steps) + shifts, low, high)
    result: _Array = ((stored.astype(np.int64) - shifts) * steps).astype(np.float32)
    return result


def _layer_record(name: str, op_type: str, tensor: str, first: _Pair, weight: _Pair, axis: int | None) -> LayerRecord:
    if first.scales.size != 1:
        raise RuntimeError(f"{name}: only weights may be quantized per channel (amct.md §6.7).")
    if weight.scales.size > 1 and (op_type not in _PER_CHANNEL or weight.axis != axis):
        raise RuntimeError(f"{name}: the weight of a {op_type} must be quantized per tensor.")
    if weight.zero_points.any():
        raise RuntimeError(f"{name}: the weight's zero point must be 0.")
    scale, zero_point = float(first.scales[0]), int(first.zero_points[0])
    return LayerRecord(
        layer=name,
        op_type=op_type,
        activation=ActivationScale(
            tensor=tensor,
            scale=scale,
            zero_point=zero_point,
            low=(-128 - zero_point) * scale,
            high=(127 - zero_point) * scale,
        ),
        weight=WeightScale(
            scales=tuple(float(value) for value in weight.scales), axis=axis if weight.scales.size > 1 else None
        ),
    )


def _quantize_additions(deploy: ModelProto, qdq: ModelProto, additions: Mapping[str, _Pair]) -> None:
    """AscendQuant and AscendAntiQuant before the inputs of Add that came from a pair."""
    if not additions:
        return
    inputs = {node.name: list(node.input) for node in qdq.graph.node if node.op_type == "Add"}
    done: dict[str, str] = {}
    nodes: list[NodeProto] = []
    for node in deploy.graph.node:
        for index, before in enumerate(inputs.get(node.name, ())):
            pair = additions.get(before)
            if pair is None or pair.scales.size != 1:
                continue
            source = node.input[index]
            if source not in done:
                done[source] = f"{node.name}.anti_quant{index}.output0"
                nodes.extend(_there_and_back(source, done[source], f"{node.name}", index, pair))
            node.input[index] = done[source]
        nodes.append(node)
    replace_nodes(deploy.graph, nodes)


def _there_and_back(source: str, output: str, name: str, index: int, pair: _Pair) -> list[NodeProto]:
    scale, offset = float(pair.scales[0]), float(pair.zero_points[0])
    quantized = f"{name}.quant{index}.output0"
    inverse = float(np.float32(1) / np.float32(scale))
    return [
        onnx.helper.make_node(
            QUANT, [source], [quantized], name=f"{name}.quant{index}", scale=inverse, offset=offset, dst_type="INT8"
        ),
        onnx.helper.make_node(
            ANTI_QUANT, [quantized], [output], name=f"{name}.anti_quant{index}", scale=scale, offset=offset, dtype=0
        ),
    ]
