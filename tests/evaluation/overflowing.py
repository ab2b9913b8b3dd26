"""Toy models in which an overflow is planted, with their workspaces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from tests import ascend_workspace
from workbench.testing.encoder import Array, model_of, value

COLUMNS, CLASSES = 16, 5
MANIFEST = ascend_workspace.MANIFEST.replace("TASK", "classification")
SPACE = """
version: 1
target: ascend910b3
parameters:
  quantization.scheme: {choices: [none, static]}
  quantization.algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.weight_algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.activation_symmetric: {choices: [true], when: {quantization.scheme: [static]}}
  quantization.weight_granularity: {choices: [tensor], when: {quantization.scheme: [static]}}
  quantization.attention_matmul: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.keep_float: {choices: [0], when: {quantization.scheme: [static]}}
  precision.mode: {choices: [force_fp16, must_keep_origin_dtype]}
  serving.batch: {choices: [4]}
forbid:
  - {quantization.scheme: static, precision.mode: must_keep_origin_dtype, reason: ATC refuses it}
"""
EXPERIMENT = """
version: 1
name: planted
about: does it overflow?
model: model.onnx
dataset: manifest.yaml
search_space: space.yaml
calibration: {samples: 8, batch: 4}
objectives: [latency_p50_ms, accuracy]
constraints: {}
budget: {trials: 2, timeout: 5m}
measure: {calls: 20, short_calls: 20, feeds: 2}
smoke_cosine: -1
"""
Part = tuple[str, str, tuple[str, ...], str]
"""Name, operator, what it reads, what it makes."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Attributes: nodes: between `h`, of the first product, and `c`, which the second reads. named: what has to be."""

    nodes: tuple[Part, ...]
    named: str
    scale: float = 1.0
    holdout: float = 1.0  # factor on one sample that is held out
    int8: bool = False


BACK = ("relu", "Relu", ("b",), "c")
HIDE = (("hide", "Tanh", ("a",), "b"), BACK)
GROW = ("grow", "Mul", ("h", "thousands"), "a")
PLANTED = {
    "one operator": Planted(nodes=(GROW, *HIDE), named="grow"),
    "with what is held out alone": Planted(
        nodes=(("grow", "Mul", ("h", "hundred"), "a"), *HIDE), named="grow", holdout=4000.0
    ),
    "of a sum of INT8 products": Planted(
        nodes=(("hide", "Tanh", ("h",), "b"), BACK), named="last.quant", scale=1e6, int8=True
    ),
}  # fmt: skip


def model(planted: Planted) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    known: dict[str, Array] = {
        "w1": (random.standard_normal((COLUMNS, COLUMNS)) / 4 * planted.scale).astype(np.float32),
        "w2": random.standard_normal((COLUMNS, CLASSES)).astype(np.float32),
        "thousands": np.array(1e5, np.float32),
        "hundred": np.array(1e2, np.float32),
    }
    parts = (("first", "MatMul", ("x", "w1"), "h"), *planted.nodes, ("last", "MatMul", ("c", "w2"), "logits"))
    return built(parts, known, COLUMNS)


def built(parts: Iterable[Part], known: dict[str, Array], columns: int) -> onnx.ModelProto:
    """`x` [batch, columns] → `logits` [batch, CLASSES], with those of the known constants that a part reads."""
    nodes = [helper.make_node(kind, list(read), [made], name=name) for name, kind, read, made in parts]
    used = {name: array for name, array in known.items() if any(name in node.input for node in nodes)}
    return model_of(nodes, used, [value("x", ["batch", columns])], [value("logits", ["batch", CLASSES])])


def workspace(root: Path, planted: Planted) -> Path:
    return write_workspace(root, model(planted), holdout=planted.holdout)


def write_workspace(root: Path, proto: onnx.ModelProto, *, space: str = SPACE, holdout: float = 1.0) -> Path:
    root.mkdir(parents=True)
    onnx.save(proto, root / "model.onnx")
    columns = proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    for seed, (split, size) in enumerate({"calibration": 8, "validation": 24, "holdout": 24}.items()):
        random = np.random.default_rng(seed)
        x = random.standard_normal((size, columns)).astype(np.float32)
        if split == "holdout":
            x[-1] *= holdout
        np.savez(root / f"{split}.npz", x=x, label=random.integers(0, CLASSES, size))
    (root / "labels.json").write_text(json.dumps([f"c{i}" for i in range(CLASSES)]), encoding="utf-8")
    for name, text in (
        ("manifest.yaml", MANIFEST),
        ("space.yaml", space),
        ("experiment.yaml", EXPERIMENT),
    ):
        (root / name).write_text(text, encoding="utf-8")
    return root / "experiment.yaml"
