"""A workspace with a pipeline of three tiny models: which rows of a request matter, what they are, which class."""

from pathlib import Path

from onnx import helper

from tests.small_graphs import weight, write_graph

CODE = """
import numpy as np


def samples(split):
    random = np.random.default_rng({"calibration": 1, "validation": 2, "holdout": 3}[split])
    for _ in range({"calibration": 16, "validation": 60, "holdout": 60}[split]):
        yield {"rows": random.normal(size=(6, 8)).astype(np.float32)}, None


def flat(request):
    return [{"x": request["rows"].reshape(-1)}]


def chosen(request, find):
    (found,) = find
    return [{"x": row} for row, score in zip(request["rows"], found["y"]) if score > 0]


def classes(request, find, decide):
    return {"classes": [int(one["y"].argmax()) for one in decide], "best": float(find[0]["y"].max())}
"""
DATA = "version: 1\ntask: tensors\nloader: code.py:samples\n"
SPACE = """version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic]}
  quantization.weight_granularity: {when: {quantization.scheme: [dynamic]}, choices: [channel]}
  serving.intra_op_threads: {choices: [1]}
  serving.batch: {choices: [1]}
service: {max_batch_size: [1, 4], batch_timeout_ms: [0], workers: [1]}
presets:
  - {name: float}
  - {name: int8, quantization.scheme: dynamic}
"""
PIPELINE = """version: 1
name: tiny
dataset: data.yaml
stages:
  decide: {model: decide.onnx, search_space: space.yaml, inputs: {x: embed.y}, trials: 2}
  find: {model: find.onnx, search_space: space.yaml, glue: "code.py:flat", trials: 2}
  embed: {model: embed.onnx, search_space: space.yaml, glue: "code.py:chosen", trials: 2}
answer: code.py:classes
service: {concurrency: 2, p99_ms: 10000, confirm: 2s}
constraints: {accuracy_loss_pp: 100}
budget: {timeout: 10m}
"""


def write_mlp(path: Path, given: int, gives: int, *, seed: int) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    weights = {"a": weight(given, 32, seed=seed) / 3, "b": weight(32, gives, seed=seed + 1) / 4}
    write_graph(path, nodes, {"x": ["batch", given]}, {"y": ["batch", gives]}, **weights)


def write_pipeline(root: Path, *, code: str = CODE, pipeline: str = PIPELINE) -> Path:
    """The pipeline's file; nothing is compiled."""
    root.mkdir(parents=True, exist_ok=True)
    for name, given, gives in (("find", 48, 6), ("embed", 8, 16), ("decide", 16, 4)):
        write_mlp(root / f"{name}.onnx", given, gives, seed=len(name))
    for name, text in (("code.py", code), ("data.yaml", DATA), ("space.yaml", SPACE), ("pipeline.yaml", pipeline)):
        (root / name).write_text(text, encoding="utf-8")
    return root / "pipeline.yaml"
