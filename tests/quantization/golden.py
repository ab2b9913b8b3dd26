"""Models and data of the golden cases G1 to G7, given by formula (amct.md §11)."""

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Floats = npt.NDArray[np.float32]


def weights(shape: tuple[int, ...], a: int, b: int, m: int, d: int) -> Floats:
    """((a·k + b) mod m - m // 2) / d over the flat index k."""
    k = np.arange(np.prod(shape))
    return (((a * k + b) % m - m // 2) / d).astype(np.float32).reshape(shape)


def data(shape: tuple[int, ...], batch: int) -> Floats:
    size = int(np.prod(shape))
    k = 1 + batch * size + np.arange(size)
    u = ((7919 * k) % 2003 - 1001) / 1001
    return (3 * u**3 + 0.2).astype(np.float32).reshape(shape)


def mlp() -> onnx.ModelProto:
    """x[16, 8] → fc1 → ReLU → fc2 → y[16, 3]."""
    constants = {
        "fc1.weight": weights((6, 8), 37, 5, 101, 160),
        "fc1.bias": weights((6,), 13, 3, 17, 40),
        "fc2.weight": weights((3, 6), 29, 7, 61, 90),
        "fc2.bias": weights((3,), 5, 1, 7, 20),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], name="fc1", alpha=1.0, beta=1.0, transB=1),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("Gemm", ["r", "fc2.weight", "fc2.bias"], ["y"], name="fc2", alpha=1.0, beta=1.0, transB=1),
    ]
    return _model(nodes, constants, [16, 8], [16, 3])


def cnn() -> onnx.ModelProto:
    """x[2, 3, 6, 6] → conv1 → ReLU → conv2 (two groups) → y[2, 4, 6, 6]."""
    constants = {
        "conv1.weight": weights((4, 3, 3, 3), 41, 9, 127, 300),
        "conv1.bias": weights((4,), 3, 1, 11, 30),
        "conv2.weight": weights((4, 2, 3, 3), 53, 4, 149, 400),
        "conv2.bias": weights((4,), 7, 2, 13, 30),
    }
    common = {"dilations": [1, 1], "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight", "conv1.bias"], ["h"], name="conv1", group=1, **common),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("Conv", ["r", "conv2.weight", "conv2.bias"], ["y"], name="conv2", group=2, **common),
    ]
    return _model(nodes, constants, [2, 3, 6, 6], [2, 4, 6, 6])


def _model(
    nodes: list[onnx.NodeProto], constants: dict[str, Floats], given: list[int], result: list[int]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "golden",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
