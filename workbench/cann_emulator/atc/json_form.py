"""Mode 1: an OM, or an ONNX file, as JSON. The form is that of the graph engine's own model text [inferred]."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped]  # protobuf ships no stubs
from onnx import ModelProto, NodeProto

from workbench.cann_emulator.om import Kernel, OfflineModel, Tensor, largest_gear
from workbench.quantization.lowering.ascend_quant import QUANT

_GE_DTYPES: Mapping[str, str] = {
    "float32": "DT_FLOAT",
    "float16": "DT_FLOAT16",
    "bfloat16": "DT_BF16",
    "int8": "DT_INT8",
    "uint8": "DT_UINT8",
    "int32": "DT_INT32",
    "int64": "DT_INT64",
    "uint64": "DT_UINT64",
    "bool": "DT_BOOL",
}
_LAYOUTS: Mapping[int, str] = {0: "NCHW", 1: "NHWC", 2: "ND", 30: "NCDHW"}


def json_of_om(model: OfflineModel) -> str:
    """The compiled graph, of the largest gear: one entry for each kernel, Data and NetOutput among them."""
    gear = largest_gear(model)
    producers = {tensor.name: f"{tensor.name}:0" for tensor in model.inputs}
    ops = [
        {
            "name": tensor.name,
            "type": "Data",
            "input": [],
            "input_desc": [],
            "output_desc": [_described(tensor)],
            "attr": [{"key": "index", "value": {"i": index}}],
        }
        for index, tensor in enumerate(model.inputs)
    ]
    constants = {
        tensor.name: tensor for kernel in gear.kernels for tensor in kernel.inputs if tensor.name not in producers
    }
    for kernel in gear.kernels:
        for index, tensor in enumerate(kernel.outputs):
            producers[tensor.name] = f"{kernel.name}:{index}"
            constants.pop(tensor.name, None)
    for name, tensor in constants.items():
        producers[name] = f"{name}:0"
        ops.append(
            {
                "name": name,
                "type": "Const",
                "input": [],
                "input_desc": [],
                "output_desc": [_described(tensor)],
                "attr": [],
            }
        )
    nodes = _nodes(model)
    ops.extend(_operator(kernel, producers, nodes) for kernel in gear.kernels)
    leaving = [_last_version(tensor, gear.kernels) for tensor in gear.outputs]
    ops.append(
        {
            "name": "Node_Output",
            "type": "NetOutput",
            "input": [producers.get(tensor.name, f"{tensor.name}:0") for tensor in leaving],
            "input_desc": [_described(tensor) for tensor in leaving],
            "output_desc": [_described(tensor) for tensor in leaving],
            "attr": [],
        }
    )
    content = {
        "name": model.name,
        "version": 1,
        "graph": [{"name": model.name, "op": ops}],
        "attr": [
            {"key": "atc_version", "value": {"s": model.atc_version}},
            {"key": "soc_version", "value": {"s": model.soc_version}},
            {"key": "emulator", "value": {"s": model.emulator}},
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


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
    return {
        "name": kernel.name,
        "type": kernel.op_type,
        "input": [producers.get(tensor.name, f"{tensor.name}:0") for tensor in kernel.inputs],
        "input_desc": [_described(tensor) for tensor in kernel.inputs],
        "output_desc": [{**_described(tensor), **_origin(origins.get(tensor.name))} for tensor in kernel.outputs],
        "attr": attributes,
    }


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
        "dtype": _GE_DTYPES[tensor.dtype],
        "layout": _LAYOUTS.get(tensor.format, "ND"),
        "shape": {"dim": list(tensor.shape)},
    }
