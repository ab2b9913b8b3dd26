"""Operators, graphs and networks of every kind compile, keep their shapes, and compute what ONNX says."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import NodeProto, helper

from tests.cann_emulator.atc.compiling import Array, compiled, node
from tests.small_graphs import write_graph
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.om import OfflineModel
from workbench.testing.encoder import run, value


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def branch(kind: str, name: str) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(kind, ["x"], [name], name="inner")], kind, [], [value(name, [4, 8])])


IMAGE, ROWS = floats(2, 4, 8, 8), floats(4, 8)
CASES: dict[str, tuple[list[NodeProto], Array, dict[str, Array]]] = {
    "lstm": (
        [node("LSTM", "x w r b", "y h c", hidden_size=5)],
        floats(7, 2, 8),
        {"w": floats(1, 20, 8) / 4, "r": floats(1, 20, 5) / 4, "b": floats(1, 40) / 4},
    ),
    "resize without a roi at opset 11, as exporters write it": (
        [node("Resize", "x - s", "y", mode="nearest")],
        IMAGE,
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "residual convolution": (
        [
            node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
            node("BatchNormalization", "a s b m v", "c"),
            node("Add", "c x", "d"),
            node("Relu", "d", "y"),
        ],
        IMAGE,
        {"w": floats(4, 4, 3, 3) / 6, **{name: np.abs(floats(4)) + np.float32(0.5) for name in "sbmv"}},
    ),
    "branch that the shapes choose": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s one", "n"),
            node("Equal", "n eight", "c"),
            node("If", "c", "y", then_branch=branch("Relu", "a"), else_branch=branch("Neg", "b")),
        ],
        ROWS,
        {"one": np.array(1), "eight": np.array(8)},
    ),
    "half precision file": (
        [node("Relu", "x", "a"), node("MatMul", "a w", "y")],
        ROWS.astype(np.float16),
        {"w": floats(8, 3).astype(np.float16)},
    ),
}
"""Nodes, what `x` is fed, and weights; the outputs are those of the last node."""


def write(nodes: list[NodeProto], x: Array, weights: dict[str, Array], path: Path, opset: int = 14) -> Path:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    outputs = {name: (kind, None) for name in nodes[-1].output}
    return write_graph(path, nodes, {"x": (kind, x.shape)}, outputs, opset, **weights)


@pytest.mark.parametrize("name", CASES)
def test_an_operator_compiles_and_computes(name: str, tmp_path: Path) -> None:
    nodes, x, weights = CASES[name]
    wanted = run(onnx.load(write(nodes, x, weights, tmp_path / "wanted/m.onnx")), {"x": x})
    path = write(nodes, x, weights, tmp_path / "m.onnx", 11 if name.startswith("resize") else 14)
    for mode in ("must_keep_origin_dtype", "force_fp16"):
        model = compiled(path, precision_mode=mode)
        results = Executable(model, threads=1).run({"x": x})
        close = 1e-5 if mode == "must_keep_origin_dtype" and name != "half precision file" else 0.03
        for tensor, expected in zip(model.outputs, wanted, strict=True):
            assert (tensor.shape, tensor.dtype) == (expected.shape, expected.dtype.name)
            given = results[tensor.name].reshape(expected.shape).astype(np.float64)
            np.testing.assert_allclose(given, expected, rtol=close, atol=close)


WIDTH = 8
BINARY = ("Add", "Sub", "Mul", "Max", "MatMul")
UNARY: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    **{kind: (kind, [], {}) for kind in ("Relu", "Tanh", "Sigmoid", "Neg", "Softmax")},
    "transpose": ("Transpose", [], {"perm": [1, 0]}),
    "reshape": ("Reshape", ["same"], {}),
    "weights": ("MatMul", ["square"], {}),
    "bias": ("Add", ["row"], {}),
    "scale": ("Mul", ["half"], {}),
    "mean": ("ReduceMean", [], {"axes": [-1]}),
}
"""Operator, what it reads besides, attributes; what a mean gives is taken from what it read."""
MODES = ("force_fp16", "allow_fp32_to_fp16", "allow_mix_precision", "force_fp32", "must_keep_origin_dtype")
WEIGHTS = {
    **{"same": np.array([WIDTH, WIDTH]), "half": np.array(0.5, np.float32)},
    **{"square": floats(WIDTH, WIDTH) / WIDTH, "row": floats(WIDTH) / WIDTH},
}


def write_squares(path: Path, steps: list[tuple[str, int, int]], outputs: list[int]) -> None:
    """Square matrices all along, so that any tensor can meet any other."""
    tensors, nodes = ["x"], []
    for index, (kind, first, second) in enumerate(steps):
        read, other = tensors[first % len(tensors)], tensors[second % len(tensors)]
        op_type, more, attributes = UNARY.get(kind, (kind, [other], {}))
        made = f"t{index}" if kind != "mean" else f"m{index}"
        nodes.append(helper.make_node(op_type, [read, *more], [made], name=f"n{index}", **attributes))
        if kind == "mean":
            nodes.append(helper.make_node("Sub", [read, made], [f"t{index}"], name=f"s{index}"))
        tensors.append(f"t{index}")
    names = dict.fromkeys([tensors[-1], *(tensors[1 + i % (len(tensors) - 1)] for i in outputs)])
    square = [WIDTH, WIDTH]
    write_graph(path, nodes, {"x": square}, dict.fromkeys(names, square), 14, **WEIGHTS)


def check_wiring(model: OfflineModel) -> None:
    graph = onnx.ModelProto.FromString(model.graph).graph
    made = {"x": "float32", **{tensor.name: "" for tensor in graph.initializer}}
    covered: list[str] = []
    for kernel in model.gears[0].kernels:
        for tensor in kernel.inputs:
            assert made[tensor.name] in ("", tensor.dtype), (kernel.name, tensor)
        made.update((tensor.name, tensor.dtype) for tensor in kernel.outputs)
        covered.extend(kernel.nodes)
    assert sorted(covered) == sorted(node.name for node in graph.node)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from((*BINARY, *UNARY)), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=14
    ),
    outputs=st.lists(st.integers(0, 20), max_size=2),
    mode=st.sampled_from(MODES),
)
def test_any_graph_keeps_meaning(
    steps: list[tuple[str, int, int]], outputs: list[int], mode: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    write_squares(path, steps, outputs)
    model = compiled(path, precision_mode=mode)
    check_wiring(model)
    feeds = {"x": np.random.default_rng(1).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 2}
    wanted, results = run(onnx.load(path), feeds), Executable(model, threads=1).run(feeds)
    scale = max(1.0, *(float(np.abs(value).max()) for value in wanted))
    close = (1e-5 if mode == "must_keep_origin_dtype" else 0.05) * scale
    for tensor, expected in zip(model.outputs, wanted, strict=True):
        np.testing.assert_allclose(results[tensor.name], expected, rtol=0, atol=close)


def test_an_unforeseen_error_is_an_inner_error_and_never_a_traceback(tmp_path: Path) -> None:
    """Files end at 64 bytes, as on a full disk."""
    write([node("Relu", "x", "y")], ROWS, {}, tmp_path / "m.onnx")
    words = ["--framework=5", "--model=m.onnx", "--output=m", "--soc_version=Ascend910B3", "--export_compile_stat=0"]

    def limited(**variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "workbench.cann_emulator.atc", *words],
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)),
        )

    done = limited()
    assert (done.returncode, done.stderr) == (255, "")
    assert "E19999: Inner Error!" in done.stdout
    strict = limited(CANN_EMULATOR_STRICT="1")
    assert strict.returncode == 1
    assert "OSError" in strict.stderr
