"""Graphs of a few nodes, written to a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.testing.encoder import model_of

Sizes = Sequence[int | str | None] | None
Shape = Sequence[int | str | None] | tuple[int, Sizes] | None


def weight(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def graph_of(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int | str]) -> onnx.ModelProto:
    """Nodes between the float input `x` and the output `y`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return model_of(nodes, weights, [x], [y])


def write_graph(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    opset: int = 17,
    **weights: npt.ArrayLike,
) -> Path:
    """A graph whose inputs and outputs are float32, or of another type as (type, shape)."""

    def infos(of: Mapping[str, Shape]) -> list[onnx.ValueInfoProto]:
        typed = ((name, said if isinstance(said, tuple) else (TensorProto.FLOAT, said)) for name, said in of.items())
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in typed]

    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "g", infos(inputs), infos(outputs), constants)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path
