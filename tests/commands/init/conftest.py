from pathlib import Path

import pytest

from tests.commands.init.making import write_csv, write_text_model
from tests.word_pieces import write_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data for a text model in a folder beside the workspace."""
    folder = tmp_path / "data"
    write_text_model(folder / "model.onnx")
    write_tokenizer(folder / "tokenizer.json")
    (folder / "labels.json").write_text('["loan", "payment"]')
    write_csv(folder / "train.csv", ["loan", "payment"] * 10)
    write_csv(folder / "dev.csv", ["payment", "loan"] * 10, words=30)
    return folder
