"""A workspace small enough to sweep in seconds: a real ONNX classifier, real data, a real experiment file."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import helper

from tests.small_graphs import write_graph
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import Experiment

FEATURES, HIDDEN, CLASSES = 16, 48, 4

SPACE = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic, static]}
  quantization.algorithm: {choices: [minmax, mse], when: {quantization.scheme: [static]}}
  quantization.activation_symmetric: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.weight_granularity: {choices: [tensor, channel], when: {quantization.scheme: [dynamic, static]}}
  quantization.attention_matmul: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.keep_float: {choices: [0, 1], when: {quantization.scheme: [static]}}
  compile.graph_optimization: {choices: [all, basic]}
  serving.intra_op_threads: {choices: [1, 2]}
forbid:
  - {quantization.scheme: [static, dynamic], compile.graph_optimization: [basic], reason: stays in float}
presets:
  - {name: dynamic, quantization.scheme: dynamic}
  - {name: static, quantization.scheme: static}
"""
MANIFEST = """
version: 1
task: classification
files: {calibration: calibration.npz, validation: validation.npz, holdout: holdout.npz}
columns: {label: label}
"""
EXPERIMENT = """
version: 1
name: tiny
about: does the tiny classifier keep its accuracy in INT8?
model: ../data/model.onnx
dataset: ../data/manifest.yaml
search_space: ../search_spaces/tiny.yaml
calibration: {samples: 32, batch: 8}
objectives: [latency_p50_ms, accuracy]
constraints: {accuracy_loss_pp: 2.0}
budget: {trials: 6, timeout: 1h}
measure: {calls: 60, short_calls: 20, feeds: 8}
"""


def write_model(path: Path, *, seed: int = 0) -> None:
    """x [batch, 16] → Linear → Relu → Linear → Relu → Linear → logits [batch, 4], weights by Xavier from a seed."""
    rng = np.random.default_rng(seed)
    sizes = (FEATURES, HIDDEN, HIDDEN, CLASSES)
    nodes, constants, flow = [], {}, "x"
    for index, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        constants[f"w{index}"] = rng.normal(0, np.sqrt(2 / rows), (rows, columns)).astype(np.float32)
        constants[f"b{index}"] = rng.normal(0, 0.1, columns).astype(np.float32)
        last = index == len(sizes) - 2
        nodes += [
            helper.make_node("MatMul", [flow, f"w{index}"], [f"m{index}"], name=f"dense{index}"),
            helper.make_node(
                "Add", [f"m{index}", f"b{index}"], ["logits" if last else f"a{index}"], name=f"bias{index}"
            ),
        ]
        if not last:
            nodes.append(helper.make_node("Relu", [f"a{index}"], [f"r{index}"], name=f"relu{index}"))
        flow = f"r{index}"
    write_graph(path, nodes, {"x": ["batch", FEATURES]}, {"logits": ["batch", CLASSES]}, **constants)


def write_data(folder: Path, model: Path, *, sizes: dict[str, int] | None = None) -> None:
    """Rows drawn from a seed; labels are the float model's own answers with one in fifteen changed."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for seed, (split, size) in enumerate((sizes or {"calibration": 48, "validation": 320, "holdout": 160}).items()):
        rng = np.random.default_rng(seed + 1)
        x = rng.normal(0, 1, (size, FEATURES)).astype(np.float32)
        label = session.run(None, {"x": x})[0].argmax(axis=1).astype(np.int64)
        changed = rng.random(size) < 1 / 15
        label[changed] = rng.integers(0, CLASSES, int(changed.sum()))
        np.savez(folder / f"{split}.npz", x=x, label=label)


def write_workspace(root: Path, *, experiment: str = EXPERIMENT, space: str = SPACE) -> Path:
    """Everything below `root`; returns the experiment file."""
    for name in ("data", "experiments", "search_spaces"):
        (root / name).mkdir(parents=True, exist_ok=True)
    write_model(root / "data" / "model.onnx")
    write_data(root / "data", root / "data" / "model.onnx")
    (root / "data" / "manifest.yaml").write_text(MANIFEST, encoding="utf-8")
    (root / "search_spaces" / "tiny.yaml").write_text(space, encoding="utf-8")
    file = root / "experiments" / "tiny.yaml"
    file.write_text(experiment, encoding="utf-8")
    return file


def bench_of(question: Experiment, store: Path | None = None, *, fresh: bool = False) -> Bench:
    """Its newest journal or a fresh one, a store (by default its own) and no words of what is done.

    The caller closes `bench.store`.
    """
    journal = open_journal(question.workspace, question.name, question.identity, fresh=fresh)
    store = store or question.workspace / ".workbench" / "store"
    return open_bench(question, journal, Store(store), lambda candidate, stage: None)


def workbench(*arguments: object, timeout: float = 600) -> "subprocess.CompletedProcess[str]":
    """What becomes of a command, 120 columns wide."""
    return subprocess.run(
        [sys.executable, "-m", "workbench", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )
