"""Small models with data, for which a probe is made."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from workbench.graph.read import read_model
from workbench.inputs.dataset import Dataset, read_manifest
from workbench.values.model import Model

WORDS = ("[PAD]", "[UNK]", "loan", "pay", "due", "today", "bank", "of")
CLASSES = ("agree", "refuse", "other")
TAGS = ("O", "B-BANK", "I-BANK")
_SPLITS = ("calibration", "validation", "holdout")


def text_model(path: Path, width: int, *, per_token: bool) -> Model:
    """input_ids [batch, length] → embedding → logits [batch, width], or [batch, length, width]."""
    table = np.random.default_rng(0).normal(size=(len(WORDS), width)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["logits" if per_token else "tokens"], name="embed")]
    if not per_token:
        nodes.append(helper.make_node("ReduceMean", ["tokens"], ["logits"], name="mean", axes=[1], keepdims=0))
    graph = helper.make_graph(
        nodes,
        "text",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", *(["length"] * per_token), width])],
        [numpy_helper.from_array(table, "table")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return read_model(path)


def classification(folder: Path) -> tuple[Model, Dataset]:
    for split in _SPLITS:
        rows = [f"{' '.join(WORDS[2 + (i + j) % 6] for j in range(1 + i % 9))},{i % 3}" for i in range(40)]
        (folder / f"{split}.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    manifest = _manifest(folder, "classification", "csv", CLASSES, "{text: text, label: label}")
    model = text_model(folder / "model.onnx", len(CLASSES), per_token=False)
    return model, read_manifest(manifest, model)


def entities(folder: Path) -> tuple[Model, Dataset]:
    for split in _SPLITS:
        rows = []
        for i in range(40):
            tokens = [WORDS[2 + (i + j) % 6] for j in range(1 + i % 9)]
            rows.append(json.dumps({"tokens": tokens, "tags": ["B-BANK" if t == "bank" else "O" for t in tokens]}))
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    manifest = _manifest(folder, "ner", "jsonl", TAGS, "{tokens: tokens, tags: tags}")
    model = text_model(folder / "model.onnx", len(TAGS), per_token=True)
    return model, read_manifest(manifest, model)


def _manifest(folder: Path, task: str, ending: str, labels: tuple[str, ...], columns: str) -> Path:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "labels.json").write_text(json.dumps(list(labels)), encoding="utf-8")
    files = ", ".join(f"{split}: {split}.{ending}" for split in _SPLITS)
    lines = [
        "version: 1",
        f"task: {task}",
        f"files: {{{files}}}",
        f"columns: {columns}",
        "labels: labels.json",
        "tokenizer: tokenizer.json",
        "max_length: 8",
        "bins: [4, 8]",
    ]
    file = folder / "manifest.yaml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
