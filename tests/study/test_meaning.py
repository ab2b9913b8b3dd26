"""Comparisons judged by what outputs mean."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.evaluation.recurrent import SIZES, recurrent, sequences
from workbench.api.study import compare


def test_whole_sequences_are_scored_where_a_state_is_carried(tmp_path: Path) -> None:
    """Single steps that begin with the float model's states give the same outputs: only sequences show the drift."""
    model = recurrent(tmp_path / "a.onnx")
    sequences(tmp_path, model, "outputs: {y: values, hN: state}\n")
    other = onnx.load(tmp_path / "a.onnx")
    other.graph.initializer[0].CopyFrom(helper.make_tensor("half", 1, [], [0.6]))
    onnx.save(other, tmp_path / "b.onnx")

    found = compare(tmp_path / "a.onnx", tmp_path / "b.onnx", data=tmp_path / "m.yaml")

    errors, values = 0.0, 0.0
    for x, size in zip(np.load(tmp_path / "data.npz")["x"], SIZES, strict=True):
        ours, theirs = np.zeros(2), np.zeros(2)
        for step in x[:size]:
            errors += np.abs(ours - theirs).sum()
            values += np.abs(step + ours).sum()
            ours, theirs = ours * 0.5 + step, theirs * 0.6 + step
    judged = {judgement.metric: judgement for judgement in found.meaning}
    assert judged["y.relative_error"].b == pytest.approx(errors / values, rel=1e-5)
    assert judged["y.relative_error"].a == 0
    assert next(row for row in found.rows if row.tensor == "y").sqnr_db is None  # equal, step by step
