"""What stands in the way of INT8 whatever the engine, said in the same words by every target that finds it."""

from __future__ import annotations

from onnx import ModelProto

from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.quantization.lowering.normalize import normalized
from workbench.targets.base import OperatorIssue
from workbench.values.errors import ConfigError
from workbench.values.model import Model
from workbench.values.system.cpu import Cpu

QUANTIZED = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger")


def int8_issues(model: Model) -> tuple[ModelProto | None, list[OperatorIssue]]:
    """A model's graph as INT8 takes it, and what stands in the way; no graph where its file cannot be read any more, or
    is not the one that was identified."""
    try:
        proto = normalized(load_graph(model))
    except ConfigError as error:
        unreadable = OperatorIssue(
            severity="error",
            node=str(model.path),
            operator="",
            problem=str(error),
            remedy="Restore the file and start again.",
            source="the file itself",
        )
        return None, [unreadable]
    return proto, [*([] if quantizable_layers(proto) else [nothing_to_quantize()]), *quantized_already(proto)]


def nothing_to_quantize() -> OperatorIssue:
    """`quantizable_layers` found none."""
    return OperatorIssue(
        severity="error",
        node="model",
        operator="MatMul, Gemm, Conv",
        problem="no float32 layer can be INT8",
        remedy="Quantize a float32 model whose weights are constants.",
        source="workbench/graph/layers.py",
    )


def quantized_already(proto: ModelProto) -> list[OperatorIssue]:
    """One warning, at the first node that quantizes or computes in integers; none for a float model."""
    first = next((node for node in proto.graph.node if node.op_type in QUANTIZED), None)
    if first is None:
        return []
    return [
        OperatorIssue(
            severity="warning",
            node=first.name,
            operator=first.op_type,
            problem="the model is quantized already",
            remedy="Start from the float model: a second quantization adds error and hides the first.",
            source="the model itself",
        )
    ]


def saturates(cpu: Cpu, *, instead: str, source: str) -> OperatorIssue:
    """`instead` is what the engine's products get here that the usual kernels would add wrongly, as a clause."""
    return OperatorIssue(
        severity="warning",
        node=cpu.name,
        operator="MatMul, Conv",
        problem=f"this CPU ({cpu.kind}) may add pairs of 8-bit products in 16 bits, which overflow: {instead}",
        remedy="Measure accuracy and speed on the kind of machine that will serve.",
        source=source,
    )
