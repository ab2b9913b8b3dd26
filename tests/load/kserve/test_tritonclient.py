"""What is sent and read is what Triton's own client library sends and reads: its bytes are in tritonclient.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.load.kserve.servers import BERT, IDS, MASK, served
from workbench.load.kserve.grpc_calls import infer_message, message, outputs_of
from workbench.load.kserve.served import HEADER_LENGTH, feeds_for, infer_request, texts_for
from workbench.values.errors import MeasureError

THEIRS = json.loads((Path(__file__).parent / "tritonclient.json").read_text(encoding="utf-8"))
"""Made by tritonclient 2.73.0 from the arrays below; `fields` are those of its generated messages."""
LOGITS = [[0.5, -1.25], [3.0, 4.0]]


def parts(body: bytes, head_bytes: int) -> tuple[object, bytes]:
    return json.loads(body[:head_bytes]), body[head_bytes:]


def test_binary_requests_are_theirs() -> None:
    texts = served(("TEXT", "BYTES", (-1, 1)))
    for model, feeds, name in (
        (BERT, feeds_for(BERT, {"input_ids": IDS, "attention_mask": MASK}), "http"),
        (texts, texts_for(texts, ("loan pay", "张三")), "text"),
    ):
        request = infer_request(feeds, model, binary=True)

        found = parts(request.body, int(request.headers[HEADER_LENGTH]))
        assert found == parts(bytes.fromhex(THEIRS[f"{name}_body"]), THEIRS[f"{name}_head_bytes"])
        assert request.headers["Content-Type"] == "application/octet-stream"


def test_a_grpc_request_is_theirs_to_the_byte() -> None:
    request = infer_message(feeds_for(BERT, {"input_ids": IDS, "attention_mask": MASK}), BERT)

    assert request.body.hex() == THEIRS["grpc_request"]


def test_their_grpc_answers_are_read_texts_left_out_and_bytes_that_do_not_fit_refused() -> None:
    for form in ("raw", "typed"):
        answer = message("ModelInferResponse").FromString(bytes.fromhex(THEIRS[f"grpc_response_{form}"]))
        outputs = outputs_of(answer)
        assert list(outputs) == ["logits"]
        assert outputs["logits"].tolist() == LOGITS
        if form == "raw":
            answer.raw_output_contents[0] = answer.raw_output_contents[0][:-5]
            with pytest.raises(MeasureError, match=r"FP32 of the shape \[2, 2\] has 16"):
                outputs_of(answer)


def test_their_metadata_are_read() -> None:
    found = message("ModelMetadataResponse").FromString(bytes.fromhex(THEIRS["grpc_metadata"]))

    assert (found.platform, list(found.versions)) == ("onnxruntime_onnx", ["3"])
    assert [(t.name, t.datatype, list(t.shape)) for t in (*found.inputs, *found.outputs)] == [
        ("input_ids", "INT64", [-1, -1]),
        ("logits", "FP32", [-1, 2]),
    ]


def test_every_field_has_their_number_and_type() -> None:
    seen = 0
    for name in ("ServerMetadataResponse", "ModelMetadataRequest", "ModelMetadataResponse", "InferTensorContents"):
        seen += _compare(message(name).DESCRIPTOR)
    for name in ("ModelInferRequest", "ModelInferResponse"):
        seen += _compare(message(name).DESCRIPTOR)
    assert seen == 39


def _compare(descriptor: object) -> int:
    count = 0
    for field in descriptor.fields:  # type: ignore[attr-defined]  # protobuf has no types
        kind = field.message_type.full_name if field.message_type else ""
        mine = [field.number, field.type, field.is_repeated, kind]
        assert mine == THEIRS["fields"][f"{field.containing_type.full_name}.{field.name}"], field.full_name
        count += 1
    return count + sum(_compare(nested) for nested in descriptor.nested_types)  # type: ignore[attr-defined]  # the same
