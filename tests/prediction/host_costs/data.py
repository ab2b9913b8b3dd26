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
_SPLITS = ("calibration", "validation", "holdout")


def text_model(path: Path) -> Model:
    """input_ids [batch, length] → embedding → logits [batch, classes]."""
    table = np.random.default_rng(0).normal(size=(len(WORDS), len(CLASSES))).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"], name="embed"),
        helper.make_node("ReduceMean", ["tokens"], ["logits"], name="mean", axes=[1], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "text",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(CLASSES)])],
        [numpy_helper.from_array(table, "table")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return read_model(path)


def classification(folder: Path) -> tuple[Model, Dataset]:
    for split in _SPLITS:
        rows = [f"{' '.join(WORDS[2 + (i + j) % 6] for j in range(1 + i % 9))},{i % 3}" for i in range(40)]
        (folder / f"{split}.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "labels.json").write_text(json.dumps(list(CLASSES)), encoding="utf-8")
    files = ", ".join(f"{split}: {split}.csv" for split in _SPLITS)
    manifest = folder / "manifest.yaml"
    manifest.write_text(
        f"version: 1\ntask: classification\nfiles: {{{files}}}\ncolumns: {{text: text, label: label}}\n"
        "labels: labels.json\ntokenizer: tokenizer.json\nmax_length: 8\nbins: [4, 8]\n",
        encoding="utf-8",
    )
    model = text_model(folder / "model.onnx")
    return model, read_manifest(manifest, model)
