"""Graphs of a few nodes, written to a file."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.targets.encoder import model_of


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def graph_of(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int | str]) -> onnx.ModelProto:
    """Nodes between the float input `x` and the output `y`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return model_of(nodes, weights, [x], [y])


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path
