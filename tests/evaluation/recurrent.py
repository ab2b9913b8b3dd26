"""A model that carries a state, and sequences for it."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from workbench.graph.read import read_model
from workbench.inputs.dataset import Dataset, check_inputs, read_manifest
from workbench.values.model import Model

SIZES = np.array([3, 5, 1, 4])


def recurrent(path: Path, *, batch: int | str = "batch", state: int | str = 2) -> Model:
    """y = x + h, hN = h / 2 + x, in the shape [batch, 2]."""
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Add", ["x", "h"], ["y"]),
        helper.make_node("Mul", ["h", "half"], ["faded"]),
        helper.make_node("Add", ["faded", "x"], ["hN"]),
    ]
    float32 = TensorProto.FLOAT
    inputs = [info("x", float32, [batch, 2]), info("h", float32, [batch, state])]
    outputs = [info("y", float32, [batch, 2]), info("hN", float32, [batch, 2])]
    half = helper.make_tensor("half", float32, [], [0.5])
    graph = helper.make_graph(nodes, "recurrent", inputs, outputs, [half])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return read_model(path)


def sequences(folder: Path, model: Model, more: str = "") -> Dataset:
    x = np.random.default_rng(0).normal(size=(4, 5, 2)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, **{"x.sizes": SIZES})
    files = "{calibration: data.npz, validation: data.npz, holdout: data.npz}"
    (folder / "m.yaml").write_text(f"version: 1\ntask: tensors\nfiles: {files}\nstate: {{hN: h}}\n{more}")
    dataset = read_manifest(folder / "m.yaml", model)
    check_inputs(dataset, model)
    return dataset
