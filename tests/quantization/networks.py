"""Two small float models for tests of preparation: a CNN with every kind of convolution, and a perceptron."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from workbench.graph.read import load_graph, read_model
from workbench.quantization import algorithms
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.recipe import ModelRecipe, recipe_of
from workbench.quantization.record import QuantizationRecord
from workbench.quantization.statistics import Statistics
from workbench.testing.encoder import model_of, value
from workbench.values.candidate import Quantization
from workbench.values.model import Model

Floats = npt.NDArray[np.float32]

CONVOLUTIONS = ("first", "depthwise", "grouped", "up")


def perceptron(*, gemm: bool = True) -> onnx.ModelProto:
    """`x` [batch, 8] → fc1 → Relu → fc2 → `y` [batch, 3]; Gemm with transB, or MatMul and Add."""
    random = np.random.default_rng(5)
    shapes = {"fc1": (6, 8), "fc2": (3, 6)}
    weights: dict[str, npt.NDArray[np.generic]] = {}
    nodes, flow = [], "x"
    for name, shape in shapes.items():
        w = random.normal(size=shape).astype(np.float32)
        weights |= {f"{name}_w": w if gemm else w.T.copy(), f"{name}_b": random.normal(size=shape[0]).astype("f4")}
        output = "y" if name == "fc2" else f"{name}_y"
        if gemm:
            nodes.append(helper.make_node("Gemm", [flow, f"{name}_w", f"{name}_b"], [output], name=name, transB=1))
        else:
            nodes.append(helper.make_node("MatMul", [flow, f"{name}_w"], [f"{name}_p"], name=name))
            nodes.append(helper.make_node("Add", [f"{name}_p", f"{name}_b"], [output], name=f"{name}_bias"))
        if name == "fc1":
            nodes.append(helper.make_node("Relu", [output], ["hidden"], name="relu"))
            flow = "hidden"
    return model_of(nodes, weights, [value("x", ["batch", 8])], [value("y", ["batch", 3])])


def convolutions() -> onnx.ModelProto:
    """`x` [batch, 4, 9, 8] → Conv → Relu → depthwise Conv → MaxPool → Relu → grouped Conv → Add → ConvTranspose → `y`.

    Strides, dilations, uneven pads, groups and an output padding all occur.
    """
    random = np.random.default_rng(6)

    def normal(*shape: int) -> Floats:
        return random.normal(size=shape).astype(np.float32)

    weights: dict[str, npt.NDArray[np.generic]] = {
        "first_w": normal(6, 4, 3, 3),
        "first_b": normal(6),
        "depthwise_w": normal(6, 1, 3, 2),
        "depthwise_b": normal(6),
        "grouped_w": normal(4, 3, 2, 3),
        "shift": normal(1, 4, 1, 1),
        "up_w": normal(4, 3, 3, 3),
        "up_b": normal(6),
    }
    nodes = [
        helper.make_node("Conv", ["x", "first_w", "first_b"], ["a"], name="first", pads=[1, 0, 2, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node(
            "Conv", ["b", "depthwise_w", "depthwise_b"], ["c"], name="depthwise", group=6, strides=[2, 1], pads=[1] * 4
        ),
        helper.make_node("MaxPool", ["c"], ["d"], name="pool", kernel_shape=[2, 2]),
        helper.make_node("Relu", ["d"], ["e"], name="relu2"),
        helper.make_node("Conv", ["e", "grouped_w"], ["f"], name="grouped", group=2, dilations=[1, 2], pads=[1] * 4),
        helper.make_node("Add", ["f", "shift"], ["g"], name="shifted"),
        helper.make_node(
            "ConvTranspose",
            ["g", "up_w", "up_b"],
            ["y"],
            name="up",
            group=2,
            strides=[2, 3],
            pads=[1, 0, 0, 2],
            output_padding=[1, 0],
        ),
    ]
    return model_of(nodes, weights, [value("x", ["batch", 4, 9, 8])], [value("y", ["batch", 6, None, None])])


def images(count: int, seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    return {"x": np.random.default_rng(seed).normal(0.3, 1, (count, 4, 9, 8)).astype(np.float32)}


def rows(count: int, seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    return {"x": np.random.default_rng(seed).normal(0.3, 1, (count, 8)).astype(np.float32)}


def choose(model: Model, statistics: Statistics, recipe: Quantization | ModelRecipe) -> QuantizationRecord:
    """The record of a search point, or of a whole model's recipe."""
    if isinstance(recipe, Quantization):
        recipe = recipe_of(recipe, statistics.layers)
    return algorithms.choose(statistics, recipe, normalized(load_graph(model)))


def showing(proto: onnx.ModelProto, tensor: str) -> onnx.ModelProto:
    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    if tensor not in {output.name for output in proto.graph.output}:
        shown.graph.output.append(value(tensor, None))
    return shown


def saved(proto: onnx.ModelProto, folder: Path) -> Model:
    onnx.save(proto, folder / "model.onnx")
    return read_model(folder / "model.onnx")
