"""Models of one kind of work: the batch is free, so that one set has several sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 13, 8
SEED = 0


def products(count: int, inner: int, columns: int) -> ModelProto:
    """`count` products of one input [batch, inner] by weights [inner, columns] of their own, each an output."""
    rng = np.random.default_rng(SEED)
    weights = {f"w{i}": rng.uniform(-1, 1, (inner, columns)).astype(np.float32) for i in range(count)}
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"], name=f"matmul{i}") for i in range(count)]
    return _model(nodes, weights, (inner,), {f"y{i}": (columns,) for i in range(count)})


def chain(count: int, width: int) -> ModelProto:
    """`count` products [batch, width] × [width, width] one behind the other: next to nothing but launches."""
    rng = np.random.default_rng(SEED)
    weights = {f"w{i}": rng.uniform(-0.1, 0.1, (width, width)).astype(np.float32) for i in range(count)}
    names = ["x", *(f"h{i}" for i in range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]], name=f"matmul{i}") for i in range(count)]
    return _model(nodes, weights, (width,), {"y": (width,)})


def repeated(operator: str, count: int, width: int, **attributes: Any) -> ModelProto:
    """`count` times one operator over [batch, width], such as Softmax or Neg."""
    names = ["x", *(f"h{i}" for i in range(1, count)), "y"]
    nodes = [
        helper.make_node(operator, [names[i]], [names[i + 1]], name=f"{operator.lower()}{i}", **attributes)
        for i in range(count)
    ]
    return _model(nodes, {}, (width,), {"y": (width,)})


def reversals(count: int, steps: int, width: int) -> ModelProto:
    """`count` times ReverseSequence over [batch, steps, width]: scalar work that the AI CPU does [inferred]."""
    names = ["x", *(f"h{i}" for i in range(1, count)), "y"]
    lengths = {"steps": np.full(1, steps, np.int64)}
    nodes = [
        helper.make_node(
            "ReverseSequence", [names[i], "steps"], [names[i + 1]], name=f"reverse{i}", batch_axis=0, time_axis=1
        )
        for i in range(count)
    ]
    return _model(nodes, lengths, (steps, width), {"y": (steps, width)})


def _model(
    nodes: list[NodeProto],
    constants: Mapping[str, npt.NDArray[Any]],
    taken: tuple[int, ...],
    given: Mapping[str, tuple[int, ...]],
) -> ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "microbenchmark",
        [value("x", TensorProto.FLOAT, ["batch", *taken])],
        [value(name, TensorProto.FLOAT, ["batch", *shape]) for name, shape in given.items()],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
