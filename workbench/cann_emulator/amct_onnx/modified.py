"""The modified model: the float graph with quantized weights, and AMCT's operators that look at its activations.

    x ─┬─► MatMul (weight: the floats its int8 form stands for) ─► …
       └─► amct.customop.IFMR  record_file_path, batch_num, object_layer0 … (amct.md §1.7)

As with AMCT, the file names no version of the domain `amct.customop`: who opens it without AMCT_SO is told by ONNX
Runtime itself that there is `No opset import for domain 'amct.customop'` (amct.md §12).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from workbench.graph.layers import Layer
from workbench.graph.names import Names
from workbench.graph.nodes import replace_nodes
from workbench.quantization.algorithms import Request
from workbench.quantization.amct.config import symmetric_only
from workbench.quantization.recipe import ActivationRecipe, ModelRecipe

DOMAIN = "amct.customop"


def keys_of(layer: Layer) -> tuple[str, ...]:
    """The record's keys of a layer: its name, or one per input of a product of two activations [inferred]."""
    return (layer.name,) if layer.second is None else (f"{layer.name}:0", f"{layer.name}:1")


def add_calibration(
    model: ModelProto, layers: Sequence[Layer], recipe: ModelRecipe, *, record_file: str, batch_num: int
) -> None:
    """Append one IFMR or HFMG node per tensor and settings; layers that share both share the node."""
    served: dict[Request, list[str]] = {}
    for layer in layers:
        settings = recipe.layers[layer.name].activation
        if symmetric_only(layer) and not settings.symmetric:
            raise ValueError(f"current layer {layer.name} only support act symmetric quant")
        for tensor, key in zip((layer.activation, layer.second), keys_of(layer), strict=False):
            if tensor is not None:
                served.setdefault((tensor, settings), []).append(key)
    names = Names(model.graph)
    for (tensor, settings), keys in served.items():
        op_type = "HFMG" if settings.algorithm == "hfmg" else "IFMR"
        name = names.fresh(f"{keys[0]}.{op_type.lower()}")
        attributes: dict[str, Any] = {
            "input_stamp": "data",
            "batch_num": batch_num,
            "num_bits": 8,
            "with_offset": int(not settings.symmetric),
            "need_dump": 0,
            "dump_dir": "",
            "record_file_path": record_file,
            "check_criterion": 0,
            "fakequant_precision_mode": "FORCE_FP16_QUANT" if recipe.force_fp16 else "DEFAULT",
            "layer_num": len(keys),
            **{f"object_layer{index}": key for index, key in enumerate(keys)},
        }
        if op_type == "HFMG":
            attributes["nbins"] = settings.bins
        else:
            attributes |= {
                "start_ratio": settings.search_start,
                "end_ratio": settings.search_end,
                "step": settings.search_step,
                "max_percentile": settings.max_percentile,
                "min_percentile": settings.min_percentile,
            }
        _append(model, op_type, [tensor], [names.fresh(f"{name}.output0")], name, attributes)


def add_balancers(model: ModelProto, layers: Sequence[Layer], recipe: ModelRecipe, *, record_file: str) -> None:
    """Append one DMQBalancer node per balanced layer."""
    names = Names(model.graph)
    for layer in layers:
        strength = recipe.layers[layer.name].balance
        if strength is not None and layer.weight is not None:
            attributes = {
                "migration_strength": strength,
                "channel_num": input_channels(layer),
                "object_layer": layer.name,
                "record_file_path": record_file,
            }
            name = names.fresh(f"{layer.name}.dmq_balancer")
            _append(model, "DMQBalancer", [layer.activation, layer.weight], [], name, attributes)


def add_dumps(model: ModelProto, tensors: Iterable[str], *, dump_dir: str, batch_num: int) -> None:
    """Append one DUMP node per tensor."""
    names = Names(model.graph)
    for tensor in dict.fromkeys(tensors):
        attributes = {"dump_dir": dump_dir, "batch_num": batch_num}
        _append(model, "DUMP", [tensor], [], names.fresh(f"{tensor}.dump"), attributes)


def _append(
    model: ModelProto, op_type: str, inputs: list[str], outputs: list[str], name: str, attributes: Mapping[str, Any]
) -> None:
    model.graph.node.append(helper.make_node(op_type, inputs, outputs, name=name, domain=DOMAIN, **attributes))


# --- reading -------------------------------------------------------------------------------------------------------


def operators_of(model: ModelProto) -> list[NodeProto]:
    """AMCT's nodes of a modified model; empty for any other model."""
    return [node for node in model.graph.node if node.domain == DOMAIN]


def without_operators(model: ModelProto) -> ModelProto:
    """What the modified model computes: the graph without AMCT's nodes, all of which only look."""
    plain = ModelProto()
    plain.CopyFrom(model)
    replace_nodes(plain.graph, [node for node in model.graph.node if node.domain != DOMAIN])
    return plain


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Texts decoded, floats as the shortest decimal of what float32 keeps of them: 0.7, not 0.699999988."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.type == onnx.AttributeProto.FLOAT:
            value = float(str(np.float32(value)))
        found[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return found


def request_of(node: NodeProto) -> Request:
    """The tensor that an IFMR or HFMG node looks at, and how it finds its range."""
    values = attributes_of(node)
    symmetric = not values["with_offset"]
    if node.op_type == "HFMG":
        return node.input[0], ActivationRecipe(algorithm="hfmg", symmetric=symmetric, bins=values["nbins"])
    return node.input[0], ActivationRecipe(
        algorithm="ifmr",
        symmetric=symmetric,
        max_percentile=values["max_percentile"],
        min_percentile=values["min_percentile"],
        search_start=values["start_ratio"],
        search_end=values["end_ratio"],
        search_step=values["step"],
    )


def served_keys(node: NodeProto) -> list[str]:
    values = attributes_of(node)
    return [values[f"object_layer{index}"] for index in range(values["layer_num"])]


# --- pieces of the graph -------------------------------------------------------------------------------------------


def input_channels(layer: Layer) -> int:
    if layer.op_type == "Conv":
        return layer.weight_shape[1] * layer.groups
    if layer.op_type == "ConvTranspose":
        return layer.weight_shape[0]
    return layer.weight_shape[-1] if layer.transposed else layer.weight_shape[-2]


def with_original_add_order(model: ModelProto, original: ModelProto) -> ModelProto:
    """Inputs of Add as the exporter wrote them: where the bias stands decides AMCT's deploy form (amct.md §6.4)."""
    right = {node.name: node.input[1] for node in original.graph.node if node.op_type == "Add"}
    result = ModelProto()
    result.CopyFrom(model)
    for node in result.graph.node:
        if node.op_type == "Add" and right.get(node.name) == node.input[0] != node.input[1]:
            inputs = [node.input[1], node.input[0]]
            del node.input[:]
            node.input.extend(inputs)
    return result


def multiplying(model: ModelProto, layers: Iterable[str]) -> ModelProto:
    """The deploy form of balanced layers: a Mul by 1/s, where the modified model divides by s (amct.md §4.5)."""
    result = ModelProto()
    result.CopyFrom(model)
    divisions = {node.output[0]: node for node in result.graph.node if node.op_type == "Div"}
    made_by = {node.output[0]: node for node in result.graph.node if node.op_type == "Constant"}
    for layer in layers:
        division = divisions[f"{layer}.mul.output0"]
        constant = made_by[division.input[1]].attribute[0].t
        inverse = np.float32(1) / numpy_helper.to_array(constant)
        constant.CopyFrom(numpy_helper.from_array(inverse, constant.name))
        division.op_type = "Mul"
    return result


def balanced_layers(model: ModelProto) -> set[str]:
    """Layers whose input a modified model divides by balance factors."""
    return {
        node.output[0].removesuffix(".mul.output0")
        for node in model.graph.node
        if node.op_type == "Div" and node.output[0].endswith(".mul.output0")
    }
