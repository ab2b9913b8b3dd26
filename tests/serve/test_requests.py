"""Bodies: what is understood, what is refused, and that nothing else can come out."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench.serve.refusals import STATUS, Refusal
from workbench.serve.requests import InputRule, arrays, parse
from workbench.serve.settings import Limits

LIMITS = Limits(texts=4, characters=50, words=5)
IDS = InputRule(name="ids", dtype=np.dtype("int64"), shape=(None,), lowest=0, highest=99)
PIXELS = InputRule(name="pixels", dtype=np.dtype("float32"), shape=(2, 3), lowest=0, highest=0)


def refusal_of(body: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(body, LIMITS)
    return caught.value


def test_texts_come_as_one_as_several_and_as_words() -> None:
    for body, kind, texts in (
        ({"text": "anna"}, "text", ("anna",)),
        ({"texts": ["anna", ["in", "paris"]]}, "texts", ("anna", ("in", "paris"))),
        ({"words": ["张", "三"]}, "words", (("张", "三"),)),
    ):
        assert parse(json.dumps(body).encode(), LIMITS) == (kind, texts, {})


def test_a_wrong_body_is_refused_with_its_place() -> None:
    for body, kind, message in (
        (b"", "not_json", "The body is not JSON: Expecting value at character 0."),
        (b"\xff\xfe", "not_json", "The body is not UTF-8: byte 0."),
        (b'{"text": NaN}', "not_json", "The body holds a number that JSON does not know or that is too long."),
        (b'{"text": ' + b"9" * 5000 + b"}", "not_json", "The body holds a number that JSON does not know"),
        (b"[" * 100_000, "not_json", "The body is nested too deeply."),
        (b'{"text":' * 50_000, "not_json", "The body is nested too deeply."),
        (b'["text"]', "fields", "The body must be an object with one of text, texts, words, inputs."),
        (b"{}", "fields", "exactly one field"),
        (b'{"text": "a", "texts": ["b"]}', "fields", "exactly one field"),
        (b'{"text": "a", "mode": 1}', "fields", "exactly one field"),
        (b'{"text": 5}', "fields", "text must be a string."),
        (b'{"text": " \\t"}', "fields", "text is empty."),
        (b'{"text": "\\ud800"}', "fields", "text has a character that is not Unicode."),
        (b'{"text": "' + b"a" * 51 + b'"}', "fields", "text has 51 characters; 50 are allowed."),
        (b'{"texts": []}', "fields", "texts must be a list of 1 to 4 texts."),
        (b'{"texts": ["a", "a", "a", "a", "a"]}', "fields", "texts must be a list of 1 to 4 texts."),
        (b'{"texts": ["a", null]}', "fields", "texts[1] must be a string."),
        (b'{"texts": [["a", {}]]}', "fields", "texts[0][1] must be a string."),
        (b'{"words": "anna"}', "fields", "words must be a list of 1 to 5 words."),
        (b'{"words": ["a", ""]}', "fields", "words[1] is empty."),
        (b'{"words": ["' + b"a" * 30 + b'", "' + b"a" * 30 + b'"]}', "fields", "words has more than 50 characters."),
        (b'{"inputs": [1]}', "fields", "inputs must be an object"),
    ):
        refusal = refusal_of(body)

        assert refusal.kind == kind
        assert message in refusal.message
        assert 400 <= STATUS[refusal.kind] < 500


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300)
@given(
    st.binary(max_size=60)
    | st.builds(lambda v: json.dumps(v).encode(), json_values)
    | st.builds(
        lambda k, v: json.dumps({k: v}).encode(), st.sampled_from(["text", "texts", "words", "inputs"]), json_values
    )
)
@example(b'{"inputs": {"ids": ' + b"[" * 900 + b"1" + b"]" * 900 + b"}}")
def test_any_bytes_become_a_question_or_a_refusal(body: bytes) -> None:
    try:
        kind, _, inputs = parse(body, LIMITS)
        if kind == "inputs":
            arrays(inputs, [IDS], LIMITS, 16)
    except Refusal as refusal:
        assert 400 <= STATUS[refusal.kind] < 500  # noqa: PT017 - most bodies end here, and either end is fine


def test_raw_inputs_become_arrays_of_the_model_s_types() -> None:
    found = arrays({"ids": [[1, 2], [3, 99]], "pixels": [[[1, 2, 3], [4, 5, 6.5]]] * 2}, [IDS, PIXELS], LIMITS, None)

    assert found["ids"].dtype == np.int64
    assert found["pixels"].dtype == np.float32
    assert found["pixels"].shape == (2, 2, 3)


def test_raw_inputs_that_do_not_fit_the_model_are_refused() -> None:
    for inputs, message in (
        ({}, "inputs.ids is missing."),
        ({"ids": [[1]], "other": [[1]]}, "inputs may hold ids only."),
        ({"ids": 7}, "inputs.ids must be nested lists of numbers."),
        ({"ids": [[1], [1, 2]]}, "inputs.ids must be nested lists of equal length."),
        ({"ids": [["a"]]}, "inputs.ids must hold int64 numbers only."),
        ({"ids": [[1.0]]}, "inputs.ids must hold int64 numbers only."),
        ({"ids": [[True]]}, "inputs.ids must hold int64 numbers only."),
        ({"ids": [[None]]}, "inputs.ids must hold int64 numbers only."),
        ({"ids": [[2**70]]}, "inputs.ids must hold int64 numbers only."),
        ({"ids": [[2**63]]}, "inputs.ids must hold 0 to 99 only."),
        ({"ids": [[100]]}, "inputs.ids must hold 0 to 99 only."),
        ({"ids": [[-1]]}, "inputs.ids must hold 0 to 99 only."),
        ({"ids": [1, 2]}, "inputs.ids must have 2 dimensions and not be empty."),
        ({"ids": [[]]}, "inputs.ids must have 2 dimensions and not be empty."),
        ({"ids": [[1] * 17]}, "inputs.ids may have at most 16 along axis 1, not 17."),
        ({"ids": [[1]] * 5}, "inputs must have 1 to 4 rows."),
    ):
        with pytest.raises(Refusal) as caught:
            arrays(inputs, [IDS], LIMITS, 16)

        assert caught.value.message == message
        assert STATUS[caught.value.kind] == 422


def test_a_fixed_size_and_equal_rows_are_asked_for() -> None:
    for value in (1e39, float("inf")):
        with pytest.raises(Refusal, match="holds a number that float32 cannot"):
            arrays({"pixels": [[[value] * 3] * 2]}, [PIXELS], LIMITS, None)
    with pytest.raises(Refusal, match="must have the size 3 along axis 2, not 2"):
        arrays({"pixels": [[[1, 2], [1, 2]]]}, [PIXELS], LIMITS, None)
    with pytest.raises(Refusal, match="the same number of rows"):
        arrays({"ids": [[1]], "pixels": [[[1] * 3] * 2] * 2}, [IDS, PIXELS], LIMITS, None)
