"""Arrays of different sizes: padded to the bundle's bins by the service, answers cut back."""

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.serve.making import SERVICE, bundle_of, running
from workbench.api.bundle import load_bundle
from workbench.bundle import read_bundle
from workbench.serve.refusals import Refusal
from workbench.serve.samples import Padding
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError
from workbench.values.interface import AxisUse

FRAMES = AxisUse(name="frames", bins=(4, 8), pad=-1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x [batch, 2, frames] → twice x, under another axis name, and the sum of everything that ran."""
    root, candidate = tmp_path_factory.mktemp("sizes"), Candidate(target="onnxruntime")
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["twice"], name="add"),
            helper.make_node("ReduceSum", ["x", "axes"], ["sum"], name="sum", keepdims=0),
        ],
        "sized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2, "frames"])],
        [
            helper.make_tensor_value_info("twice", TensorProto.FLOAT, ["batch", 2, "positions"]),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["batch"]),
        ],
        [onnx.numpy_helper.from_array(np.array([1, 2]), "axes")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), root / "model.onnx")
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


def test_two_axes_are_padded_each_to_its_bin_and_only_what_is_theirs_is_cut(folder: Path) -> None:
    manifest = read_bundle(folder).manifest
    (x,), (twice, total) = manifest.model.inputs, manifest.model.outputs
    image = dataclasses.replace(
        manifest.model,
        inputs=(dataclasses.replace(x, shape=("n", "h", "w")),),
        outputs=(dataclasses.replace(twice, shape=("n", "w", None)), total),
    )
    axes = (AxisUse(name="h", bins=(8,)), AxisUse(name="w", bins=(4, 16), pad=7.0))
    padding = Padding(dataclasses.replace(manifest, model=image, axes=axes))

    padded, sizes = padding.padded({"x": np.zeros((1, 5, 16), np.float32)})

    assert padded["x"].shape == (1, 8, 16)
    assert sizes == {"h": (5, 8)}
    assert padding.cut("twice", np.zeros((1, 16, 8)), sizes).shape == (1, 16, 5)
    assert padding.cut("sum", np.zeros(1), sizes).shape == (1,)
    with pytest.raises(Refusal, match="at most 16 along w"):
        padding.padded({"x": np.zeros((1, 1, 17), np.float32)})
