"""Whatever the graph: fusion and precision keep its meaning, and every kernel reads what is there."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import Array, compiled, difference
from tests.targets.encoder import model_of
from workbench.cann_emulator.om import OfflineModel

WIDTH = 8
BINARY = ("Add", "Sub", "Mul", "Max", "MatMul")
UNARY = ("Relu", "Tanh", "Sigmoid", "Neg", "Softmax", "Transpose", "Reshape", "MatMulW", "AddBias", "MulScalar", "Mean")
MODES = ("force_fp16", "allow_fp32_to_fp16", "allow_mix_precision", "force_fp32", "must_keep_origin_dtype")


def write(path: Path, steps: list[tuple[str, int, int]], outputs: list[int]) -> None:
    """Square matrices all along, so that any tensor can meet any other."""
    random = np.random.default_rng(len(steps))
    weights: dict[str, Array] = {"same": np.array([WIDTH, WIDTH]), "half": np.array(0.5, np.float32)}
    tensors, nodes = ["x"], []
    for index, (kind, first, second) in enumerate(steps):
        inputs = [tensors[first % len(tensors)]]
        attributes: dict[str, object] = {}
        op_type = kind
        if kind in BINARY:
            inputs.append(tensors[second % len(tensors)])
        elif kind == "Transpose":
            attributes["perm"] = [1, 0]
        elif kind == "Reshape":
            inputs.append("same")
        elif kind == "MulScalar":
            op_type = "Mul"
            inputs.append("half")
        elif kind == "Mean":
            nodes.append(helper.make_node("ReduceMean", inputs, [f"m{index}"], name=f"mean{index}", axes=[-1]))
            op_type = "Sub"
            inputs.append(f"m{index}")
        elif kind in ("MatMulW", "AddBias"):
            op_type = "MatMul" if kind == "MatMulW" else "Add"
            shape = (WIDTH, WIDTH) if kind == "MatMulW" else (WIDTH,)
            weights[f"w{index}"] = (random.normal(size=shape) / WIDTH).astype(np.float32)
            inputs.append(f"w{index}")
        nodes.append(helper.make_node(op_type, inputs, [f"t{index}"], name=f"n{index}", **attributes))
        tensors.append(f"t{index}")
    names = dict.fromkeys([tensors[-1], *(tensors[1 + i % (len(tensors) - 1)] for i in outputs)])
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [WIDTH, WIDTH]) for n in ("x", *names)]
    onnx.save(model_of(nodes, weights, values[:1], values[1:], opset=14), path)


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
        st.tuples(st.sampled_from(BINARY + UNARY), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=14
    ),
    outputs=st.lists(st.integers(0, 20), max_size=2),
    mode=st.sampled_from(MODES),
)
def test_any_graph_keeps_its_meaning(
    steps: list[tuple[str, int, int]],
    outputs: list[int],
    mode: str,
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.onnx"
    write(path, steps, outputs)
    model = compiled(path, precision_mode=mode)
    check_wiring(model)
    feeds = {"x": np.random.default_rng(1).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 2}
    exact = mode == "must_keep_origin_dtype"
    scale = max(1.0, *(float(np.abs(value).max()) for value in _reference(path, feeds)))
    assert difference(model, path, feeds) <= (1e-5 if exact else 0.05) * scale


def _reference(path: Path, feeds: dict[str, Array]) -> list[Array]:
    results: list[Array] = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    return results
