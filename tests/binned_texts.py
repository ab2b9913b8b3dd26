"""A workspace of texts of several lengths, whose candidates pad them to bins."""

import csv
from pathlib import Path

import numpy as np

from tests.targets.masked_encoder import masked_encoder
from tests.word_pieces import write_tokenizer
from workbench.testing.encoder import CLASSES, save

SPACE = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none]}
  serving.sequence_bins: {choices: ["optimal 1", "optimal 3"]}
"""

MANIFEST = """
version: 1
task: TASK
files: {calibration: calibration.csv, validation: validation.csv, holdout: validation.csv}
labels: labels.json
tokenizer: tokenizer.json
max_length: 48
bins: [48]
"""

EXPERIMENT = """
version: 1
name: bins
model: ../data/model.onnx
dataset: ../data/manifest.yaml
search_space: ../search_spaces/bins.yaml
calibration: {samples: 8, batch: 4}
objectives: [latency_p50_ms]
budget: {trials: 2, timeout: 1h}
measure: {calls: 40, short_calls: 20, feeds: 16}
"""


def write_binned_workspace(root: Path, task: str) -> Path:
    for name in ("data", "experiments", "search_spaces"):
        (root / name).mkdir(parents=True)
    save(masked_encoder(), root / "data" / "model.onnx")
    write_tokenizer(root / "data" / "tokenizer.json")
    (root / "data" / "labels.json").write_text(str([f"class {i}" for i in range(CLASSES)]).replace("'", '"'))
    rng = np.random.default_rng(5)
    for split, size in (("calibration", 12), ("validation", 60)):
        with (root / "data" / f"{split}.csv").open("w", newline="", encoding="utf-8") as stream:
            written = csv.writer(stream)
            written.writerow(["text", "label"])
            for row in range(size):
                words = rng.choice(["loan", "pay", "due", "payment", "张"], int(rng.choice([2, 5, 9, 16, 30])))
                written.writerow([" ".join(words), f"class {row % CLASSES}"])
    manifest = MANIFEST.replace("TASK", task)
    if task == "tensors":
        manifest = manifest.replace("labels: labels.json\n", "")
    (root / "data" / "manifest.yaml").write_text(manifest, encoding="utf-8")
    (root / "search_spaces" / "bins.yaml").write_text(SPACE, encoding="utf-8")
    (root / "experiments" / "bins.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return root / "experiments" / "bins.yaml"


SERVICE_QUESTION = """objectives: [service_throughput_per_s, accuracy]
sampler: random
service: {concurrency: 8, confirm: 0, host: {request_ms: 0.05, batch_ms: 0.02, cores: 16, origin: a test}}
"""
