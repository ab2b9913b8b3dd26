"""Items between stages: what fits is passed on as the model takes it, anything else is named."""

from typing import Any

import numpy as np
import pytest

from workbench.values.model import TensorSpec
from workbench.values.pipeline import Item, ItemError, Wiring, checked_answer, checked_items, items_of, runs_once

SPECS = (TensorSpec(name="x", dtype="float32", shape=("batch", 3, "width")),)
GLUED = Wiring(name="read", takes=("request",), glue="ocr.py:crops", most_items=2)
FITS = {"x": np.zeros((3, 5))}


def test_items_that_fit_become_arrays_of_the_models_type() -> None:
    found = checked_items([FITS, {"x": np.ones((3, 1), np.float16)}], GLUED, SPECS)

    assert [item["x"].dtype for item in found] == [np.float32, np.float32]
    assert checked_items([], GLUED, SPECS) == []
    assert len(checked_items(FITS, GLUED, SPECS)) == 1


def test_items_that_do_not_fit_are_refused_with_the_glue_and_the_item() -> None:
    whole = (TensorSpec(name="x", dtype="int32", shape=("batch",)),)
    cases: tuple[tuple[Any, Any, str], ...] = (
        (None, SPECS, "ocr.py:crops: gave NoneType, not a list"),
        ([FITS] * 3, SPECS, "3 items, more than most_items"),
        ([{"y": FITS["x"]}], SPECS, "item 0 has y; read takes x"),
        ([FITS, 7], SPECS, "item 1 has int"),
        ([{"x": np.zeros((4, 5))}], SPECS, r"float64 \[4, 5\]; the model takes float32 \[3, width\]"),
        ([{"x": np.zeros((3, 0))}], SPECS, r"\[3, 0\]"),
        ([{"x": [[1.0], [2.0, 3.0], [4.0]]}], SPECS, "object"),
        ([{"x": np.full((3, 5), np.nan)}], SPECS, "NaN or infinity in x"),
        ([{"x": np.full((3, 5), 1e300)}], SPECS, "NaN or infinity in x"),
        ([{"x": np.zeros((3, 5), np.int64)}], SPECS, "int64"),
        ([{"x": np.array(2**40)}], whole, "a number in x that int32 cannot"),
    )
    for found, specs, said in cases:
        with pytest.raises(ItemError, match=said):
            checked_items(found, GLUED, specs)


def test_without_glue_a_stage_has_the_items_of_those_it_takes_from() -> None:
    edges = (("x", "detect", "boxes"),)
    stage = Wiring(name="read", takes=("detect",), edges=edges)
    outputs: dict[str, list[Item]] = {"detect": [{"boxes": np.zeros((3, n))} for n in (1, 2)]}

    found = items_of(stage, SPECS, {}, outputs, lambda given: given)

    assert [item["x"].shape for item in found] == [(3, 1), (3, 2)]
    with pytest.raises(ItemError, match="detect has no 'boxes'; it has scores"):
        items_of(stage, SPECS, {}, {"detect": [{"scores": np.zeros(3)}]}, lambda given: given)
    both = Wiring(name="join", takes=("a", "b"), edges=(("x", "a", "y"), ("z", "b", "y")))
    with pytest.raises(ItemError, match="ran 1 and 2 times; glue can join them"):
        items_of(both, SPECS, {}, {"a": [{}], "b": [{}, {}]}, lambda given: given)


def test_a_last_stage_runs_once_where_no_glue_comes_before_it() -> None:
    first = Wiring(name="a", takes=("request",), edges=(("x", "request", "x"),))
    last = Wiring(name="b", takes=("a",), edges=(("x", "a", "y"),))

    assert runs_once([first, last])
    assert not runs_once([Wiring(name="a", takes=("request",), glue="f.py:g"), last])


def test_an_answer_holds_texts_numbers_arrays_lists_and_mappings_of_them() -> None:
    answer = {"lines": ["a", 1, 2.5, None, True], "boxes": np.zeros((2, 4))}

    assert checked_answer(answer, "texts()")["lines"] == answer["lines"]
    for wrong in ({"a": float("nan")}, [np.array([np.inf])], {1, 2}, object()):
        with pytest.raises(ItemError, match=r"texts\(\) gave"):
            checked_answer(wrong, "texts()")
