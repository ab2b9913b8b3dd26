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


def test_fixed_shapes_of_the_file_need_no_flag(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, [2, 3], [2, 3])
    assert plan(path).gears == (((), {"a": (2, 3), "b": (2, 3)}),)
    assert plan(path, input_shape="b:1,3").boundary == {"a": (2, 3), "b": (1, 3)}
    assert plan(path, input_shape="b:1,3;b:9,9").boundary["b"] == (1, 3)


def test_every_size_of_a_range_is_held_against_the_models(tmp_path: Path) -> None:
    """tensor_utils.cc:391: a fixed size is a range with equal ends."""
    path = two_inputs(tmp_path, ["n", 3], ["n", 3])
    outside = ("-1,4~8", "-1,1~2", "-1,4", "-1,2", "-1,0", "-1,4~2")
    for expected, shapes in {
        "": ("-1,1~8", "-1,3", "-1,-1", "7,1~8", "-5,-1"),
        "E10049": ("-1,3,3",),
        "E10050": outside,
        "E10048": ("-1,-5",),
    }.items():
        for dims in shapes:
            for flags in ({"input_shape": f"a:{dims}"}, {"input_shape_range": f"a:[{dims}]"}):
                if expected:
                    assert code(path, **flags) == expected, flags
                else:
                    assert plan(path, **flags).kind == "range", flags


def test_an_input_that_is_left_open_makes_a_range_model(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", 3], ["n", 3])
    for shape in ("a:2~4,3", "a:2~4,3;b:"):  # an entry without sizes says nothing
        found = plan(path, input_shape=shape)
        assert found.kind == "range"
        assert found.boundary == {"a": (-1, 3), "b": (-1, 3)}


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
