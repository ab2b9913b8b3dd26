"""A workspace whose texts are queries of documents: the tiny texts' model, whose logits are taken for an embedding."""

import csv
from collections.abc import Mapping
from pathlib import Path

from tests.tiny_texts import EXPERIMENT, write_text_workspace

MANIFEST = """
version: 1
task: tensors
files: {calibration: ../data/calibration.csv, validation: ../data/validation.csv, holdout: ../data/holdout.csv}
columns: {text: text, label: label, id: id}
tokenizer: ../data/tokenizer.json
max_length: 16
bins: [4, 8, 16]
retrieval:
  corpus: ../data/corpus.csv
  output: logits
  k: 5
"""


def write_retrieval(root: Path, said: str = "  relevance: float\n", **files: str) -> Path:
    """Everything below `root`; returns the experiment file. Queries have the ids q0, q1, …; documents d0, d1, ….

    Args:
        said: more lines of `retrieval:`.
        files: text of more files in `data/`, or of other ones, by stem.
    """
    experiment = write_text_workspace(root, experiment=EXPERIMENT)
    data = root / "data"
    for split in ("calibration", "validation", "holdout"):
        with (data / f"{split}.csv").open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        _write(data / f"{split}.csv", [{"id": f"q{n}", **row} for n, row in enumerate(rows)])
    _write(data / "corpus.csv", [{**row, "id": f"d{n}"} for n, row in enumerate(rows[:60])])
    for name, text in files.items():
        (data / name.replace("_", ".")).write_text(text, encoding="utf-8")
    (root / "calibration" / "tiny-texts.yaml").write_text(MANIFEST + said, encoding="utf-8")
    return experiment


def _write(path: Path, rows: list[Mapping[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        written = csv.DictWriter(stream, list(rows[0]))
        written.writeheader()
        written.writerows(rows)
