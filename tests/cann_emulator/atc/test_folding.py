"""Folding at given shapes: values, shapes, branches."""

from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from tests.targets.encoder import Array, model_of
from workbench.cann_emulator.atc.folding import Folded, Shape, fold
from workbench.cann_emulator.atc.onnx_parser import parse_onnx

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, kind: int = FLOAT, shape: list[int | str] | None = None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape if shape is not None else ["n", "m"])


def folded(
    folder: Path,
    nodes: list[NodeProto],
    weights: dict[str, Array],
    shapes: dict[str, Shape],
    *,
    output: ValueInfoProto | None = None,
    fold_floats: bool = True,
) -> Folded:
    output = output or info("y", shape=[])
    output.type.tensor_type.ClearField("shape")
    proto = model_of(nodes, weights, [info(name) for name in shapes], [output])
    onnx.save(proto, folder / "m.onnx")
    return fold(parse_onnx(folder / "m.onnx"), shapes, (output.name,), fold_floats=fold_floats)


def node(op_type: str, inputs: str, output: str, **attributes: object) -> NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], name=f"{op_type.lower()}_{output}", **attributes)


SHAPE_ARITHMETIC = [
    node("Shape", "x", "s"),
    node("Gather", "s zero", "n"),
    node("Unsqueeze", "n axis0", "n1"),
    node("Div", "whole half", "part"),
    node("Concat", "n1 minus part", "target", axis=0),
    node("Reshape", "x target", "r"),
    node("Shape", "r", "rs"),
    node("ConstantOfShape", "rs", "ones", value=helper.make_tensor("v", FLOAT, [1], [1.0])),
    node("Mul", "r ones", "y"),
]
CONSTANTS: dict[str, Array] = {
    "zero": np.array(0),
    "axis0": np.array([0]),
    "whole": np.array([8]),
    "half": np.array([2]),
    "minus": np.array([-1]),
}


def test_shape_arithmetic_is_gone_at_fixed_shapes(tmp_path: Path) -> None:
    result = folded(tmp_path, SHAPE_ARITHMETIC, CONSTANTS, {"x": (2, 12)})
    assert [n.op_type for n in result.nodes] == ["Reshape", "Mul"]
    assert result.shapes["y"] == (2, 3, 4)
    assert not result.data_dependent
    assert np.array_equal(result.constants["target"], [2, -1, 4])


def test_a_branch_of_a_known_condition_takes_the_place_of_its_if(tmp_path: Path) -> None:
    branches = [
        helper.make_graph([helper.make_node(kind, ["x"], [out], name="inner")], kind, [], [info(out, shape=[])])
        for kind, out in (("Relu", "a"), ("Abs", "b"))
    ]
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Equal", "n two", "is_two"),
        node("If", "is_two", "y", then_branch=branches[0], else_branch=branches[1]),
    ]
    weights: dict[str, Array] = {"zero": np.array(0), "two": np.array(2)}
    for rows, kind in ((2, "Relu"), (3, "Abs")):
        result = folded(tmp_path, nodes, weights, {"x": (rows, 4)})
        assert [n.op_type for n in result.nodes] == [kind, "Identity"]
        assert result.nodes[0].name == "if_y/inner"
        assert result.shapes["y"] == (rows, 4)


def test_a_weight_that_is_transposed_is_folded_unless_constant_folding_is_off(tmp_path: Path) -> None:
    """atc.md §2.3, --oo_constant_folding."""
    nodes = [node("Transpose", "w", "wt", perm=[1, 0]), node("MatMul", "x wt", "y")]
    weights: dict[str, Array] = {"w": np.arange(64 * 64, dtype=np.float32).reshape(64, 64)}
    assert [n.op_type for n in folded(tmp_path, nodes, weights, {"x": (2, 64)}).nodes] == ["MatMul"]
    kept = folded(tmp_path, nodes, weights, {"x": (2, 64)}, fold_floats=False)
    assert [n.op_type for n in kept.nodes] == ["Transpose", "MatMul"]
