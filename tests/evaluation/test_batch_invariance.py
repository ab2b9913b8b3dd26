"""Rows that know of each other, and padding that moves the answer, are found by running them."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workbench.evaluation.batch_invariance import check_batch_invariance
from workbench.inputs.dataset import read_manifest
from workbench.values.errors import ConfigError
from workbench.values.model import Model, TensorSpec

SPECS = (TensorSpec(name="x", dtype="float32", shape=("batch", "frames")),)
MODEL = Model(path=Path("m.onnx"), sha256="0", size_bytes=1, opset=17, inputs=SPECS, outputs=())


def question(folder: Path, *, axes: str = "", batches: tuple[int, ...] = (1,), search: bool = False) -> Any:
    x = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32) + 1
    np.savez(folder / "d.npz", x=x, **{"x.sizes": np.array([2, 5, 3, 4, 5, 2])})
    files = "{calibration: d.npz, validation: d.npz, holdout: d.npz}"
    (folder / "m.yaml").write_text(f"version: 1\ntask: tensors\nfiles: {files}\n{axes}")
    parameters = [SimpleNamespace(name="serving.batch", choices=batches)]
    parameters += [SimpleNamespace(name="serving.sequence_bins", choices=("5", "8"))] if search else []
    compiled = SimpleNamespace(compiles_shapes=False)
    return SimpleNamespace(
        dataset=read_manifest(folder / "m.yaml", MODEL),
        model=MODEL,
        space=SimpleNamespace(parameters=parameters, path=folder / "space.yaml"),
        baseline=SimpleNamespace(compile=compiled),
    )


def check(experiment: Any, function: Any) -> None:
    bench: Any = None
    session: Any = SimpleNamespace(run=lambda feeds: {"y": function(feeds["x"])})
    check_batch_invariance(experiment, bench, session, "validation")


def test_padding_that_moves_the_answer_is_said_and_refused_where_it_is_searched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    axes = "axes: {frames: {bins: [2, 5]}}\n"
    check(question(tmp_path, axes=axes, search=True), lambda x: x * 2)  # each frame by itself
    check(question(tmp_path, axes=axes, search=True), lambda x: x.sum(axis=1))  # zeros add nothing
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        check(question(tmp_path, axes=axes), lambda x: x.mean(axis=1))
    assert "with the padding of a larger one beside it" in caplog.text
    with pytest.raises(ConfigError, match="candidates with other bins are other models"):
        check(question(tmp_path, axes=axes, search=True), lambda x: x.mean(axis=1))


def test_rows_that_change_each_other_allow_batch_one_only(tmp_path: Path) -> None:
    check(question(tmp_path, batches=(1, 4)), lambda x: x - x.mean(axis=1, keepdims=True))
    check(question(tmp_path), lambda x: x - x.mean(axis=0))
    with pytest.raises(ConfigError, match="rows of a call are not independent"):
        check(question(tmp_path, batches=(1, 4), axes="axes: {frames: {bins: [5]}}\n"), lambda x: x - x.mean(axis=0))
