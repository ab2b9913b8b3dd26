"""Shapes that are compiled: what the flags ask for against what the model has (atc.md §3.3, §13a)."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.targets.encoder import model_of
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.gears import (
    ShapePlan,
    check_names,
    check_ranks,
    input_shapes,
    plan_shapes,
    read_requests,
)
from workbench.cann_emulator.atc.onnx_parser import parse_onnx
from workbench.cann_emulator.atc.shapes import check_shape_flags

Sizes = list[int | str] | None


def two_inputs(folder: Path, first: Sizes, second: Sizes) -> Path:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("a", first), ("b", second))]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Add", ["a", "b"], ["y"], name="add")]
    onnx.save(model_of(nodes, {"unused": np.zeros(1, np.float32)}, values, [y]), folder / "m.onnx")
    return folder / "m.onnx"


def plan(path: Path, **flags: str) -> ShapePlan:
    """What a conversion plans, through every step that looks at shapes."""
    check_shape_flags(flags)
    requests, parsed = read_requests(flags), parse_onnx(path)
    check_ranks(parsed, requests)
    check_names(parsed, requests)
    shapes = input_shapes(parsed, requests)
    return plan_shapes(shapes, requests, input_format=flags.get("input_format", "NCHW"), quantized=parsed.quantized)


def code(path: Path, **flags: str) -> str:
    with pytest.raises(AtcFailure) as caught:
        plan(path, **flags)
    return caught.value.records[0].code


def test_batches_fill_the_first_axis_of_every_open_input(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", 3], ["n", 3])
    for sizes in ("4,1,", "4,,1", ",4,1"):
        found = plan(path, input_shape="a:-1,3;b:-1,3", dynamic_batch_size=sizes)
        assert found.kind == "dynamic_batch_size"
        assert found.gears == (((4,), {"a": (4, 3), "b": (4, 3)}), ((1,), {"a": (1, 3), "b": (1, 3)}))


def test_dims_fill_the_open_axes_in_the_order_of_the_input_shape(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", "m"], ["n", "m"])
    found = plan(path, input_shape="a:-1,-1;b:-1,3", dynamic_dims="1,2,3;4,5,6")
    assert found.gears[1] == ((4, 5, 6), {"a": (4, 5), "b": (6, 3)})
    turned = plan(path, input_shape="a:-1,-1;b:-1,3", dynamic_dims="9,2,3;1,2,3;4,5,6")
    assert [dims for dims, _ in turned.gears] == [(9, 2, 3), (1, 2, 3), (4, 5, 6)]
    found = plan(path, input_shape="b:-1,3;a:-1,-1", dynamic_dims="1,2,3;4,5,6")
    assert dict(found.gears)[5, 6, 4] == {"a": (5, 6), "b": (4, 3)}  # a gear's key is in the order of the inputs


def test_image_sizes_fill_height_and_width(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, [1, 3, "h", "w"], [1, 3, "h", "w"])
    shape = "a:1,3,-1,-1;b:1,3,-1,-1"
    found = plan(path, input_shape=shape, dynamic_image_size="16,32;8,8")
    assert [gear for gear, _ in found.gears] == [(16, 32), (8, 8)]
    assert found.gears[0][1]["b"] == (1, 3, 16, 32)
    assert code(path, input_shape=shape, dynamic_image_size="16, 32;8,8") == "E19999"
    assert code(path, input_shape=shape, dynamic_image_size="16,;8,8") == "E10037"
    assert code(path, input_shape=shape, dynamic_image_size="16,;8,") == "E10046"
