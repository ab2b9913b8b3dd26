"""What no exporter writes is refused before a library looks at it, by its rule and at once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from workbench.graph.bounds import MOST_GRAPHS, check_model, parse_model
from workbench.graph.read import load_graph, read_model
from workbench.graph.tensors import check_tensor
from workbench.values.errors import ConfigError

FILE = Path("hostile.onnx")
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]


def model(
    nodes: Sequence[onnx.NodeProto],
    *,
    tensors: Sequence[T] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    shape: Sequence[int | str] = ("batch", 4),
) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", T.FLOAT, shape), helper.make_tensor_value_info("c", T.BOOL, [])]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", T.FLOAT, None)], initializer=list(tensors)
    )
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=8, functions=list(functions))


def tensor(dims: Sequence[int], kind: int = T.FLOAT, raw: bytes | None = b"") -> T:
    made = T(name="w", data_type=kind, dims=dims)
    if raw is not None:
        made.raw_data = raw
    return made


def nested(depth: int, *, both: bool) -> onnx.GraphProto:
    """Ifs within each other; `both` doubles their number at every level."""
    output = [helper.make_tensor_value_info("o", T.FLOAT, None)]
    leaf = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "leaf", [], output)
    inner = leaf
    for _ in range(depth):
        branches = {"then_branch": inner, "else_branch": inner if both else leaf}
        inner = helper.make_graph([helper.make_node("If", ["c"], ["o"], **branches)], "inner", [], output)
    return inner


def function(name: str, calls: Sequence[str]) -> onnx.FunctionProto:
    names = ["a", *(f"t{i}" for i in range(len(calls) - 1)), "b"]
    nodes = [helper.make_node(c, [names[i]], [names[i + 1]], domain="f") for i, c in enumerate(calls)]
    return helper.make_function("f", name, ["a"], ["b"], nodes, OPSETS)


ADD = helper.make_node("Add", ["x", "w"], ["y"])
RELU = helper.make_node("Relu", ["x"], ["y"])
CALL = helper.make_node("F0", ["x"], ["y"], domain="f")


def test_what_cannot_be_is_refused_by_its_rule() -> None:
    for made, rule in (
        (model([ADD], tensors=[tensor([-1])]), r"shape \[-1\], with a negative size"),
        (model([ADD], tensors=[tensor([2**62, 4])]), "more than 1099511627776 elements"),
        (model([ADD], tensors=[tensor([2**62, 0])]), "more than 1099511627776 elements"),
        (model([ADD], tensors=[tensor([1] * 40, raw=b"abcd")]), "40 axes, more than 32"),
        (model([ADD], tensors=[tensor([3], raw=b"abcd")]), "holds 4 bytes, its shape needs 12"),
        (model([ADD], tensors=[tensor([2**40], raw=None)]), "holds 0 numbers, its shape needs 1099511627776"),
        (model([ADD], tensors=[tensor([1], kind=99, raw=b"abcd")]), "no known element type \\(99\\)"),
        (model([ADD, RELU], tensors=[tensor([1], raw=b"abcd")]), "'y' is computed twice"),
        (model([ADD], tensors=[tensor([1], raw=b"abcd")] * 2), "initializer 'w' is defined twice"),
        (model([ADD]), "reads 'w', which nothing computes"),
        (model([helper.make_node("Add", ["x", "y"], ["y"])]), "leads back to itself"),
        (
            model([helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Add", ["x", "a"], ["b"]), RELU]),
            "leads back to itself",
        ),
        (model([helper.make_node("Relu", [], ["y"])]), "has 0 inputs, not 1"),
        (model([helper.make_node("Relu", [""], ["y"])]), "has 0 inputs, not 1"),
        (model([helper.make_node("Gather", ["x", "x"], ["y"], axis="1")]), "'axis' of type STRING, not INT"),
        (model([helper.make_node("Cast", ["x"], ["y"])]), "lacks the attribute 'to'"),
        (model([helper.make_node("", ["x"], ["y"])]), "has no operator"),
        (model([RELU], shape=[-2, 4]), "declares an axis of the size -2.*dim_param"),
        (model([RELU], shape=[2**20, 2**20]), "more than 268435456 elements"),
        (model([helper.make_node("Relu", ["x"], ["z"])]), "the output 'y' is computed by nothing"),
        (model([*nested(20, both=False).node, RELU]), "graphs are nested deeper than 16"),
        (model([*nested(12, both=True).node, RELU]), f"more than {MOST_GRAPHS} graphs"),
        (model([CALL], functions=[function("F0", ["F0"])]), "function 'F0' calls itself"),
        (model([CALL], functions=[function("F0", ["F1"]), function("F1", ["F0"])]), "calls itself"),
        (
            model([CALL], functions=[function(f"F{i}", [f"F{i + 1}"] * 2) for i in range(40)]),
            "becomes more than 1000000 nodes",
        ),
        (model([RELU], functions=[function("F0", ["G"])] * 2), "a function is defined twice"),
    ):
        with pytest.raises(ConfigError, match=rule) as caught:
            check_model(parse_model(made.SerializeToString(), FILE), FILE)
        assert str(caught.value).startswith("hostile.onnx: "), rule


def test_what_exporters_write_passes() -> None:
    loop = nested(3, both=True)
    made = model(
        [ADD, *loop.node],
        tensors=[numpy_helper.from_array(np.ones((1, 4), np.float32), "w")],
        functions=[function("F0", ["F1", "F1"])],
    )
    check_model(made, FILE)
    for kind in (T.FLOAT16, T.BFLOAT16, T.INT4, T.UINT4, T.BOOL, T.INT64, T.DOUBLE, T.COMPLEX64, T.FLOAT8E4M3FN):
        check_tensor(helper.make_tensor("w", kind, [3], [1, 0, 1]), FILE)
    check_tensor(helper.make_tensor("w", T.STRING, [2], [b"a", b"b"]), FILE)
    check_tensor(numpy_helper.from_array(np.zeros((0, 4), np.float32)), FILE)


def test_external_data_lie_in_the_folder_and_within_their_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 16)
    path = tmp_path / "model.onnx"
    for entries, rule in (
        ({"location": "../secret.bin"}, "outside the model's folder"),
        ({"location": "/etc/passwd"}, "outside the model's folder"),
        ({"location": ""}, "names no file"),
        ({"location": "a\0b"}, "names no file"),
        ({"location": "x" * 5000}, "at no path"),
        ({"location": "w.bin", "offset": "-1"}, "with the offset '-1'"),
        ({"location": "w.bin", "offset": "9" * 30}, "with the offset"),
        ({"location": "w.bin", "length": "1e3"}, "with the length '1e3'"),
        ({"location": "w.bin", "length": "4"}, "holds 4 bytes of external data, its shape needs 16"),
        ({"location": "w.bin", "offset": "4611686018427387904"}, r"w\.bin has 16 bytes, tensor 'w' needs"),
        ({"location": "missing.bin"}, r"missing\.bin of tensor 'w' is missing"),
    ):
        outside = T(name="w", data_type=T.FLOAT, dims=[4], data_location=T.EXTERNAL)
        for key, value in entries.items():
            outside.external_data.add(key=key, value=value)
        path.write_bytes(model([ADD], tensors=[outside]).SerializeToString())
        with pytest.raises(ConfigError, match=rule):
            read_model(path)


def test_external_data_in_a_branch_count_too(tmp_path: Path) -> None:
    outside = T(name="v", data_type=T.FLOAT, dims=[4], data_location=T.EXTERNAL)
    outside.external_data.add(key="location", value="../../etc/passwd")
    branch = nested(0, both=False)
    branch.initializer.append(outside)
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    path = tmp_path / "model.onnx"
    path.write_bytes(model([node]).SerializeToString())

    with pytest.raises(ConfigError, match="outside the model's folder"):
        read_model(path)


def test_thousands_of_nodes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    count = 5_000
    nodes = [helper.make_node("Relu", ["x"], [f"t{i}"], name="same") for i in range(count)]
    path = tmp_path / "model.onnx"
    path.write_bytes(model([*nodes, RELU]).SerializeToString())

    names = {node.name for node in load_graph(read_model(path)).graph.node}

    assert len(names) == count + 1
