import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rich.console import Console

from tests.graph.intake.graphs import rate_dependent
from tests.small_graphs import write_graph
from tests.tiny import write_model
from workbench.study.inspection import MOST_OPENED, inspect_model, inspection_table
from workbench.targets.openvino import check as openvino_check
from workbench.targets.openvino.compiler import library
from workbench.values.errors import ConfigError, ToolchainError


def attention(path: Path, *, shape: Sequence[Any] = ("batch", "length", 8), nan: bool = False) -> Path:
    """x → project (8×8) → scores = p pᵀ → context = scores p; unnamed axes are given as None."""
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    if nan:
        weight[2, 3] = np.nan
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["p"], name="project"),
        helper.make_node("Transpose", ["p"], ["t"], perm=[0, 2, 1], name="turn"),
        helper.make_node("MatMul", ["p", "t"], ["s"], name="scores"),
        helper.make_node("MatMul", ["s", "p"], ["y"], name="context"),
    ]
    return write_graph(path, nodes, {"x": list(shape)}, {"y": list(shape)}, W=weight)


def printed(path: Path, target: str | None = None, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(inspection_table(inspect_model(path, target)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_layers_operators_and_parameters_are_counted_and_shown_with_the_troubles(tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx")
    found, text = inspect_model(path), printed(path)

    assert [(layer.name, layer.parameters, layer.second) for layer in found.layers] == [
        ("project", 64, None),
        ("scores", 0, "t"),
        ("context", 0, "p"),
    ]
    assert (found.layers[0].macs, found.layers[0].macs_per) == (64, "token")
    assert found.operators == {"MatMul": 3, "Transpose": 1}
    assert (found.parameters, found.opsets) == (64, {"ai.onnx": 17})
    for said in (
        *("[batch, length, 8]", "operators: MatMul 3, Transpose 1", "grows with length", "64 / token"),
        *("onnxruntime: ", "→ Decide on batch sizes and sequence bins"),
    ):
        assert said in text


def test_every_target_is_asked_unless_one_is_named(tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx")

    assert list(inspect_model(path).issues) == ["every target", "onnxruntime", "openvino", "ascend910b3"]
    assert list(inspect_model(path, "ascend910b3").issues) == ["every target", "ascend910b3"]
    assert [i.node for i in inspect_model(path).issues["ascend910b3"]] == ["x"]
    with pytest.raises(ConfigError, match="takes folders of language models"):
        inspect_model(path, "ascend-llm")


def test_a_target_that_is_not_installed_is_told_unless_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = attention(tmp_path / "m.onnx")
    library.cache_clear()
    monkeypatch.setitem(sys.modules, "openvino", None)  # how Python marks a module that cannot be imported
    openvino_check._refusal.cache_clear()

    (issue,) = inspect_model(path).issues["openvino"]
    with pytest.raises(ToolchainError, match="OpenVINO cannot be imported"):
        inspect_model(path, "openvino")

    assert (issue.severity, issue.operator) == ("warning", "target")
    assert "OpenVINO cannot be imported" in issue.problem
    library.cache_clear()


def test_weights_that_are_not_numbers_and_unnamed_or_fixed_axes_are_named(tmp_path: Path) -> None:
    nan, first, second = inspect_model(attention(tmp_path / "m.onnx", shape=(4, None, 8), nan=True)).issues[
        "every target"
    ]

    assert (nan.severity, nan.node, first.node, second.node) == ("error", "W", "x", "x")
    assert "1 of 64 values are not finite" in nan.problem
    assert "axes 1 are dynamic and have no name" in first.problem
    assert "batch is fixed at 4" in second.problem


def test_a_name_too_long_for_the_terminal_is_folded_and_not_cut(tmp_path: Path) -> None:
    write_model(tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx")
    name = proto.graph.node[0].name = "/encoder" * 10 + "/query"
    onnx.save(proto, tmp_path / "m.onnx")

    first_column = "".join(line.split(" ")[0] for line in printed(tmp_path / "m.onnx", width=60).splitlines())

    assert name in first_column


def test_branches_are_looked_into_and_a_constant_takes_one_of_them(tmp_path: Path) -> None:
    path = rate_dependent(tmp_path / "m.onnx")

    asked = inspect_model(path, "ascend910b3")
    taken = inspect_model(path, "ascend910b3", constants=["rate=16000"])

    first = asked.issues["every target"][0]
    assert (first.severity, first.node) == ("error", "rate")
    assert "--constant rate=" in first.remedy
    assert asked.inside["If 'by_rate'"]["MatMul"] == 2
    (branch,) = (issue for issue in asked.issues["ascend910b3"] if issue.operator == "If")
    assert (branch.severity, branch.node) == ("error", "by_rate")
    assert [layer.name for layer in taken.layers] == ["product_16"]
    assert not [issue for issue in taken.issues["ascend910b3"] if issue.severity == "error"]


def test_what_a_target_refuses_is_found_by_loading_it(tmp_path: Path) -> None:
    node = helper.make_node("Unheard", ["x"], ["y"], name="odd", domain="some.where")
    proto = onnx.load(write_graph(tmp_path / "m.onnx", [node], {"x": ["batch", 4]}, {"y": ["batch", 4]}))
    proto.opset_import.append(helper.make_opsetid("some.where", 1))
    onnx.save(proto, tmp_path / "m.onnx")

    found = inspect_model(tmp_path / "m.onnx", "onnxruntime")

    assert "some.where" in {issue.node for issue in found.issues["every target"]}
    assert any("some.where" in issue.problem and issue.severity == "error" for issue in found.issues["onnxruntime"])


def test_a_model_with_integer_layers_is_said_to_be_quantized_already(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="quantize"),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["sum"], name="integers"),
        helper.make_node("Cast", ["sum"], ["float"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "s"], ["y"], name="rescale"),
    ]
    shapes = {"x": ["batch", 4]}, {"y": ["batch", 3]}
    path = write_graph(tmp_path / "m.onnx", nodes, *shapes, w=np.ones((4, 3), np.int8))

    first = inspect_model(path, "onnxruntime").issues["every target"][0]

    assert (first.severity, first.node) == ("error", "quantize")
    assert "quantized already" in first.problem


def test_a_graph_of_very_many_nodes_is_not_compiled_for_a_look_and_that_is_said(tmp_path: Path) -> None:
    count = MOST_OPENED + 1
    nodes = [helper.make_node("Relu", [f"t{i}" if i else "x"], [f"t{i + 1}"]) for i in range(count)]
    path = write_graph(tmp_path / "long.onnx", nodes, {"x": ["n", 2]}, {f"t{count}": ["n", 2]})

    problems = [issue.problem for issue in inspect_model(path, "onnxruntime").issues["onnxruntime"]]

    assert [said for said in problems if said.startswith("whether it compiles was not tried: 5001 nodes")]
