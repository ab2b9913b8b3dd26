"""atc.md §2.1 output_type, §2.2 out_nodes and the two layout flags."""

import pytest

from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.output_flags import (
    OUTPUT_TYPES,
    check_output_flags,
    parse_out_nodes,
    parse_output_type,
)


def test_outputs_are_nodes_with_an_index_or_names_of_tensors() -> None:
    assert parse_out_nodes("Conv_120:0;Conv_9:1") == (("Conv_120", 0), ("Conv_9", 1))
    assert parse_out_nodes("o1;o2") == (("o1", None), ("o2", None))
    assert parse_out_nodes("") == ()


@pytest.mark.parametrize("name", OUTPUT_TYPES)
def test_one_type_for_all_outputs(name: str) -> None:
    assert parse_output_type(name) == name
    check_output_flags({"output_type": name})


def test_a_type_for_each_of_the_named_outputs() -> None:
    assert parse_output_type("a:0:FP16; b : 1 : FP32") == (("a", 0, "FP16"), ("b", 1, "FP32"))
    check_output_flags({"output_type": "a:0:FP16", "out_nodes": "a:0;b:0"})


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"out_nodes": "a:0;b"}, "E10001"),
        ({"out_nodes": "b;a:0"}, "E10001"),
        ({"out_nodes": "a:0:1"}, "E10001"),
        ({"out_nodes": "a:-1"}, "E10001"),
        ({"out_nodes": "a:x"}, "E10001"),
        ({"out_nodes": "a:"}, "E10014"),
        ({"out_nodes": "a:99999999999"}, "E10013"),
        ({"output_type": "INT32"}, "E10001"),
        ({"output_type": "INT64"}, "E10001"),
        ({"output_type": "fp16"}, "E10001"),
        ({"output_type": "a:FP16"}, "E10001"),
        ({"output_type": "a:0:INT64", "out_nodes": "a:0"}, "E10001"),
        ({"output_type": "a:x:FP16", "out_nodes": "a:0"}, "E10001"),
        ({"output_type": "a:0:FP16"}, "E10001"),
        ({"output_type": "a:1:FP16", "out_nodes": "a:0"}, "E10001"),
        ({"is_output_adjust_hw_layout": "true,maybe", "out_nodes": "a:0"}, "E10005"),
        ({"is_input_adjust_hw_layout": "1"}, "E10005"),
    ],
)
def test_what_is_refused(options: dict[str, str], code: str) -> None:
    with pytest.raises(AtcFailure) as caught:
        check_output_flags(options)

    assert caught.value.records[0].code == code


def test_layouts_are_lists_of_true_and_false() -> None:
    check_output_flags({"is_output_adjust_hw_layout": "true, false", "is_input_adjust_hw_layout": "false"})


def test_whose_output_a_tensor_is_only_the_model_knows() -> None:
    check_output_flags({"output_type": "a:0:FP16", "out_nodes": "o1;o2"})


def test_a_pre_check_does_not_come_to_types() -> None:
    check_output_flags({"output_type": "INT64", "mode": "3"})
    with pytest.raises(AtcFailure):
        check_output_flags({"out_nodes": "a:0;b", "mode": "3"})
