"""Small graphs as users bring them: of any opset, with the batch anywhere, with constants, branches and noise."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.small_graphs import weight, write_graph


def projection(name: str = "y", source: str = "x") -> onnx.NodeProto:
    return helper.make_node("MatMul", [source, "w"], [name], name="projection")


def branch(name: str, output: str, nodes: Sequence[onnx.NodeProto], **constants: np.ndarray) -> onnx.GraphProto:
    stored = [numpy_helper.from_array(value, key) for key, value in constants.items()]
    return helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=output)], initializer=stored)


def rate_dependent(path: Path) -> Path:
    """y = x·w₁₆ where rate is 16000, else x·w₈; each branch holds its weight and an `If` of its own on the rate."""

    def inner(suffix: str) -> onnx.GraphProto:
        half = branch(f"half{suffix}", "out", [helper.make_node("Mul", ["product", "two"], ["out"], name="twice")])
        same = branch(f"same{suffix}", "out", [helper.make_node("Identity", ["product"], ["out"], name="same")])
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["product"], name=f"product{suffix}"),
            helper.make_node("Greater", ["rate", "limit"], ["fast"], name="fast"),
            helper.make_node("If", ["fast"], ["inner"], name=f"inner{suffix}", then_branch=half, else_branch=same),
        ]
        return branch(f"rate{suffix}", "inner", nodes, w=weight(4, 3, seed=len(suffix)))

    nodes = [
        helper.make_node("Equal", ["rate", "wanted"], ["is_wide"], name="is_wide"),
        helper.make_node("If", ["is_wide"], ["y"], name="by_rate", then_branch=inner("_16"), else_branch=inner("_8k_")),
    ]
    numbers = {"wanted": np.asarray(16000), "limit": np.asarray(12000), "two": np.asarray(2, np.float32)}
    inputs = {"x": ["batch", 4], "rate": (TensorProto.INT64, [])}
    return write_graph(path, nodes, inputs, {"y": ["batch", 3]}, **numbers)


def recurrent(path: Path, *, state: Sequence[int | str | None] = (2, "batch", 3)) -> Path:
    """One step: the state has its batch in the middle, on the way in and out."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["seen"], name="seen"),
        helper.make_node("Add", ["state", "seen"], ["stateN"], name="carry"),
        helper.make_node("ReduceMean", ["stateN"], ["mean"], name="mean", axes=[0], keepdims=0),
        helper.make_node("Sigmoid", ["mean"], ["y"], name="y"),
    ]
    outputs = {"y": ["batch", 3], "stateN": [None, None, None]}
    return write_graph(path, nodes, {"x": ["batch", 4], "state": [*state]}, outputs, w=weight(4, 3))


def noisy(path: Path) -> Path:
    """y = x + amount · noise."""
    noise = helper.make_node("RandomNormalLike", ["x"], ["noise"], name="noise", scale=2.0, mean=1.0)
    scaled = helper.make_node("Mul", ["noise", "amount"], ["added"], name="scaled")
    nodes = [noise, scaled, helper.make_node("Add", ["x", "added"], ["y"], name="add")]
    return write_graph(path, nodes, {"x": ["batch", 3, "frames"], "amount": []}, {"y": None})


def of_opset(path: Path, opset: int, shape: Sequence[int | str]) -> Path:
    """Operators that changed between opset 7 and 21: Unsqueeze, Softmax, Clip. The rows of x stay apart."""
    squeeze = helper.make_node("Unsqueeze", ["x"], ["column"], name="unsqueeze")
    clip = helper.make_node("Clip", ["product"], ["y"], name="clip")
    stored = {"w": weight(4, 3)}
    if opset >= 13:
        squeeze.input.append("last")
        stored["last"] = np.asarray([2])
    else:
        squeeze.attribute.append(helper.make_attribute("axes", [2]))
    if opset >= 11:
        clip.input.extend(["low", "high"])
        stored |= {"low": np.asarray(-1, np.float32), "high": np.asarray(0.5, np.float32)}
    else:
        clip.attribute.extend([helper.make_attribute("min", -1.0), helper.make_attribute("max", 0.5)])
    nodes = [
        squeeze,
        helper.make_node("Transpose", ["column"], ["turned"], name="turn", perm=[0, 2, 1]),
        helper.make_node("Softmax", ["turned"], ["weights"], name="softmax", axis=2),
        helper.make_node("MatMul", ["weights", "w"], ["product"], name="product"),
        clip,
    ]
    return write_graph(path, nodes, {"x": [*shape]}, {"y": [shape[0], 1, 3]}, opset, **stored)
