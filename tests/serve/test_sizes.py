"""Arrays of different sizes: padded to the bundle's bins by the service, answers cut back."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.serve.making import SERVICE, bundle_of, running
from tests.small_graphs import write_graph
from workbench.api.bundle import load_bundle
from workbench.bundle.opened import read_bundle
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError
from workbench.values.interface import AxisUse

FRAMES = AxisUse(name="frames", bins=(4, 8), pad=-1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x [batch, 2, frames] → twice x, under another axis name, and the sum of everything that ran."""
    root, candidate = tmp_path_factory.mktemp("sizes"), Candidate(target="onnxruntime")
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"], name="add"),
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], name="sum", keepdims=0),
    ]
    shapes = {"x": ["batch", 2, "frames"]}, {"twice": ["batch", 2, "positions"], "sum": ["batch"]}
    write_graph(root / "model.onnx", nodes, *shapes, axes=np.array([1, 2]))
    feeds = {"x": np.ones((2, 2, 4), np.float32)}
    return bundle_of(root, candidate, feeds, name="sized", task="tensors", axes=(FRAMES,), service=SERVICE)


def test_a_bundle_says_how_arrays_are_padded_and_one_without_reads_as_before(folder: Path) -> None:
    manifest = read_bundle(folder).manifest

    assert manifest.axes == (FRAMES,)
    assert "padded with -1 to the smallest of 4, 8" in (folder / "README.md").read_text(encoding="utf-8")
    assert "axes" not in dataclasses.replace(manifest, axes=()).to_json()


def test_arrays_of_any_size_run_in_their_bin_and_answers_have_their_size(folder: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)

    with load_bundle(folder) as loaded:
        outputs = loaded.run({"x": x})
        with pytest.raises(ConfigError, match="at most 8 along frames, not 9"):
            loaded.run({"x": np.zeros((1, 2, 9), np.float32)})
    with running(folder) as service:
        replies = [service.predict({"inputs": {"x": x[:, :, :size].tolist()}}) for size in (3, 1)]
        refused = service.predict({"inputs": {"x": np.zeros((1, 2, 9)).tolist()}})

    assert np.array_equal(outputs["twice"], 2 * x)
    assert np.array_equal(outputs["sum"], x.sum(axis=(1, 2)) - 2)
    for reply, size in zip(replies, (3, 1), strict=True):
        assert np.array_equal(reply.body["outputs"]["twice"], 2 * x[:, :, :size])
    assert refused.status == 422
    assert "at most 8 along frames, not 9" in refused.body["error"]["message"]
