"""Shapes that are compiled: what the flags ask for against what the model has (atc.md §3.3)."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import encoder
from tests.targets.encoder import model_of
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.gears import ShapePlan, plan_shapes
from workbench.cann_emulator.atc.onnx_parser import parse_onnx


def two_inputs(folder: Path, first: list[int | str], second: list[int | str]) -> Path:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("a", first), ("b", second))]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Add", ["a", "b"], ["y"], name="add")]
    onnx.save(model_of(nodes, {"unused": np.zeros(1, np.float32)}, values, [y]), folder / "m.onnx")
    return folder / "m.onnx"


def plan(path: Path, **flags: str) -> ShapePlan:
    return plan_shapes(parse_onnx(path), flags)


def code(path: Path, **flags: str) -> str:
    with pytest.raises(AtcFailure) as caught:
        plan(path, **flags)
    return caught.value.records[0].code


def test_fixed_shapes_of_the_file_need_no_flag(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, [2, 3], [2, 3])
    assert plan(path).gears == (((), {"a": (2, 3), "b": (2, 3)}),)
    assert plan(path, input_shape="b:1,3").boundary == {"a": (2, 3), "b": (1, 3)}


def test_shapes_by_position_go_to_the_inputs_in_order(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", 3], ["n", 3])
    assert plan(path, input_shape="2,3;4,3").boundary == {"a": (2, 3), "b": (4, 3)}


def test_open_axes_without_a_shape_are_the_usual_failure(tmp_path: Path) -> None:
    with pytest.raises(AtcFailure) as caught:
        plan(encoder(tmp_path))
    (record,) = caught.value.records
    assert (record.code, record.arguments["parameter"], record.arguments["value"]) == (
        "E10001",
        "--input_shape",
        "NULL",
    )


def test_names_must_be_inputs_of_the_model(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", 3], ["n", 3])
    assert code(path, input_shape="c:1,3") == "E10016"
    assert code(path, input_shape="add:1,3") == "E10017"


def test_a_shape_of_another_rank_and_an_axis_outside_its_range_are_refused(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", 3], ["n", 3])
    assert code(path, input_shape="a:1,3,3;b:1,3") == "E10049"
    assert code(path, input_shape="a:1,4~8;b:1,3") == "E10050"


def test_an_input_that_is_left_open_makes_a_range_model(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", 3], ["n", 3])
    found = plan(path, input_shape="a:2~4,3")
    assert found.kind == "range"
    assert found.boundary == {"a": (-1, 3), "b": (-1, 3)}


def test_batches_fill_the_first_axis_of_every_open_input(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", 3], ["n", 3])
    found = plan(path, input_shape="a:-1,3;b:-1,3", dynamic_batch_size="4,1,")
    assert found.kind == "dynamic_batch_size"
    assert found.gears == (((4,), {"a": (4, 3), "b": (4, 3)}), ((1,), {"a": (1, 3), "b": (1, 3)}))


def test_dims_fill_the_open_axes_in_input_order(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", "m"], ["n", "m"])
    found = plan(path, input_shape="a:-1,-1;b:-1,3", dynamic_dims="1,2,3;4,5,6")
    assert found.gears[1] == ((4, 5, 6), {"a": (4, 5), "b": (6, 3)})
    turned = plan(path, input_shape="a:-1,-1;b:-1,3", dynamic_dims="9,2,3;1,2,3;4,5,6")
    assert [dims for dims, _ in turned.gears] == [(9, 2, 3), (1, 2, 3), (4, 5, 6)]


def test_image_sizes_fill_height_and_width(tmp_path: Path) -> None:
    path = two_inputs(tmp_path, [1, 3, "h", "w"], [1, 3, "h", "w"])
    shape = "a:1,3,-1,-1;b:1,3,-1,-1"
    found = plan(path, input_shape=shape, dynamic_image_size="16,32;8,8")
    assert [gear for gear, _ in found.gears] == [(16, 32), (8, 8)]
    assert found.gears[0][1]["b"] == (1, 3, 16, 32)


@pytest.mark.parametrize(("dims", "expected"), [("1", "E10035"), ("1,1", "E10039"), ("1,2,1", "E10039"), ("0,4", None)])
def test_lists_of_gears_have_their_own_codes(dims: str, expected: str | None, tmp_path: Path) -> None:
    path = two_inputs(tmp_path, ["n", 3], ["n", 3])
    flags = {"input_shape": "a:-1,3;b:-1,3", "dynamic_batch_size": dims}
    if expected is None:
        assert plan(path, **flags).gears[0][0] == (0,)  # only negative ones are refused there
    else:
        assert code(path, **flags) == expected
