"""The fake-quant model: the deploy model's integers computed in float32 by standard operators.

    x ─► Mul(1/scale_d) ─► Round ─► Add(offset) ─► Clip(-128, 127) ─► Sub(offset) ─► MatMul ─► Mul(dqscale) ─► …

These are the operators that the open amct_pytorch writes (amct.md §6.6); it runs in plain ONNX Runtime. What amct_onnx
8.5 writes uses its own operators instead, which need its compiled library [inferred].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from workbench.graph.nodes import attributes_of, replace_nodes
from workbench.graph.read import constants
from workbench.quantization.lowering.deploy import ANTI_QUANT, DEQUANT, QUANT
from workbench.quantization.lowering.surgery import prune_constants
from workbench.quantization.scales import as_half


def fake_quant_model(deploy: ModelProto, *, force_fp16: bool = False) -> ModelProto:
    """The simulation of a deploy model; inputs, outputs and layers keep their names. Pure and deterministic.

    Sums of products are exact as long as they stay below 2**24; beyond, float32 rounds where the device does not.

    Args:
        force_fp16: the arithmetic of FORCE_FP16_QUANT: half precision at both ends (amct.md §6.6).
    """
    model = ModelProto()
    model.CopyFrom(deploy)
    known = constants(model)
    nodes: list[NodeProto] = []
    whole: dict[str, int] = {}  # tensor of integers → rank of the factors' shape behind it
    integers: set[str] = set()  # constants beside those; they become float32

    def add(op_type: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def constant(name: str, values: Any) -> str:
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def half(x: str, output: str = "") -> str:
        narrow = add("Cast", [x], f"{output or x}.half", to=TensorProto.FLOAT16)
        return add("Cast", [narrow], output or f"{x}.single", to=TensorProto.FLOAT)

    def quantized(x: str, y: str, scale: float, offset: str) -> None:
        if force_fp16:
            product = half(add("Mul", [half(x, f"{y}.input"), constant(f"{y}.scale", as_half(scale))], f"{y}.product"))
            x = add("Round", [half(add("Add", [product, offset], f"{y}.sum"))], f"{y}.rounded")
        else:
            product = add("Mul", [x, constant(f"{y}.scale", scale)], f"{y}.product")
            x = add("Add", [add("Round", [product], f"{y}.whole"), offset], f"{y}.rounded")
        limits = [constant(f"{y}.least", -128), constant(f"{y}.most", 127)]
        add("Sub", [add("Clip", [x, *limits], f"{y}.clipped"), offset], y)

    for node in deploy.graph.node:
        attributes, y = attributes_of(node), node.output[0]
        if node.op_type == QUANT:
            quantized(node.input[0], y, attributes["scale"], constant(f"{y}.offset", attributes["offset"]))
            whole[y] = 2
        elif node.op_type == DEQUANT:
            words = numpy_helper.to_array(known[node.input[1]]) & np.uint64(0xFFFFFFFF)
            rank = whole[node.input[0]]
            # channels are axis 1 of a convolution's output, the last one of a product's
            shape = [-1 if axis == (1 if rank > 2 else rank - 1) else 1 for axis in range(rank)]
            factors = constant(f"{y}.factors", words.astype(np.uint32).view(np.float32).reshape(shape))
            product = add("Mul", [node.input[0], factors], f"{y}.product" if force_fp16 else y)
            if force_fp16:
                half(product, y)
        elif node.op_type == ANTI_QUANT:
            add("Mul", [node.input[0], constant(f"{y}.scale", attributes["scale"])], y)
        else:
            if ranks := [whole[name] for name in node.input if name in whole]:
                integers.update(name for name in node.input if name in known)
                convolves = node.op_type in ("Conv", "ConvTranspose")
                pooled = 4 if node.op_type == "AveragePool" else ranks[0]
                whole[y] = len(known[node.input[1]].dims) if convolves else pooled
            nodes.append(node)
    replace_nodes(model.graph, nodes)
    for tensor in model.graph.initializer:
        if tensor.name in integers:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    prune_constants(model.graph)
    return model
