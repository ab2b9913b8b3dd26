"""`init --metric`: the manifest says it, labels of any kind are its own, and no output is asked for."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.small_graphs import write_graph
from workbench.commands.init import Wishes, initialize
from workbench.inputs.experiment import read_experiment
from workbench.values.errors import ConfigError


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A model whose output nobody can name, and data with labels that are no classes."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    shapes = {"x": ["batch", 4]}, {"y": ["batch", 4]}
    write_graph(tmp_path / "m.onnx", nodes, *shapes, w=np.eye(4, dtype=np.float32))
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    for split in ("train", "valid"):
        np.savez(tmp_path / f"{split}.npz", x=x, labels=x + 0.1)
    return [tmp_path / "train.npz", tmp_path / "valid.npz"]


def test_a_function_of_a_file_is_written_and_tried(tmp_path: Path, files: list[Path]) -> None:
    code = (
        "import numpy as np\ndef near(outputs, targets):\n    return np.exp(-abs(outputs['y'] - targets).sum(axis=1))\n"
    )
    (tmp_path / "metric.py").write_text(code)

    initialize(tmp_path / "m.onnx", files, tmp_path, wishes=Wishes(metric=str(tmp_path / "metric.py:near")))

    question = read_experiment(tmp_path / "experiments/m.yaml")
    assert question.dataset.metric is not None
    assert question.dataset.metric.name == "near"
    assert question.dataset.interface.outputs == ()


def test_a_metric_of_a_library_has_its_options(tmp_path: Path, files: list[Path]) -> None:
    wishes = Wishes(metric="mean_absolute_error:output=y")
    initialize(tmp_path / "m.onnx", files, tmp_path, wishes=wishes)

    assert 'metric: {name: mean_absolute_error, output: "y"}' in (tmp_path / "calibration/m.yaml").read_text()
    assert "state it, accuracy_drop: LOSS" in (tmp_path / "experiments/m.yaml").read_text()


@pytest.mark.parametrize(
    ("metric", "why"),
    [("nothing", "no metric of a library"), ("gone.py:score", "no such file"), ("wer:ctc", "'ctc' is no option")],
)
def test_what_is_no_metric_is_refused(tmp_path: Path, files: list[Path], metric: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        initialize(tmp_path / "m.onnx", files, tmp_path, wishes=Wishes(metric=metric))
