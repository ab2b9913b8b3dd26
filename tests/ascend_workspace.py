"""A workspace for target ascend910b3, small enough to sweep through the emulated ATC and pyACL in seconds."""

import concurrent.futures
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from workbench.testing.encoder import CLASSES, VOCABULARY, save, tiny_encoder

Done = subprocess.CompletedProcess[str]
Environment = Mapping[str, str]
QUIET = {"COLUMNS": "120", "OMP_NUM_THREADS": "1"}

LENGTH = 7
SIZES = {"calibration": 16, "validation": 64, "holdout": 56}

SPACE = """
version: 1
target: ascend910b3
parameters:
  quantization.scheme: {choices: [none, static]}
  quantization.algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.weight_algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.activation_symmetric: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.weight_granularity: {choices: [tensor], when: {quantization.scheme: [static]}}
  quantization.attention_matmul: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.keep_float: {choices: [0], when: {quantization.scheme: [static]}}
  precision.mode: {choices: [force_fp16, allow_mix_precision]}
  compile.fusions.gelu: {choices: ["on", "off"]}
  compile.fusions.layer_norm: {choices: ["on", "off"]}
  compile.sequence_bins: {choices: ["8", "4 8"]}
  compile.shapes: {choices: [static, gears], when: {quantization.scheme: [none], compile.sequence_bins: ["4 8"]}}
  serving.batch: {choices: [1, 4]}
presets:
  - {name: int8, quantization.scheme: static}
  - {name: bins, compile.sequence_bins: "4 8"}
  - {name: gears, compile.sequence_bins: "4 8", compile.shapes: gears}
  - {name: int8-bins, quantization.scheme: static, compile.sequence_bins: "4 8", serving.batch: 4}
  - {name: mixed, precision.mode: allow_mix_precision, compile.fusions.gelu: "off", serving.batch: 4}
"""
MANIFEST = """
version: 1
task: TASK
files: {calibration: calibration.npz, validation: validation.npz, holdout: holdout.npz}
columns: {label: label}
labels: labels.json
"""
EXPERIMENT = """
version: 1
name: tiny-910b3
about: which settings make the tiny encoder fast on a 910B3?
model: ../data/model.onnx
dataset: ../data/manifest.yaml
search_space: ../search_spaces/tiny.yaml
calibration: {samples: 16, batch: 8}
objectives: [throughput_per_s, accuracy]
constraints: {accuracy_loss_pp: 30.0}
budget: {trials: 6, timeout: 1h}
measure: {calls: 20, short_calls: 20, feeds: 2}
smoke_cosine: 0.5
sampler: random
"""


def tagger() -> onnx.ModelProto:
    """The tiny encoder with an answer for every position: `logits` [batch, length, CLASSES]."""
    proto = tiny_encoder()
    graph = proto.graph
    pool, classifier = graph.node[-2], graph.node[-1]
    weight = next(constant for constant in graph.initializer if constant.name == "classifier_w")
    weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(weight).T), weight.name))
    del graph.node[-2:]
    graph.node.extend(
        [
            helper.make_node("MatMul", [pool.input[0], "classifier_w"], ["tagged"], name="classifier"),
            helper.make_node("Add", ["tagged", "classifier_b"], list(classifier.output), name="classifier_bias"),
        ]
    )
    graph.output[0].CopyFrom(
        helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", "length", CLASSES])
    )
    return proto


def write_ascend_workspace(
    root: Path, *, experiment: str = EXPERIMENT, space: str = SPACE, task: str = "classification"
) -> Path:
    """Everything below `root`; returns the experiment file. Labels are the float model's own answers, some changed.

    Args:
        task: 'classification', or 'ner' with a model that tags every position.
    """
    for name in ("data", "experiments", "search_spaces"):
        (root / name).mkdir(parents=True, exist_ok=True)
    data = root / "data"
    model = save(tagger() if task == "ner" else tiny_encoder(), data / "model.onnx")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for seed, (split, size) in enumerate(SIZES.items()):
        rng = np.random.default_rng(seed + 1)
        ids = rng.integers(0, VOCABULARY, (size, LENGTH))
        label = session.run(None, {"ids": ids})[0].argmax(axis=-1).astype(np.int64)
        changed = rng.random(label.shape) < 1 / 15
        label[changed] = rng.integers(0, CLASSES, int(changed.sum()))
        np.savez(data / f"{split}.npz", ids=ids, label=label)
    names = '["O", "B-A", "I-A", "B-B", "I-B"]' if task == "ner" else '["a", "b", "c", "d", "e"]'
    (data / "labels.json").write_text(names, encoding="utf-8")
    (data / "manifest.yaml").write_text(MANIFEST.replace("TASK", task), encoding="utf-8")
    (root / "search_spaces" / "tiny.yaml").write_text(space, encoding="utf-8")
    file = root / "experiments" / "tiny.yaml"
    file.write_text(experiment, encoding="utf-8")
    return file


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "workbench", *map(str, arguments)]


def workbench(environment: Environment, *arguments: object, timeout: float = 600) -> Done:
    return subprocess.run(
        command(*arguments), env=dict(environment), capture_output=True, text=True, timeout=timeout, check=False
    )


def side_by_side(calls: Mapping[str, tuple[Environment, tuple[object, ...]]]) -> dict[str, Done]:
    """Name → what became of a command; as many at once as there are processors."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        started = {name: pool.submit(workbench, env, *arguments) for name, (env, arguments) in calls.items()}
        return {name: future.result() for name, future in started.items()}


def said(done: Done) -> str:
    """Both streams on one line, as messages wrap."""
    return " ".join((done.stdout + done.stderr).split())
