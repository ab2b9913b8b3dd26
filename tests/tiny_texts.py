"""A text workspace small enough to sweep in seconds: a classifier of a dozen words, its tokenizer, its texts."""

import csv
import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.small_graphs import write_graph
from tests.tiny import SPACE

WORDS = ("[PAD]", "[UNK]", "loan", "rate", "repay", "late", "bank", "card", "sum", "month", "please", "when")
LABELS = ("apply", "ask", "complain")
SPLITS = {"calibration": 48, "validation": 240, "holdout": 120}
WIDTH = 32

MANIFEST = """
version: 1
task: classification
files: {calibration: ../data/calibration.csv, validation: ../data/validation.csv, holdout: ../data/holdout.csv}
columns: {text: text, label: label}
labels: ../data/labels.json
tokenizer: ../data/tokenizer.json
max_length: 16
bins: [4, 8, 16]
"""
EXPERIMENT = """
version: 1
name: tiny-texts
about: does the classifier of a dozen words keep its accuracy in INT8?
model: ../data/model.onnx
dataset: ../calibration/tiny-texts.yaml
search_space: ../search_spaces/tiny-texts.yaml
calibration: {samples: 32, batch: 8}
objectives: [latency_p50_ms, accuracy]
constraints: {accuracy_loss_pp: 5.0}
budget: {trials: 4, timeout: 1h}
measure: {calls: 60, short_calls: 20, feeds: 8}
"""


def write_text_workspace(root: Path, *, experiment: str = EXPERIMENT) -> Path:
    """Everything below `root`; returns the experiment file. Labels are the float model's own answers."""
    for name in ("data", "experiments", "search_spaces", "calibration"):
        (root / name).mkdir(parents=True, exist_ok=True)
    data = root / "data"
    _write_model(data / "model.onnx")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(data / "tokenizer.json"))
    (data / "labels.json").write_text(json.dumps(LABELS), encoding="utf-8")
    _write_texts(data)
    (root / "calibration" / "tiny-texts.yaml").write_text(MANIFEST, encoding="utf-8")
    (root / "search_spaces" / "tiny-texts.yaml").write_text(SPACE, encoding="utf-8")
    file = root / "experiments" / "tiny-texts.yaml"
    file.write_text(experiment, encoding="utf-8")
    return file


def _write_model(path: Path) -> None:
    """input_ids, attention_mask [batch, length] → the mean of word vectors → Linear → Relu → Linear → logits."""
    rng = np.random.default_rng(0)
    weights = {
        "table": rng.normal(size=(len(WORDS), WIDTH)).astype(np.float32),
        "w0": rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32),
        "w1": rng.normal(0, WIDTH**-0.5, (WIDTH, len(LABELS))).astype(np.float32),
        "axes": np.array([1]),
        "last": np.array([2]),
    }
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["e"], name="embed"),
        helper.make_node("Cast", ["attention_mask"], ["m0"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["m0", "last"], ["m1"], name="widen"),
        helper.make_node("Mul", ["e", "m1"], ["masked"], name="mask"),
        helper.make_node("ReduceSum", ["masked", "axes"], ["sum"], name="sum", keepdims=0),
        helper.make_node("ReduceSum", ["m1", "axes"], ["count"], name="count", keepdims=0),
        helper.make_node("Div", ["sum", "count"], ["mean"], name="mean"),
        helper.make_node("MatMul", ["mean", "w0"], ["h0"], name="dense0"),
        helper.make_node("Relu", ["h0"], ["h1"], name="relu"),
        helper.make_node("MatMul", ["h1", "w1"], ["logits"], name="dense1"),
    ]
    fed = dict.fromkeys(("input_ids", "attention_mask"), (TensorProto.INT64, ["batch", "length"]))
    write_graph(path, nodes, fed, {"logits": ["batch", len(LABELS)]}, **weights)


def _write_texts(data: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(data / "model.onnx", providers=["CPUExecutionProvider"])
    for seed, (split, size) in enumerate(SPLITS.items()):
        rng = np.random.default_rng(seed + 1)
        with (data / f"{split}.csv").open("w", encoding="utf-8", newline="") as stream:
            written = csv.writer(stream)
            written.writerow(("text", "label"))
            for _ in range(size):
                ids = rng.integers(2, len(WORDS), (1, int(rng.integers(1, 13))))
                logits = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
                written.writerow((" ".join(WORDS[i] for i in ids[0]), LABELS[int(logits.argmax())]))
