"""A compiled one-layer model, for tests of what runs artifacts."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.graph.read import read_model
from workbench.targets import open_target
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate


def linear_artifact(to: Path, *, width: int = 32) -> Artifact:
    """y = tanh(x W) with x [batch, length, width], compiled into the empty directory `to`/compiled."""
    weight = np.random.default_rng(0).normal(size=(width, width)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["h"], name="project"), helper.make_node("Tanh", ["h"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", width])],
        [numpy_helper.from_array(weight, "W")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, to / "model.onnx")
    target, candidate = open_target("onnxruntime"), Candidate(target="onnxruntime")
    (to / "lowered").mkdir()
    (to / "compiled").mkdir()
    lowered = target.lower(read_model(to / "model.onnx"), candidate, None, to / "lowered")
    return target.compile(lowered, candidate, to / "compiled")
