"""What stands in the way of INT8 whatever the engine, said in the same words by every target that finds it; and a layer
that shows whether one computes in INT8 at all."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.record import ActivationScale, LayerRecord, Provenance, QuantizationRecord, WeightScale
from workbench.targets import open_target
from workbench.targets.base import OperatorIssue
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError
from workbench.values.model import Model
from workbench.values.system.cpu import Cpu
from workbench.values.system.scratch import scratch_folder

QUANTIZED = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger")


def int8_issues(model: Model) -> tuple[ModelProto | None, list[OperatorIssue]]:
    """A model's graph as INT8 takes it, and what stands in the way; no graph where its file is `unreadable`."""
    try:
        proto = normalized(load_graph(model))
    except ConfigError as error:
        return None, [unreadable(model, error)]
    return proto, [*([] if quantizable_layers(proto) else [nothing_to_quantize()]), *quantized_already(proto)]


def unreadable(model: Model, error: ConfigError) -> OperatorIssue:
    """The file cannot be read any more, or is not the one that was identified."""
    return OperatorIssue("error", str(model.path), str(error), "Restore the file and start again.", "the file itself")


def nothing_to_quantize() -> OperatorIssue:
    """`quantizable_layers` found none."""
    problem, remedy = "no float32 layer can be INT8", "Quantize a float32 model whose weights are constants."
    return OperatorIssue("error", "model", problem, remedy, "workbench/graph/layers.py", "MatMul, Gemm, Conv")


def quantized_already(proto: ModelProto) -> list[OperatorIssue]:
    """One warning, at the first node that quantizes or computes in integers; none for a float model."""
    first = next((node for node in proto.graph.node if node.op_type in QUANTIZED), None)
    if first is None:
        return []
    remedy = "Start from the float model: a second quantization adds error and hides the first."
    problem = "the model is quantized already"
    return [OperatorIssue("warning", first.name, problem, remedy, "the model itself", first.op_type)]


def saturates(cpu: Cpu, *, instead: str, source: str) -> OperatorIssue:
    """`instead` is what the engine's products get here that the usual kernels would add wrongly, as a clause."""
    problem = f"this CPU ({cpu.kind}) may add pairs of 8-bit products in 16 bits, which overflow: {instead}"
    remedy = "Measure accuracy and speed on the kind of machine that will serve."
    return OperatorIssue("warning", cpu.name, problem, remedy, source, "MatMul, Conv")


# --- whether an engine computes in INT8 here: one layer is taken all the way ------------------------------------------


_SIZE = 32


def run_int8_layer(candidate: Candidate) -> tuple[int, float]:
    """Quantize, compile and run one MatMul of 32 × 32 in a folder that is removed afterwards.

    Args:
        candidate: of scheme 'dynamic' or 'static'; its target is asked.

    Returns:
        How many operators run in integer kernels (1 when all is well), and the seconds it took.

    Raises:
        ToolchainError: the target's runtime cannot be loaded.
        CandidateError: it refused the layer or failed on it.
    """
    start = time.perf_counter()
    target = open_target(candidate.target)
    with scratch_folder("doctor") as folder:
        path, lowered, compiled = folder / "layer.onnx", folder / "lowered", folder / "compiled"
        onnx.save(_layer(), path)
        lowered.mkdir()
        compiled.mkdir()
        model = read_model(path)
        record = _record(model) if candidate.quantization.calibrated else None
        artifact = target.compile(target.lower(model, candidate, record, lowered), candidate, compiled)
        with contextlib.closing(target.open(artifact, compiled, candidate)) as session:
            session.run({"x": np.ones((2, _SIZE), np.float32)})
    return artifact.int8_ops, time.perf_counter() - start


def _layer() -> onnx.ModelProto:
    weight = np.linspace(-1, 1, _SIZE * _SIZE, dtype=np.float32).reshape(_SIZE, _SIZE)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", _SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", _SIZE])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _record(model: Model) -> QuantizationRecord:
    """Scales of values that lie in ±1, which need no data."""
    layer = LayerRecord(
        layer="layer",
        op_type="MatMul",
        activation=ActivationScale(tensor="x", scale=1 / 127, zero_point=0, low=-1.0, high=1.0),
        weight=WeightScale(scales=(1 / 127,), axis=None),
    )
    made_by = Provenance(engine="native", recipe={}, statistics=None, code_revision="")
    return QuantizationRecord(model_sha256=model.sha256, layers=(layer,), float_layers=(), provenance=made_by)
