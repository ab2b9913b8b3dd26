"""What a server may answer: whatever it is, it is read or refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.load.kserve.http import _outputs
from workbench.values.errors import MeasureError

GOOD: dict[str, Any] = {"name": "logits", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.0]}


def answer(**changed: Any) -> bytes:
    return json.dumps({"outputs": [{**GOOD, **changed}]}).encode()


@pytest.mark.parametrize(
    "changed",
    [
        {"shape": [2, 2]},
        {"shape": [-1, 2]},
        {"shape": [1 << 40, 1 << 40]},
        {"shape": "12"},
        {"datatype": "FP128"},
        {"datatype": 4},
        {"data": [[1, "x"]]},
        {"data": None},
        {"data": [1e999, 0.0, 1.0]},
    ],
    ids=str,
)
def test_an_output_that_is_none_is_refused(changed: dict[str, Any]) -> None:
    assert _outputs(answer(), None)["logits"].tolist() == [[0.5, 1.0]]

    with pytest.raises(MeasureError):
        _outputs(answer(**changed), None)


@pytest.mark.parametrize("length", ["-1", "x", "99999999", "1e3", ""])
def test_a_length_of_the_head_that_is_none_is_refused(length: str) -> None:
    with pytest.raises(MeasureError):
        _outputs(answer(), length)


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200), cut=st.integers(0, 200))
def test_bytes_that_are_no_answer_are_refused(content: bytes, cut: int) -> None:
    whole = answer()
    for wrong in (content, whole[:cut] + content):
        if wrong != whole and not wrong.startswith(whole):
            with pytest.raises(MeasureError):
                _outputs(wrong, None)
