"""What the table of the emulated 910B3 is of: an experiment and its space, written into a workspace."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.recorded.questions import ROOT

NAME, EXAMPLE = "bert-small-910b3", "loan-intent-small"
SPACE = """version: 1
target: ascend910b3
parameters:
  quantization.scheme: {{choices: [none, static]}}
  quantization.calibrator:
    when: {{quantization.scheme: [static]}}
    choices: [workbench]
  quantization.algorithm:
    when: {{quantization.scheme: [static]}}
    choices: [ifmr, mse, minmax, hfmg, kl, percentile]
  quantization.percentile:
    when: {{quantization.algorithm: [percentile]}}
    choices: [99.99]
  quantization.activation_symmetric:
    when: {{quantization.scheme: [static]}}
    choices: [false, true]
  quantization.weight_granularity:
    when: {{quantization.scheme: [static]}}
    choices: [tensor]
  quantization.attention_matmul:
    when: {{quantization.scheme: [static]}}
    choices: [false, true]
  quantization.keep_float:
    when: {{quantization.scheme: [static]}}
    choices: [0, 2]
  quantization.keep_float_unit:
    when: {{quantization.keep_float: [2]}}
    choices: [group]
  precision.mode: {{choices: [force_fp16]}}
  compile.fusions.gelu: {{choices: ["on", "off"]}}
  compile.fusions.matmul_elementwise: {{choices: ["on", "off"]}}
  compile.fusions.elementwise: {{choices: ["on", "off"]}}
  compile.fusions.dequant_elementwise:
    when: {{quantization.scheme: [static]}}
    choices: ["on", "off"]
  compile.sequence_bins: {{choices: {bins}}}
  compile.batches: {{choices: ["1 8 32", "1 8", "1 32"]}}
  serving.batch: {{choices: [1]}}
service:
  max_batch_size: [1, 8, 16, 32]
  batch_timeout_ms: [0, 2, 5, 10]
  workers: [1, 2]
forbid:
  - quantization.activation_symmetric: [false]
    quantization.attention_matmul: [true]
    reason: Products of two activations can only be symmetric on Ascend.
presets:
  - {{name: fp16}}
  - {{name: fp16-bins, compile.sequence_bins: {four}}}
  - {{name: int8, quantization.scheme: static}}
  - {{name: int8-bins, quantization.scheme: static, compile.sequence_bins: {four}}}
  - name: int8-attention-bins
    quantization.scheme: static
    quantization.activation_symmetric: true
    quantization.attention_matmul: true
    compile.sequence_bins: {four}
"""
BINS = "compile.sequence_bins"
WORDS = ("optimal 1", "optimal 2", "optimal 4")
"""The first is the default."""
EXPERIMENT = """version: 1
name: {name}
model: ../.workbench/examples/{example}/model.onnx
dataset: ../calibration/{example}.yaml
target: ascend910b3
search_space: ../search_spaces/{name}.yaml
calibration: {{samples: 32, batch: 8}}
validation: {{samples: {samples}}}
objectives: [service_throughput_per_s, accuracy]
service:
  concurrency: 100
  p99_ms: 120
  host: {{cores: 16, request_ms: 0.15, batch_ms: 0.2, worker_batch_ms: 0.1, worker_row_ms: 0.01, network_ms: 4.6,
         origin: as in the experiment loan-intent-small-910b3}}
constraints: {{accuracy_drop_pp: 0.5}}
budget: {{trials: 24}}
"""


def space_text(bins: list[str]) -> str:
    return SPACE.format(bins=json.dumps(bins), four=json.dumps(bins[2]))


def write_question(workspace: Path, samples: int) -> Path:
    for folder in ("experiments", "calibration", "search_spaces"):
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "calibration" / f"{EXAMPLE}.yaml", workspace / "calibration" / f"{EXAMPLE}.yaml")
    if not (workspace / ".workbench" / "examples" / EXAMPLE / "model.onnx").exists():
        command = [sys.executable, "-m", "workbench", "example", EXAMPLE, "--workspace", str(workspace)]
        subprocess.run(command, check=True, cwd=ROOT)
    (workspace / "search_spaces" / f"{NAME}.yaml").write_text(space_text(list(WORDS)), encoding="utf-8")
    experiment = workspace / "experiments" / f"{NAME}.yaml"
    experiment.write_text(EXPERIMENT.format(name=NAME, example=EXAMPLE, samples=samples), encoding="utf-8")
    return experiment
