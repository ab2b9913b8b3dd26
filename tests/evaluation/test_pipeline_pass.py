"""A pipeline's requests in this process: stages that are called in a loop, with a cache that no glue ever sees."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from tests.small_graphs import weight, write_graph
from tests.tiny_pipeline import SPACE
from workbench.evaluation.stage_data import float_pipeline
from workbench.inputs.pipeline import read_pipeline
from workbench.values.errors import ConfigError

CODE = """
import numpy as np


def samples(split):
    random = np.random.default_rng({"calibration": 1, "validation": 2, "holdout": 3}[split])
    for _ in range(10):
        yield {"first": np.int64(random.integers(8))}, None


def begin(request):
    return {"x": np.eye(8, dtype=np.float32)[int(request["first"])], "past": np.zeros(16, np.float32)}


def more(decode):
    assert "present" not in decode[-1], "the cache goes past the glue"
    token = int(decode[-1]["logits"].argmax())
    return None if len(decode) == 5 else [{"x": np.eye(8, dtype=np.float32)[token]}]


def tokens(decode):
    assert "present" not in decode[0]
    return [int(one["logits"].argmax()) for one in decode]
"""
PIPELINE = """version: 1
name: loop
dataset: data.yaml
stages:
  decode:
    model: step.onnx
    search_space: space.yaml
    glue: code.py:begin
    again: code.py:more
    carry: {present: past}
    most_items: 8
answer: code.py:tokens
service: {concurrency: 1}
"""


def write(root: Path, code: str = CODE, pipeline: str = PIPELINE) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("MatMul", ["past", "b"], ["pb"]),
        helper.make_node("Add", ["xa", "pb"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["present"]),
        helper.make_node("MatMul", ["present", "c"], ["logits"]),
    ]
    weights = {"a": weight(8, 16), "b": weight(16, 16, seed=2) / 3, "c": weight(16, 8, seed=3)}
    inputs = {"x": ["batch", 8], "past": ["batch", 16]}
    write_graph(root / "step.onnx", nodes, inputs, {"logits": ["batch", 8], "present": ["batch", 16]}, **weights)
    data = "version: 1\ntask: tensors\nloader: code.py:samples\n"
    for name, text in (("code.py", code), ("data.yaml", data), ("space.yaml", SPACE), ("pipeline.yaml", pipeline)):
        (root / name).write_text(text, encoding="utf-8")
    return root / "pipeline.yaml"


def test_a_decoder_called_in_a_loop_gives_the_tokens_of_the_model_called_by_hand(tmp_path: Path) -> None:
    pipeline = read_pipeline(write(tmp_path))
    found = float_pipeline(pipeline)

    session = onnxruntime.InferenceSession(tmp_path / "step.onnx")
    firsts = [int(batch.feeds["first"][0]) for batch in pipeline.dataset.batches("validation", 1)]
    for first, trace in zip(firsts, found.traces["validation"], strict=True):
        token, past, expected = first, np.zeros((1, 16), np.float32), []
        for _ in range(5):
            logits, past = session.run(None, {"x": np.eye(8, dtype=np.float32)[[token]], "past": past})
            token = int(logits.argmax())
            expected.append(token)
        assert trace.answer == expected
        assert trace.rounds["decode"] == [1] * 5
    # every step is a sample of the stage's own data, its cache among its inputs
    assert found.experiments["decode"].dataset.size("calibration") == 50


def test_a_loop_without_end_and_a_cache_without_an_output_are_named(tmp_path: Path) -> None:
    cases = (
        (CODE.replace("None if len(decode) == 5 else ", ""), PIPELINE, "more: goes on after most_items"),
        (CODE, PIPELINE.replace("{present: past}", "{presnt: past}"), "has no output 'presnt' to carry"),
        (
            CODE.replace("return None if", "return [] if"),
            PIPELINE.replace("    carry: {present: past}\n", ""),
            "takes past, x",
        ),
        (CODE.replace("else [{", "else 2 * [{"), PIPELINE, "gave 2 items after 1; what is carried needs as many"),
    )
    for place, (code, pipeline, said) in enumerate(cases):
        (tmp_path / str(place)).mkdir()
        file = write(
            tmp_path / str(place), code.replace('assert "present" not in', 'assert "nothing" not in'), pipeline
        )
        with pytest.raises(ConfigError, match=said):
            float_pipeline(read_pipeline(file))
    with pytest.raises(ConfigError, match="means nothing without again"):
        read_pipeline(write(tmp_path, pipeline=PIPELINE.replace("    again: code.py:more\n", "")))
