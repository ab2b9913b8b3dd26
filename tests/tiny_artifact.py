"""A compiled one-layer model, for tests of what runs artifacts."""

from pathlib import Path

import numpy as np
from onnx import helper

from tests.small_graphs import write_graph
from workbench.graph.read import read_model
from workbench.targets import open_target
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate


def linear_artifact(to: Path, *, width: int = 32) -> Artifact:
    """y = tanh(x W) with x [batch, length, width], compiled into the empty directory `to`/compiled."""
    weight = np.random.default_rng(0).normal(size=(width, width)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "W"], ["h"], name="project"), helper.make_node("Tanh", ["h"], ["y"])]
    x, y = ({name: ["batch", "length", width]} for name in "xy")
    write_graph(to / "model.onnx", nodes, x, y, W=weight)
    target, candidate = open_target("onnxruntime"), Candidate(target="onnxruntime")
    (to / "lowered").mkdir()
    (to / "compiled").mkdir()
    lowered = target.lower(read_model(to / "model.onnx"), candidate, None, to / "lowered")
    return target.compile(lowered, candidate, to / "compiled")
