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


def test_outputs_are_nodes_with_an_index_or_names_of_tensors() -> None:
    """Blanks and empty parts are names."""
    assert parse_out_nodes("Conv_120:0;Conv_9:1") == OutNodes(nodes=(("Conv_120", 0), ("Conv_9", 1)))
    assert parse_out_nodes("o1;o2") == OutNodes(tensors=("o1", "o2"))
    assert parse_out_nodes(" o1;") == OutNodes(tensors=(" o1", ""))
    assert parse_out_nodes(" a :007") == OutNodes(nodes=((" a ", 7),))
    assert parse_out_nodes("") == OutNodes()
    mixed, form = ("a:0;b", "b;a:0", "b;a:x", "a:0;"), ("a:0:1", "a:-1", "a:x", "a: 0", "a:0 ;b:0", "a:0; b:0 ", "a:²")
    for text in (*mixed, *form):
        assert code(parse_out_nodes, text) == "E10001", text
    assert code(parse_out_nodes, "a:") == "E10014"
    for text in ("a:99999999999", f"a:{'9' * 5000}"):
        assert code(parse_out_nodes, text) == "E10013"


def test_a_type_is_of_all_outputs_or_of_each_that_is_named() -> None:
    for name in OUTPUT_TYPES:
        assert parse_output_type(name, ()) == name
    outputs = [("a", 0), ("b", 1), ("c", 0)]
    assert parse_output_type("a:0:FP16; b : 1 : FP32", outputs) == {("a", 0): "FP16", ("b", 1): "FP32"}
    kinds, forms = ("INT32", "INT64", "fp16", " FP16"), ("a:FP16", "a:0:INT64", "a:x:FP16", "a:0:FP16;")
    for text in (*kinds, *forms, "a:1:FP16", "b:0:FP16", "a:00:FP16"):  # the last is compared as text
        assert code(parse_output_type, text, [("a", 0)]) == "E10001", text
    assert code(parse_output_type, "a::FP16", [("a", 0)]) == "E10014"
    assert code(parse_output_type, "a:99999999999:FP16", [("a", 0)]) == "E10013"
    assert code(parse_output_type, "a:0:FP16", ()) == "E10001"


def test_layouts_are_lists_of_true_and_false() -> None:
    check_layouts("is_output_adjust_hw_layout", "true, false")
    check_layouts("is_output_adjust_hw_layout", "")
    for text in ("true,maybe", "1", "true,", "TRUE"):
        assert code(check_layouts, "is_output_adjust_hw_layout", text) == "E10005"
