"""Outputs of samples that were padded along a named axis are compared without their padding."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from workbench.graph.read import read_model
from workbench.inputs.dataset import Batch
from workbench.inputs.metrics.extents import Extents
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.outcomes import summarize
from workbench.values.interface import AxisUse, Interface, OutputUse
from workbench.values.model import Model


def model_of(tmp_path: Path, *nodes: onnx.NodeProto, rank: int = 3) -> Model:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 1, 5], np.linspace(-1, 1, 10).astype(np.float32))
    last = helper.make_tensor("flat", TensorProto.INT64, [2], [0, -1])
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, "frames"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"] + [None] * (rank - 1))],
        [weight, last],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return read_model(tmp_path / "m.onnx")


CONV = helper.make_node("Conv", ["x", "w"], ["y"], strides=[4], pads=[1, 1])
INTERFACE = Interface(axes=(AxisUse(name="frames", bins=(40, 80)),))


def batch_of(sizes: list[int], width: int) -> Batch:
    values = np.random.default_rng(0).random((len(sizes), 1, width)).astype(np.float32)
    values *= np.arange(width) < np.array(sizes)[:, None, None]
    return Batch(feeds={"x": values}, targets=None, indices=np.arange(len(sizes)), sizes={"frames": np.array(sizes)})


def test_a_convolution_ends_where_it_would_alone(tmp_path: Path) -> None:
    batch = batch_of([80, 50, 41], 80)

    (reach,) = Extents(model_of(tmp_path, CONV), INTERFACE).of(batch)["frames"]["y"]

    assert reach.axis == 2
    assert [reach.of(size) for size in (80, 50, 41, 12)] == [(size + 2 - 5) // 4 + 1 for size in (80, 50, 41, 12)]


def test_what_a_model_gives_for_padding_is_no_difference(tmp_path: Path) -> None:
    model, batch = model_of(tmp_path, CONV), batch_of([80, 40], 80)
    theirs = np.random.default_rng(1).random((2, 2, 20))
    ours = theirs.copy()
    ours[1, :, 12:] = 99  # behind what 40 frames give
    uses = (OutputUse(name="y", meaning="values"),)

    padded = MeaningScorer(uses=uses, file=Path("m.yaml"), declared=True)
    own = MeaningScorer(uses=uses, file=Path("m.yaml"), declared=True, extents=Extents(model, INTERFACE))

    assert summarize(padded.score({"y": ours}, batch, {"y": theirs}))["relative_error"] > 1
    assert summarize(own.score({"y": ours}, batch, {"y": theirs}))["relative_error"] == 0


def test_positions_of_another_order_are_left_as_they_are_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """[n, channels, frames] flattened: what belongs to a shorter sample does not stand at the beginning."""
    conv = helper.make_node("Conv", ["x", "w"], ["c"], pads=[2, 2])
    model = model_of(tmp_path, conv, helper.make_node("Reshape", ["c", "flat"], ["y"]), rank=2)

    assert Extents(model, INTERFACE).of(batch_of([80, 40], 80)) == {"frames": {}}
    assert "output 'y' is compared with its padding" in caplog.text
