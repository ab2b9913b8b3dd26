"""A model that carries a state, and sequences for it."""

from pathlib import Path

import numpy as np
from onnx import helper

from tests.small_graphs import write_graph
from workbench.graph.read import read_model
from workbench.inputs.dataset import Dataset, check_inputs, read_manifest
from workbench.values.model import Model

SIZES = np.array([3, 5, 1, 4])


def recurrent(path: Path, *, batch: int | str = "batch", state: int | str = 2) -> Model:
    """y = x + h, hN = h / 2 + x, in the shape [batch, 2]."""
    nodes = [
        helper.make_node("Add", ["x", "h"], ["y"]),
        helper.make_node("Mul", ["h", "half"], ["faded"]),
        helper.make_node("Add", ["faded", "x"], ["hN"]),
    ]
    shapes = {"x": [batch, 2], "h": [batch, state]}, {"y": [batch, 2], "hN": [batch, 2]}
    return read_model(write_graph(path, nodes, *shapes, half=np.float32(0.5)))


def sequences(folder: Path, model: Model, more: str = "") -> Dataset:
    x = np.random.default_rng(0).normal(size=(4, 5, 2)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, **{"x.sizes": SIZES})
    files = "{calibration: data.npz, validation: data.npz, holdout: data.npz}"
    (folder / "m.yaml").write_text(f"version: 1\ntask: tensors\nfiles: {files}\nstate: {{hN: h}}\n{more}")
    dataset = read_manifest(folder / "m.yaml", model)
    check_inputs(dataset, model)
    return dataset
