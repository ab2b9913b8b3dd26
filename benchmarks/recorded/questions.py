"""What each table is of: an experiment, its space and its data, written as files into a workspace."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

from workbench.inputs.experiment import Experiment, read_experiment

Name = Literal["minilm", "bert-mini"]
_EXAMPLE = "loan-intent-mini"
ROOT = Path(__file__).resolve().parents[2]
BANKING77 = ROOT.parent / "shared" / "bench" / "banking77"

MANIFEST = """version: 1
task: classification
files: {{calibration: {bench}/calibration.csv, validation: {bench}/validation.csv}}
columns: {{text: text, label: label}}
labels: {bench}/labels.json
tokenizer: {bench}/tokenizer.json
max_length: 64
bins: [8, 16, 24, 32, 48, 64]
"""

ONNXRUNTIME_SPACE = """version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, dynamic, static]}
  quantization.algorithm:
    when: {quantization.scheme: [static]}
    choices: [mse, minmax, percentile, kl]
  quantization.percentile:
    when: {quantization.algorithm: [percentile]}
    choices: [99.99]
  quantization.activation_symmetric:
    when: {quantization.scheme: [static]}
    choices: [false, true]
  quantization.weight_granularity:
    when: {quantization.scheme: [dynamic, static]}
    choices: [channel, tensor]
  quantization.attention_matmul:
    when: {quantization.scheme: [static]}
    choices: [false, true]
  quantization.keep_float:
    when: {quantization.scheme: [static]}
    choices: [0, 1, 2, 4, 8, 16]
  compile.graph_optimization: {choices: [all, extended]}
  compile.fusions.BiasGeluFusion: {choices: ["on", "off"]}
  compile.fusions.SkipLayerNormFusion: {choices: ["on", "off"]}
  compile.fusions.MatMulScaleFusion: {choices: ["on", "off"]}
  serving.intra_op_threads: {choices: [2, 1]}
  serving.batch: {choices: [1]}
service:
  max_batch_size: [1, 4, 8, 16]
  batch_timeout_ms: [0, 2, 5, 10]
  workers: [1, 2]
forbid:
  - quantization.scheme: [static]
    quantization.weight_granularity: [tensor]
    reason: It would double what has to be measured; no sweep of these models chose it.
presets:
  - {name: float}
  - {name: float-1-thread, serving.intra_op_threads: 1}
  - {name: dynamic-int8, quantization.scheme: dynamic}
  - {name: static-int8, quantization.scheme: static}
  - {name: static-int8-4-in-float, quantization.scheme: static, quantization.keep_float: 4}
"""
"""Bins are no dimension here: for a graph that takes every length they are a setting of the service, which the table
chooses for each time class."""
_SLOWER = {"choices: [mse, minmax, percentile, kl]": "choices: [mse, minmax, percentile]"}
"""What is left out where every candidate takes several times as long."""
BINS = ("optimal 1", "optimal 2", "optimal 4", "optimal 8")

EXPERIMENT = """version: 1
name: {name}
model: {model}
dataset: {dataset}
search_space: ../search_spaces/{name}.yaml
validation: {{samples: 1000}}
calibration: {{samples: 128, batch: 8}}
objectives: [service_throughput_per_s, accuracy]
service: {{concurrency: 16, p99_ms: 1000}}
constraints: {{accuracy_loss_pp: 0.5}}
budget: {{trials: 60}}
measure: {{calls: 200, short_calls: 40}}
"""


def space_text(name: Name) -> str:
    text = ONNXRUNTIME_SPACE
    for before, after in _SLOWER.items() if name == "minilm" else ():
        text = text.replace(before, after)
    return text


def write_question(name: Name, workspace: Path, bench: Path = BANKING77) -> Path:
    """The experiment's file, in a workspace that holds all it refers to; an example's model is built where it is
    missing."""
    for folder in ("experiments", "calibration", "search_spaces"):
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    experiment, space = workspace / "experiments" / f"{name}.yaml", workspace / "search_spaces" / f"{name}.yaml"
    if name == "minilm":
        if not (bench / "minilm_l6_banking77.onnx").exists():
            raise SystemExit(f"{bench} does not hold the model; name its folder with --bench")
        manifest = workspace / "calibration" / "minilm.yaml"
        manifest.write_text(MANIFEST.format(bench=bench.resolve()), encoding="utf-8")
        model = str((bench / "minilm_l6_banking77.onnx").resolve())
    else:
        manifest = workspace / "calibration" / f"{_EXAMPLE}.yaml"
        shutil.copyfile(ROOT / "calibration" / f"{_EXAMPLE}.yaml", manifest)
        if not (workspace / ".workbench" / "examples" / _EXAMPLE / "model.onnx").exists():
            command = [sys.executable, "-m", "workbench", "example", _EXAMPLE, "--workspace", str(workspace)]
            subprocess.run(command, check=True, cwd=ROOT)
        model = f"../.workbench/examples/{_EXAMPLE}/model.onnx"
    space.write_text(space_text(name), encoding="utf-8")
    experiment.write_text(
        EXPERIMENT.format(
            name=name,
            model=model,
            dataset=manifest,
        ),
        encoding="utf-8",
    )
    return experiment


def read_question(name: Name, workspace: Path, bench: Path = BANKING77) -> Experiment:
    return read_experiment(write_question(name, workspace, bench), workspace)
