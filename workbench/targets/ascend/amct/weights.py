"""Which integers AMCT chose for the weights: its record has their scales only.

With learned rounding (ada_quantize) AMCT's integers are not the nearest ones, and its deploy model is where they stand.
They are taken from there as the record's rounding bits, so that every lowering of the record has AMCT's integers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, helper

from workbench.graph.apart import array_of
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants
from workbench.quantization.lowering.prepare import prepare
from workbench.quantization.record import LayerRecord, QuantizationRecord
from workbench.quantization.rounding import encoded_bits
from workbench.quantization.weights import scales_over
from workbench.values.errors import CalibrationError


def with_amcts_integers(
    record: QuantizationRecord, proto: ModelProto, deploy: ModelProto, *, learned: bool
) -> QuantizationRecord:
    """The record with rounding bits for layers whose weights AMCT did not round to the nearest integer.

    Args:
        proto: the normalized float model that AMCT was given.
        deploy: AMCT's deploy model of it.
        learned: AMCT learned its rounding. Otherwise a layer that AMCT gave another name is taken to be rounded to
            nearest, as ARQ does.

    Raises:
        CalibrationError: AMCT's integers are none of the two beside w / scale: the files do not belong together.
    """
    prepared = prepare(proto, record)
    stored = constants(prepared)
    theirs, nodes = constants(deploy), {node.name: node for node in deploy.graph.node}
    layers = {layer.name: layer for layer in quantizable_layers(prepared)}
    found: list[LayerRecord] = []
    for recorded in record.layers:
        layer, node = layers[recorded.layer], nodes.get(recorded.layer)
        if recorded.weight is None or layer.weight is None:
            found.append(recorded)
            continue
        if node is None or len(node.input) < 2 or node.input[1] not in theirs:
            if learned:
                raise CalibrationError(
                    f"AMCT's deploy model has no layer {recorded.layer!r} with a constant weight, so that its learned "
                    "rounding cannot be read. Use arq_quantize."
                )
            found.append(recorded)
            continue
        integers = _as_stored(array_of(theirs[node.input[1]]), node, layer)
        values = array_of(stored[layer.weight])
        bits = _rounding(values, integers, recorded, layer)
        if bits is None:
            found.append(recorded)
        else:
            found.append(replace(recorded, weight=replace(recorded.weight, rounding=encoded_bits(bits))))
    return replace(record, layers=tuple(found))


def _as_stored(integers: npt.NDArray[Any], node: NodeProto, layer: Layer) -> npt.NDArray[Any]:
    """AMCT writes a Gemm's weight for transB = 0 (amct.md §6.4), whatever the float model has."""
    transposed = any(a.name == "transB" and helper.get_attribute_value(a) for a in node.attribute)
    return integers.T if layer.transposed and not transposed else integers


def _rounding(
    values: npt.NDArray[np.float32], integers: npt.NDArray[Any], recorded: LayerRecord, layer: Layer
) -> npt.NDArray[np.bool_] | None:
    """q - floor(w / scale) of every weight; None where q is the nearest integer everywhere."""
    assert recorded.weight is not None
    if integers.dtype != np.int8 or integers.shape != values.shape:
        raise CalibrationError(
            f"{recorded.layer}: AMCT's weight is {integers.dtype} {integers.shape}, the model's has shape "
            f"{values.shape}."
        )
    quotients = values / scales_over(recorded.weight, values.shape, layer)
    if np.array_equal(np.clip(np.rint(quotients), -128, 127), integers):
        return None
    lower = np.floor(quotients)
    difference = integers - np.clip(lower, -128, 127)
    if not np.isin(difference, (0, 1)).all():
        worst = float(np.abs(integers - quotients).max())
        raise CalibrationError(
            f"{recorded.layer}: an integer of AMCT's weight is {worst:.1f} steps from the model's value; its deploy "
            "model and its record do not belong together."
        )
    if layer.op_type == "ConvTranspose" and layer.groups > 1 and recorded.weight.axis is not None:
        raise CalibrationError(
            f"{recorded.layer}: learned rounding of a grouped ConvTranspose cannot be kept in the record. Use "
            "arq_quantize for it."
        )
    bits: npt.NDArray[np.bool_] = difference.astype(np.bool_)
    return bits
