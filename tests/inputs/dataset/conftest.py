import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.inputs.dataset.manifests import LOADER_CODE
from tests.word_pieces import write_tokenizer
from workbench.inputs.dataset import Dataset, read_manifest
from workbench.values.model import Model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with data for every kind of manifest; the validation rows are sorted by class, as files often are."""
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "labels.json").write_text('["loan", "payment"]')
    (tmp_path / "tags.json").write_text('{"O": 0, "B-SUM": 1, "I-SUM": 2}')
    (tmp_path / "calibration.csv").write_text("text,label\nloan due,loan\npayment,payment\n")
    rows = "".join(f'"loan, due{" loan" * (i % 20)}",loan\n' for i in range(30)) + "payment,payment\n" * 30
    (tmp_path / "validation.csv").write_text("text,label\n" + rows)
    sentence = {"tokens": ["loan", "payment", "due"], "tags": ["O", "B-SUM", "I-SUM"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(sentence) + "\n\n" + json.dumps({"tokens": ["张"], "tags": ["O"]}))
    np.savez(tmp_path / "data.npz", x=np.arange(40, dtype=np.float32).reshape(10, 4), labels=np.arange(10) % 3)
    (tmp_path / "my_loader.py").write_text(LOADER_CODE)
    return tmp_path


@pytest.fixture
def read(folder: Path) -> Callable[..., Dataset]:
    def read(manifest: str, model: Model | None = None) -> Dataset:
        path = folder / "manifest.yaml"
        path.write_text(manifest)
        return read_manifest(path, model)

    return read
