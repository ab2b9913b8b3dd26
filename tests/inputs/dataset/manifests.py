"""Manifests, models and two questions that the tests of this folder share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.inputs.dataset import Dataset
from workbench.values.errors import ConfigError
from workbench.values.model import Model, TensorSpec

TEXT = """
version: 1
task: classification
files: {calibration: calibration.csv, validation: validation.csv}
labels: labels.json
tokenizer: tokenizer.json
max_length: 32
"""
NER = """
version: 1
task: ner
files: {calibration: rows.jsonl, validation: rows.jsonl, holdout: rows.jsonl}
labels: tags.json
tokenizer: tokenizer.json
max_length: 32
bins: [8, 32]
"""
ARRAYS = """
version: 1
task: tensors
files: {calibration: data.npz, validation: data.npz, holdout: data.npz}
"""
LOADER = """
version: 1
task: classification
loader: my_loader.py:load
"""
LOADER_CODE = """
import numpy as np
def load(split):
    if split == "holdout":
        return None
    return ((dict(x=np.full((2,), row, dtype=np.float32)), row % 3) for row in range(20))
"""


def spec(name: str, dtype: str, *shape: int | str) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def model(*inputs: TensorSpec) -> Model:
    return Model(path=Path("m.onnx"), sha256="0" * 64, size_bytes=1, opset=17, inputs=inputs, outputs=())


BERT = model(spec("input_ids", "int64", "batch", "length"), spec("attention_mask", "int64", "batch", "length"))


def refused(read: Callable[..., Dataset], manifest: str, model: Model | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(manifest, model)
    return str(caught.value)


def classes(dataset: Dataset, split: Any, **window: int) -> list[int]:
    found: list[int] = []
    for batch in dataset.batches(split, 7, **window):
        found.extend(batch.targets.tolist())
    return found
