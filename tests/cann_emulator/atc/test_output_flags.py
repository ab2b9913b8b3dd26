"""atc.md §2.1 output_type, §2.2 out_nodes and the two layout flags, §13a."""

import pytest

from workbench.cann_emulator.atc.boundary import (
    OUTPUT_TYPES,
    OutNodes,
    check_layouts,
    parse_out_nodes,
    parse_output_type,
)
from workbench.cann_emulator.atc.failure import AtcFailure


def code(call: object, *arguments: object) -> str:
    assert callable(call)
    with pytest.raises(AtcFailure) as caught:
        call(*arguments)
    return caught.value.records[0].code


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("Conv_120:0;Conv_9:1", OutNodes(nodes=(("Conv_120", 0), ("Conv_9", 1)))),
        ("o1;o2", OutNodes(tensors=("o1", "o2"))),
        (" o1;", OutNodes(tensors=(" o1", ""))),  # blanks and empty parts are names
        (" a :007", OutNodes(nodes=((" a ", 7),))),
        ("", OutNodes()),
    ],
)
def test_outputs_are_nodes_with_an_index_or_names_of_tensors(text: str, outputs: OutNodes) -> None:
    assert parse_out_nodes(text) == outputs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:0;b", "E10001"),
        ("b;a:0", "E10001"),
        ("b;a:x", "E10001"),
        ("a:0;", "E10001"),
        ("a:0:1", "E10001"),
        ("a:-1", "E10001"),
        ("a:x", "E10001"),
        ("a: 0", "E10001"),
        ("a:0 ;b:0", "E10001"),
        ("a:0; b:0 ", "E10001"),
        ("a:²", "E10001"),
        ("a:", "E10014"),
        ("a:99999999999", "E10013"),
        (f"a:{'9' * 5000}", "E10013"),
    ],
)
def test_outputs_that_are_refused(text: str, expected: str) -> None:
    assert code(parse_out_nodes, text) == expected


@pytest.mark.parametrize("name", OUTPUT_TYPES)
def test_one_type_for_all_outputs(name: str) -> None:
    assert parse_output_type(name, ()) == name


def test_a_type_for_each_of_the_named_outputs() -> None:
    outputs = [("a", 0), ("b", 1), ("c", 0)]
    assert parse_output_type("a:0:FP16; b : 1 : FP32", outputs) == {("a", 0): "FP16", ("b", 1): "FP32"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT32", "E10001"),
        ("INT64", "E10001"),
        ("fp16", "E10001"),
        (" FP16", "E10001"),
        ("a:FP16", "E10001"),
        ("a:0:INT64", "E10001"),
        ("a:x:FP16", "E10001"),
        ("a::FP16", "E10014"),
        ("a:99999999999:FP16", "E10013"),
        ("a:1:FP16", "E10001"),
        ("b:0:FP16", "E10001"),
        ("a:00:FP16", "E10001"),  # compared as text
        ("a:0:FP16;", "E10001"),
    ],
)
def test_types_that_are_refused(text: str, expected: str) -> None:
    assert code(parse_output_type, text, [("a", 0)]) == expected


def test_without_named_outputs_no_node_has_a_type() -> None:
    assert code(parse_output_type, "a:0:FP16", ()) == "E10001"


def test_layouts_are_lists_of_true_and_false() -> None:
    check_layouts("is_output_adjust_hw_layout", "true, false")
    check_layouts("is_output_adjust_hw_layout", "")
    for text in ("true,maybe", "1", "true,", "TRUE"):
        assert code(check_layouts, "is_output_adjust_hw_layout", text) == "E10005"
