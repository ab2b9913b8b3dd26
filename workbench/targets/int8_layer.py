"""One layer taken through a target, from a float model to an answer: the proof that INT8 works on this machine."""

from __future__ import annotations

import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.graph.read import read_model
from workbench.quantization.record import ActivationScale, LayerRecord, Provenance, QuantizationRecord, WeightScale
from workbench.targets import open_target
from workbench.values.candidate import Candidate
from workbench.values.model import Model
from workbench.values.system.scratch import scratch_folder

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
        session = target.open(artifact, compiled, candidate)
        try:
            session.run({"x": np.ones((2, _SIZE), np.float32)})
        finally:
            session.close()
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
