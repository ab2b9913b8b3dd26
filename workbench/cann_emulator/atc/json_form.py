"""Mode 1: an OM, or an ONNX file, as JSON. The form is that of the graph engine's own model text [inferred]."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import ModelProto, NodeProto

from workbench.cann_emulator.om import Kernel, OfflineModel, Tensor, largest_gear
from workbench.quantization.lowering.ascend_quant import QUANT

_SPELLED: Mapping[str, str] = {"float32": "DT_FLOAT", "bfloat16": "DT_BF16"}
_LAYOUTS: Mapping[int, str] = {0: "NCHW", 1: "NHWC", 2: "ND", 30: "NCDHW"}


def json_of_om(model: OfflineModel) -> str:
    """The compiled graph, of the largest gear: one entry for each kernel, Data and NetOutput among them."""
    gear = largest_gear(model)
    producers = {tensor.name: f"{tensor.name}:0" for tensor in model.inputs}
    constants = {t.name: t for kernel in gear.kernels for t in kernel.inputs if t.name not in producers}
    for kernel in gear.kernels:
        for index, tensor in enumerate(kernel.outputs):
            producers[tensor.name] = f"{kernel.name}:{index}"
            constants.pop(tensor.name, None)
    nodes = _nodes(model)
    leaving = [_last_version(tensor, gear.kernels) for tensor in gear.outputs]
    ops = [
        *(_entry(t.name, "Data", gives=[t], index=index) for index, t in enumerate(model.inputs)),
        *(_entry(name, "Const", gives=[tensor]) for name, tensor in constants.items()),
        *(_operator(kernel, producers, nodes) for kernel in gear.kernels),
        _entry("Node_Output", "NetOutput", takes=leaving, gives=leaving, producers=producers),
    ]
    facts = (("atc_version", model.atc_version), ("soc_version", model.soc_version), ("emulator", model.emulator))
    content = {
        "name": model.name,
        "version": 1,
        "graph": [{"name": model.name, "op": ops}],
        "attr": [{"key": key, "value": {"s": value}} for key, value in facts],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _entry(
    name: str,
    kind: str,
    *,
    takes: Sequence[Tensor] = (),
    gives: Sequence[Tensor],
    producers: Mapping[str, str] | None = None,
    index: int | None = None,
) -> dict[str, Any]:
    known = producers or {}
    return {
        "name": name,
        "type": kind,
        "input": [known.get(tensor.name, f"{tensor.name}:0") for tensor in takes],
        "input_desc": [_described(tensor) for tensor in takes],
        "output_desc": [_described(tensor) for tensor in gives],
        "attr": [] if index is None else [{"key": "index", "value": {"i": index}}],
    }


def json_of_onnx(proto: ModelProto) -> str:
    """An ONNX model without the content of its tensors."""
    slim = ModelProto()
    slim.CopyFrom(proto)
    for tensor in slim.graph.initializer:
        for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(field)
    text: str = json_format.MessageToJson(slim, indent=2, ensure_ascii=False)
    return f"{text}\n"


def _nodes(model: OfflineModel) -> dict[str, NodeProto]:
    """Of the model's graph, by name."""
    proto = ModelProto()
    proto.ParseFromString(model.graph)
    return {node.name: node for node in proto.graph.node}


def _operator(kernel: Kernel, producers: Mapping[str, str], nodes: Mapping[str, NodeProto]) -> dict[str, Any]:
    attributes: list[dict[str, Any]] = []
    if kernel.nodes:
        attributes.append({"key": "_datadump_original_op_names", "value": {"list": {"s": list(kernel.nodes)}}})
    if kernel.passes:
        attributes.append({"key": "pass_name", "value": {"list": {"s": list(kernel.passes)}}})
    if kernel.implementation:
        attributes.append({"key": "op_impl_mode", "value": {"s": kernel.implementation}})
    covered = [nodes[name] for name in kernel.nodes if name in nodes]
    for node in covered:
        if node.op_type == QUANT and node.output[0] in {tensor.name for tensor in kernel.outputs}:
            given = {a.name: a.f for a in node.attribute if a.name in ("scale", "offset")}
            # under what names a fused kernel keeps them is [inferred]
            attributes += [
                {"key": f"quant_{name}", "value": {"f": given.get(name, 0.0)}} for name in ("scale", "offset")
            ]
    origins = {name: (node.name, index) for node in covered for index, name in enumerate(node.output)}
    entry = _entry(kernel.name, kernel.op_type, takes=kernel.inputs, gives=kernel.outputs, producers=producers)
    described = [{**_described(tensor), **_origin(origins.get(tensor.name))} for tensor in kernel.outputs]
    return {**entry, "output_desc": described, "attr": attributes}


def _origin(origin: tuple[str, int] | None) -> dict[str, Any]:
    """Which output of which node of the model it is, as msaccucmp.py looks it up."""
    if origin is None:
        return {}
    name, index = origin
    return {
        "attr": [
            {"key": "_datadump_origin_name", "value": {"s": name}},
            {"key": "_datadump_origin_output_index", "value": {"i": index}},
        ]
    }


def _last_version(tensor: Tensor, kernels: tuple[Kernel, ...]) -> Tensor:
    """The Cast behind an output, where there is one: kernels name it after the tensor."""
    for kernel in kernels:
        if not kernel.nodes and kernel.inputs[0].name == tensor.name and kernel.outputs[0].dtype == tensor.dtype:
            return kernel.outputs[0]
    return tensor


def _described(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": _SPELLED.get(tensor.dtype, f"DT_{tensor.dtype.upper()}"),
        "layout": _LAYOUTS.get(tensor.format, "ND"),
        "shape": {"dim": list(tensor.shape)},
    }
