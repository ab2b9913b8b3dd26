"""Samples in the form that a server asks for, and whatever it answers: read, or refused with a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.kserve.servers import BERT, IDS, MASK, served
from workbench.load.kserve.served import HEADER_LENGTH, feeds_for, infer_request, outputs_of, texts_for
from workbench.values.errors import ConfigError, MeasureError

FEEDS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": np.zeros_like(IDS)}
THEIRS = json.loads((Path(__file__).parent / "tritonclient.json").read_text(encoding="utf-8"))
"""Made by tritonclient 2.73.0 from the same arrays."""
GOOD: dict[str, Any] = {"name": "logits", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.0]}


def test_an_input_of_another_name_can_be_named() -> None:
    model = served(("INPUT__0", "INT64", (-1, -1)))
    with pytest.raises(ConfigError, match=r"asks for the input 'INPUT__0'.*--map-input INPUT__0=NAME"):
        feeds_for(model, FEEDS)

    found = feeds_for(replace(model, renamed_inputs={"INPUT__0": "input_ids"}), FEEDS)
    assert found["INPUT__0"].tolist() == IDS.tolist()


def test_what_does_not_fit_says_so() -> None:
    for kind, shape, words in (
        ("INT64", (-1, 128), r"has the shape \[-1, 128\]; a request would have \[2, 4\]"),
        ("INT64", (1, -1), r"\[1, -1\]"),
        ("INT64", (-1,), r"\[-1\]"),
        ("FP32", (-1, -1), "is FP32; the data are int64"),
        ("BF16", (-1, -1), "is BF16"),
        ("INT8", (-1, -1), "a value of 300 does not fit"),
    ):
        with pytest.raises(ConfigError, match=words):
            feeds_for(served(("input_ids", kind, shape)), {"input_ids": np.where(IDS == 101, 300, IDS)})


def parts(body: bytes, head_bytes: int) -> tuple[object, bytes]:
    return json.loads(body[:head_bytes]), body[head_bytes:]


def test_binary_requests_are_those_of_tritons_own_client() -> None:
    """Inputs get the server's types, what it does not ask for stays away, and words become one text with blanks."""
    texts = served(("TEXT", "BYTES", (-1, 1)))
    assert texts_for(texts, (("张", "三"), "pay"))["TEXT"].ravel().tolist() == ["张 三", "pay"]
    for model, feeds, name in (
        (BERT, feeds_for(BERT, FEEDS), "http"),
        (texts, texts_for(texts, ("loan pay", "张三")), "text"),
    ):
        request = infer_request(feeds, replace(model, extensions=("binary_tensor_data",)))

        found = parts(request.body, int(request.headers[HEADER_LENGTH]))
        assert found == parts(bytes.fromhex(THEIRS[f"{name}_body"]), THEIRS[f"{name}_head_bytes"])
        assert request.headers["Content-Type"] == "application/octet-stream"


def answer(**changed: Any) -> bytes:
    return json.dumps({"outputs": [{**GOOD, **changed}]}).encode()


def test_an_output_or_a_length_of_the_head_that_is_none_is_refused() -> None:
    assert outputs_of(answer(), None)["logits"].tolist() == [[0.5, 1.0]]
    for changed in (
        *({"shape": shape} for shape in ([2, 2], [-1, 2], [1 << 40, 1 << 40], "12")),
        *({"datatype": datatype} for datatype in ("FP128", 4)),
        *({"data": data} for data in ([[1, "x"]], None, [1e999, 0.0, 1.0])),
    ):
        with pytest.raises(MeasureError):
            outputs_of(answer(**changed), None)
    for length in ("-1", "x", "99999999", "1e3", ""):
        with pytest.raises(MeasureError):
            outputs_of(answer(), length)


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200), cut=st.integers(0, 200))
def test_bytes_that_are_no_answer_are_refused(content: bytes, cut: int) -> None:
    whole = answer()
    for wrong in (content, whole[:cut] + content):
        if wrong != whole and not wrong.startswith(whole):
            with pytest.raises(MeasureError):
                outputs_of(wrong, None)
