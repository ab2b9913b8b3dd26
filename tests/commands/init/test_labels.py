"""Labels that are no class ids, loaders, sizes that differ, `--metric`: what `init` writes of them or says to write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.small_graphs import write_graph
from workbench.commands.init.files import initialize
from workbench.inputs.experiment import read_experiment
from workbench.values.errors import ConfigError

ROWS = 12


def write_model(path: Path, outputs: dict[str, int], last: str) -> None:
    """One product and one last operator for each output, of so many values."""
    rng = np.random.default_rng(0)
    weights = {f"w_{name}": rng.normal(size=4 * size).astype(np.float32) for name, size in outputs.items()}
    weights = {name: array.reshape(4, -1) for name, array in weights.items()}
    nodes = [helper.make_node("MatMul", ["x", f"w_{name}"], [f"z_{name}"]) for name in outputs]
    nodes += [helper.make_node(last, [f"z_{name}"], [name]) for name in outputs]
    write_graph(path, nodes, {"x": ["n", 4]}, {name: ["n", size] for name, size in outputs.items()}, **weights)


def started(folder: Path, outputs: dict[str, str], **labels: np.ndarray) -> dict[str, dict[str, object]]:
    """Output → its options, as the manifest that was written is read again."""
    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
    files = [folder / f"{split}.npz" for split in ("train", "valid")]
    for path in files:
        np.savez(path, x=x, **labels)
    written = initialize(folder / "m.onnx", files, folder / "workspace", outputs=outputs).files[0]
    return {use.name: dict(use.options) for use in read_experiment(written).dataset.interface.outputs}


def test_labels_of_a_name_belong_to_the_output_of_that_name(tmp_path: Path) -> None:
    write_model(tmp_path / "m.onnx", {"kind": 3, "age": 3}, "Softmax")
    labels = {"target.kind": np.arange(ROWS) % 3, "target.age": np.ones((ROWS, 3), np.float32)}

    found = started(tmp_path, {"age": "values"}, **labels)

    assert found == {"kind": {"against": "labels.kind"}, "age": {}}, "what --output says is left as it is"
    text = (tmp_path / "workspace/calibration/m.yaml").read_text()
    assert "held against the data's labels.kind, whose first samples fit it" in text
    assert "columns: {label: target}" in text


def test_an_output_is_held_against_numbers_of_its_size_or_as_the_user_says(tmp_path: Path) -> None:
    write_model(tmp_path / "m.onnx", {"angle": 1}, "Identity")
    labels = np.linspace(-1, 1, ROWS)

    assert started(tmp_path, {}, labels=labels) == {"angle": {"against": "labels"}}, "numbers of its own size"
    (tmp_path / "workspace").rename(tmp_path / "told by labels")
    found = started(tmp_path, {"angle": "values:against=labels,primary=mae"}, labels=labels)
    assert found == {"angle": {"against": "labels", "primary": "mae"}}


def test_labels_that_no_output_takes_are_refused_with_what_to_write(tmp_path: Path) -> None:
    cases: tuple[tuple[dict[str, np.ndarray], str], ...] = (
        ({"labels": np.array(["yes"] * ROWS)}, r"'yes', not whole numbers.*--metric wer"),
        ({"labels": np.ones((ROWS, 3), np.bool_)}, "3 classes for 1 decisions.*--metric file.py:function"),
        ({"labels.other": np.ones(ROWS)}, "no output is called 'other'"),
    )
    write_model(tmp_path / "m.onnx", {"kind": 3}, "Softmax")
    for labels, why in cases:
        with pytest.raises(ConfigError, match=why):
            started(tmp_path, {}, **labels)
    assert started(tmp_path, {"kind": "probabilities"}, **labels) == {"kind": {}}


def test_boxes_and_classes_are_of_the_boxes(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["b"], ["boxes"]), helper.make_node("Sigmoid", ["s"], ["scores"])]
    boxes_of, scores_of = ["n", 6, 4], ["n", 6, 2]
    shapes = {"b": boxes_of, "s": scores_of}, {"boxes": boxes_of, "scores": scores_of}
    write_graph(tmp_path / "m.onnx", nodes, *shapes)
    rng = np.random.default_rng(0)
    corner = rng.random((ROWS, 6, 2)).astype(np.float32)
    boxes = np.concatenate([corner, corner + 0.2], axis=2)
    files = [tmp_path / "train.npz", tmp_path / "valid.npz"]
    for path in files:
        kept = {"labels.boxes": boxes[:, :2], "labels.classes": np.ones((ROWS, 2), np.int64)}
        sizes = {f"{name}.sizes": np.arange(ROWS) % 3 for name in kept}
        np.savez(path, b=boxes, s=rng.normal(size=(ROWS, 6, 2)).astype(np.float32), **kept, **sizes)

    written = initialize(tmp_path / "m.onnx", files, tmp_path / "workspace").files[0]

    first = read_experiment(written).dataset.interface.outputs[0]
    assert (first.name, dict(first.options)["against"]) == ("boxes", "labels")


LOADER = """
import numpy as np

def load(split):
    if split == "holdout":
        return None
    rng = np.random.default_rng(len(split))
    return ((({"x": rng.normal(size=(3 + k % 5, 4)).astype(np.float32)}), k % 3) for k in range(20))
"""


def test_a_loader_gives_sizes_and_labels_and_samples_are_padded_where_every_size_is_compiled(
    tmp_path: Path,
) -> None:
    weight = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["z"]),
        helper.make_node("Softmax", ["z"], ["kind"]),
    ]
    write_graph(tmp_path / "m.onnx", nodes, {"x": ["n", "frames", 4]}, {"kind": ["n", 3]}, w=weight)
    (tmp_path / "loader.py").write_text(LOADER)
    loader = Path(f"{tmp_path / 'loader.py'}:load")

    begun = initialize(tmp_path / "m.onnx", [loader], tmp_path / "a", targets=["onnxruntime,ascend910b3"])

    data = read_experiment(begun.files[0]).dataset
    assert [use.bins[-1] for use in data.interface.axes] == [7]
    assert [path.name for path in (tmp_path / "a/calibration").iterdir()] == ["m.yaml"]
    assert dict(data.interface.outputs[0].options) == {"against": "labels"}
    (tmp_path / "loader.py").write_text(LOADER.replace("k % 3)", "None)"))
    alone = initialize(tmp_path / "m.onnx", [loader], tmp_path / "b").files[0]
    assert read_experiment(alone).dataset.interface.axes == ()
    assert "# No labels were found" in (tmp_path / "b/calibration/m.yaml").read_text()


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


def test_a_metric_is_written_with_its_options_and_tried(tmp_path: Path, files: list[Path]) -> None:
    code = (
        "import numpy as np\ndef near(outputs, targets):\n    return np.exp(-abs(outputs['y'] - targets).sum(axis=1))\n"
    )
    (tmp_path / "metric.py").write_text(code)
    initialize(tmp_path / "m.onnx", files, tmp_path / "own", metric=f"{tmp_path / 'metric.py'}:near")
    initialize(tmp_path / "m.onnx", files, tmp_path / "named", metric="mean_absolute_error:output=y")

    for metric, why in (
        ("nothing", "no metric of a library"),
        ("gone.py:score", "no such file"),
        ("wer:ctc", "'ctc' is not NAME=VALUE"),
    ):
        with pytest.raises(ConfigError, match=why):
            initialize(tmp_path / "m.onnx", files, tmp_path / "none", metric=metric)
    dataset = read_experiment(tmp_path / "own/experiments/m.yaml").dataset
    assert dataset.metric is not None
    assert (dataset.metric.name, dataset.interface.outputs) == ("near", ())
    assert 'metric: {name: mean_absolute_error, output: "y"}' in (tmp_path / "named/calibration/m.yaml").read_text()
    assert "state it, accuracy_loss: LOSS" in (tmp_path / "named/experiments/m.yaml").read_text()
