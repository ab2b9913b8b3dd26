"""What a first search space for Ascend 910B3 begins with: fusions that this graph has something for, and a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from workbench.graph.layers import quantizable_layers
from workbench.graph.read import constants, load_graph, read_model
from workbench.quantization.lowering.normalize import normalized
from workbench.targets.description import ServiceStart, SpaceStart

_ELEMENTWISE = frozenset(
    ("Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Neg", "Pow")
) | {"PRelu", "Relu", "Sigmoid", "Sqrt", "Sub", "Tanh"}
_PRODUCTS = frozenset(("MatMul", "Gemm"))
_HOST = (
    "# The host in front of the card is measured on a machine that has one. Without a card, state what you know:",
    '# host: {cores: 16, request_ms: 0.15, batch_ms: 0.2, worker_batch_ms: 0.1, network_ms: 4.6, origin: "assumed"}',
)
_CONFIGURATION = (
    "AMCT's own configuration can be a candidate too: put cfg behind the schemes below, and",
    "  quantization.cfg:",
    "    when: {quantization.scheme: [cfg]}",
    "    choices: [../calibration/amct.cfg]   # relative to this file; written for `amct_onnx calibration --config`",
)


def space_start(model: Path) -> SpaceStart:
    """What the graph has something for; nothing is compiled."""
    proto = load_graph(read_model(model))
    layers = quantizable_layers(normalized(proto))
    channels = any(layer.op_type in ("Conv", "ConvTranspose") for layer in layers)
    products = any(layer.op_type in _PRODUCTS for layer in layers)
    return SpaceStart(
        algorithms=("ifmr", "mse", "minmax", "hfmg"),
        # one scale per output channel is for convolutions; AMCT refuses it where MatMul and Gemm stand beside them
        granularity=("tensor",) if not channels else ("tensor", "channel") if products else ("channel", "tensor"),
        weight_algorithms=("arq",),
        parameters={"precision.mode": ("force_fp16", "allow_mix_precision"), **_small_channels(proto)},
        fusions=groups_that_can_fire(proto),
        int8_fusions=("dequant_elementwise", "quant_elementwise") if products else (),
        notes=_CONFIGURATION if layers else (),
        service=ServiceStart(
            max_batch_size=(16, 8, 1),
            batch_timeout_ms=(10, 0, 2, 5),
            workers=(2, 1),
            concurrency=100,
            host=_HOST,
            today=(16, 10, 2),
        ),
        calibration_samples=32,
        scored=(250, 400),
        rehearsal='eval "$(workbench emulator env)"',
    )


def groups_that_can_fire(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Fusion groups on by default that find a pattern of theirs in a float graph, by operators and neighbours."""
    operators = {node.op_type for node in proto.graph.node}
    pairs = set(_neighbours(proto))
    small_norm = {"ReduceMean", "Sqrt", "Div", "Sub"} <= operators
    found = {
        "layer_norm": small_norm or "LayerNormalization" in operators,
        "gelu": "Erf" in operators or "Gelu" in operators,
        "softmax": {"Exp", "ReduceSum", "Div"} <= operators,
        "matmul_elementwise": any(a in _PRODUCTS and b in _ELEMENTWISE for a, b in pairs),
        "matmul_transpose": any({"Transpose"} & {a, b} and _PRODUCTS & {a, b} for a, b in pairs),
        "layout": bool({("Transpose", "Reshape"), ("Reshape", "Transpose")} & pairs),
        "elementwise": any(a in _ELEMENTWISE and b in _ELEMENTWISE for a, b in pairs),
    }
    return tuple(name for name, fires in found.items() if fires)


def _neighbours(proto: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    """(operator, operator that reads its output)."""
    producers = {name: node.op_type for node in proto.graph.node for name in node.output}
    for node in proto.graph.node:
        for name in node.input:
            if name in producers:
                yield producers[name], node.op_type


def _small_channels(proto: onnx.ModelProto) -> dict[str, tuple[bool, ...]]:
    known = constants(proto)
    few = any(
        node.op_type == "Conv"
        and len(node.input) > 1
        and node.input[1] in known
        and len(known[node.input[1]].dims) == 4
        and known[node.input[1]].dims[1] <= 4
        and not any(a.name == "group" and a.i > 1 for a in node.attribute)
        for node in proto.graph.node
    )
    return {"compile.enable_small_channel": (False, True)} if few else {}
