"""Whether ONNX Runtime, which every sweep needs, really computes in INT8 here: one layer is taken all the way."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.candidate import Candidate, Quantization
from workbench.doctor.finding import Finding
from workbench.errors import CandidateError, ToolchainError
from workbench.graph import read_model
from workbench.targets import open_target

_GROUP = "target onnxruntime"
_INSTALL = "Install the version the workbench pins: pip install int8-workbench"


def onnxruntime_findings() -> Iterator[Finding]:
    """Required, and not only as a target: ONNX Runtime also runs the float model that everything is compared with."""
    target = open_target("onnxruntime")
    try:
        version = target.toolchain().components["onnxruntime"]
        kernels, seconds = run_int8_layer()
    except (ToolchainError, CandidateError) as error:
        yield Finding(group=_GROUP, name="usable", status="fail", value=f"no: {error}", remedy=_INSTALL)
        return
    yield Finding(
        group=_GROUP,
        name="usable",
        status="ok" if kernels else "fail",
        value=f"yes: {version}; a test layer was quantized, compiled and run in {seconds:.1f} s"
        if kernels
        else f"no: {version} left a quantized test layer in float",
        remedy="" if kernels else _INSTALL,
    )


def run_int8_layer() -> tuple[int, float]:
    """Take one layer through the target; returns how many operators ran in integer kernels, and the seconds.

    Raises:
        ToolchainError: ONNX Runtime cannot be loaded.
        CandidateError: it refused the layer or failed on it.
    """
    candidate = Candidate(quantization=Quantization(scheme="dynamic", weight_granularity="tensor"))
    start = time.perf_counter()
    target = open_target("onnxruntime")
    with tempfile.TemporaryDirectory(prefix="workbench-doctor-") as folder:
        model, lowered, compiled = Path(folder) / "layer.onnx", Path(folder) / "lowered", Path(folder) / "compiled"
        onnx.save(_layer(), model)
        lowered.mkdir()
        compiled.mkdir()
        artifact = target.compile(target.lower(read_model(model), candidate, None, lowered), candidate, compiled)
        session = target.open(artifact, compiled, candidate)
        try:
            session.run({"x": np.ones((2, 32), np.float32)})
        finally:
            session.close()
    return artifact.int8_ops, time.perf_counter() - start


def _layer() -> onnx.ModelProto:
    weight = np.linspace(-1, 1, 32 * 32, dtype=np.float32).reshape(32, 32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="layer")],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32])],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
