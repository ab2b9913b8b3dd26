"""What a server may answer: whatever it is, it is read or refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.load.kserve.served import _outputs
from workbench.values.errors import MeasureError

GOOD: dict[str, Any] = {"name": "logits", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.0]}


def answer(**changed: Any) -> bytes:
    return json.dumps({"outputs": [{**GOOD, **changed}]}).encode()


def test_an_output_or_a_length_of_the_head_that_is_none_is_refused() -> None:
    assert _outputs(answer(), None)["logits"].tolist() == [[0.5, 1.0]]
    for changed in (
        *({"shape": shape} for shape in ([2, 2], [-1, 2], [1 << 40, 1 << 40], "12")),
        *({"datatype": datatype} for datatype in ("FP128", 4)),
        *({"data": data} for data in ([[1, "x"]], None, [1e999, 0.0, 1.0])),
    ):
        with pytest.raises(MeasureError):
            _outputs(answer(**changed), None)
    for length in ("-1", "x", "99999999", "1e3", ""):
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
