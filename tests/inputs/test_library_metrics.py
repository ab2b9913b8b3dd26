"""Each metric by name against the library itself, on samples whose answer is known."""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from workbench.inputs.dataset import read_manifest
from workbench.inputs.metrics import scorer_of
from workbench.inputs.metrics.outcomes import summarize

GENERATOR = np.random.default_rng(0)
SCORES = GENERATOR.normal(size=(2, 4)).astype(np.float32)


def value(folder: Path, metric: dict[str, Any], labels: Any, **outputs: Any) -> dict[str, float]:
    """Of a model that answers with what it is fed."""
    np.savez(folder / "data.npz", **outputs, **({} if labels is None else {"labels": labels}))
    keys = {"version": 1, "task": "tensors", "metric": metric}
    files = dict.fromkeys(("calibration", "validation", "holdout"), "data.npz")
    (folder / "manifest.yaml").write_text(json.dumps({**keys, "files": files}))
    dataset = read_manifest(folder / "manifest.yaml")
    (batch,) = dataset.batches("validation", 100)
    with contextlib.closing(scorer_of(dataset, None)) as scorer:
        return summarize(scorer.score(batch.feeds, batch, batch.feeds))


def test_transcripts(tmp_path: Path) -> None:
    pytest.importorskip("jiwer")
    (tmp_path / "letters.json").write_text('["_", "a", "b", " "]')
    steps = np.eye(4, dtype=np.float32)[[[1, 1, 0, 1, 3, 2], [2, 0, 0, 0, 0, 0]]]  # "aa b" and "b"
    said = {"output": "y", "decode": "ctc", "symbols": "letters.json"}

    words = value(tmp_path, {"name": "wer", **said}, np.array(["aa a", "b"]), y=steps)
    letters = value(tmp_path, {"name": "cer", **said}, np.array(["aa a", "b"]), y=steps)
    itself = value(tmp_path, {"name": "wer", "decode": "ids"}, None, y=np.array([[1, 2], [2, 3]]))

    assert words == {"wer": pytest.approx(1 / 3)}
    assert letters == {"cer": pytest.approx(1 / 5)}
    assert itself == {"wer": 0.0}


def test_labels_and_numbers(tmp_path: Path) -> None:
    classes = np.array([1, 3])
    sets = np.array([[0, 1, 0, 1], [1, 0, 0, 1]])
    odds = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)

    found = [
        value(tmp_path, {"name": "log_loss"}, classes, y=SCORES)["log_loss"],
        value(tmp_path, {"name": "f1_samples", "threshold": 0}, sets, y=SCORES)["f1_samples"],
        value(tmp_path, {"name": "jaccard_samples", "threshold": 0}, sets, y=SCORES)["jaccard_samples"],
        value(tmp_path, {"name": "label_ranking_ap"}, sets, y=SCORES)["label_ranking_ap"],
        value(tmp_path, {"name": "mean_squared_error"}, sets * 1.0, y=SCORES)["mean_squared_error"],
    ]

    assert found == pytest.approx(
        [
            metrics.log_loss(classes, odds, labels=[0, 1, 2, 3]),
            metrics.f1_score(sets, SCORES > 0, average="samples", zero_division=1),
            metrics.jaccard_score(sets, SCORES > 0, average="samples", zero_division=1),
            metrics.label_ranking_average_precision_score(sets, SCORES),
            metrics.mean_squared_error(sets, SCORES),
        ],
        rel=1e-6,
    )
