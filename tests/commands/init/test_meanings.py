"""What `init` takes outputs for, on graphs as exporters write them: by evidence, or not at all."""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from tests.small_graphs import Shape, write_graph
from workbench.commands.init.files import initialize
from workbench.evaluation.float_run import run_float
from workbench.evaluation.metric_check import refuse_imperfect
from workbench.inputs.experiment import read_experiment
from workbench.values.errors import ConfigError
from workbench.values.interface import OutputUse

INT64 = TensorProto.INT64
ROWS, FEATURES = 24, 12
Floats = npt.NDArray[np.float32]


def drawn(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def write_head(path: Path, size: int, *last: str, bias: float = 0.0) -> Floats:
    """A product, a bias and some operators; gives back the weight."""
    steps = ["MatMul", "Add", *last, "Identity"]
    names = ["x", *(f"t{n}" for n in range(len(steps) - 1)), "y"]
    more = {"MatMul": ["w"], "Add": ["b"]}
    nodes = [
        helper.make_node(step, [source, *more.get(step, [])], [to])
        for step, source, to in zip(steps, names[:-1], names[1:], strict=True)
    ]
    weight = drawn(FEATURES, size) * np.float32(0.3)
    bias_values = np.full(size, bias, np.float32)
    write_graph(path, nodes, {"x": ["n", FEATURES]}, {"y": ["n", size]}, w=weight, b=bias_values)
    return weight


def started(folder: Path, samples: Floats, outputs: dict[str, str] | None = None) -> tuple[OutputUse, ...]:
    files = [folder / f"{split}.npz" for split in ("train", "valid")]
    proto = onnx.load(folder / "m.onnx")
    for path in files:
        np.savez(path, **{proto.graph.input[0].name: samples})
    written = initialize(folder / "m.onnx", files, folder / "workspace", outputs=outputs).files[0]
    experiment = read_experiment(written)
    run = run_float(experiment.model, experiment.dataset)
    refuse_imperfect(experiment.dataset, experiment.model, run.rows)  # what was written holds for plan and sweep too
    return experiment.dataset.interface.outputs


X = drawn(ROWS, FEATURES, seed=1)


def test_three_opinion_scores_are_no_classes_until_the_user_says_what_they_are(tmp_path: Path) -> None:
    write_head(tmp_path / "m.onnx", 3, bias=8.0)
    with pytest.raises(ConfigError, match=r"nothing tells what an output means.*all above 0.*--output y=values$"):
        started(tmp_path, X)
    assert [use.meaning for use in started(tmp_path, X, {"y": "values"})] == ["values"]
    write_head(tmp_path / "m.onnx", 5, "Softmax")
    (tmp_path / "workspace").rename(tmp_path / "before")
    assert [use.meaning for use in started(tmp_path, X)] == ["probabilities"]


def test_before_a_terminal_what_an_output_means_is_asked(tmp_path: Path) -> None:
    write_head(tmp_path / "m.onnx", 3, bias=8.0)
    for split in ("train", "valid"):
        np.savez(tmp_path / f"{split}.npz", x=X)
    ours, theirs = pty.openpty()
    program = "from workbench.commands.cli import main; main()"
    asked = [sys.executable, "-c", program, "init", "m.onnx", "--data", "train.npz", "--data", "valid.npz", "--to", "w"]
    with subprocess.Popen(asked, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as started_there:
        os.close(theirs)
        os.write(ours, b"vectors\nvalues\n")
        shown = b""
        with contextlib.suppress(OSError):  # Linux's way to say that nobody holds the other end any more
            while more := os.read(ours, 4096):
                shown += more
        os.close(ours)
    assert started_there.returncode == 0, shown.decode()
    assert shown.count(b"What does the output 'y' mean?") == 2, "what is no answer is asked again"
    (written,) = (tmp_path / "w" / "experiments").glob("*.yaml")
    assert [use.meaning for use in read_experiment(written).dataset.interface.outputs] == ["values"]


def test_an_echo_of_an_input_is_named_and_judges_nothing(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 32, (ROWS, 9))
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["logits"]),
        helper.make_node("Identity", ["input_ids"], ["echo"]),
        helper.make_node("Shape", ["rows"], ["shape"]),
        helper.make_node("ReduceSum", ["input_ids", "one"], ["sum"], keepdims=0),
    ]
    kinds: dict[str, Shape] = {
        "echo": (INT64, ["n", "t"]),
        "logits": ["n", 4],
        "shape": (INT64, [3]),
        "sum": (INT64, ["n"]),
    }
    fed: dict[str, Shape] = {"input_ids": (INT64, ["n", "t"])}
    weights = {"table": drawn(32, 8), "w": drawn(8, 4), "one": np.array([1])}
    write_graph(tmp_path / "m.onnx", nodes, fed, kinds, **weights)

    found = started(tmp_path, ids, {"echo": "ids"})  # type: ignore[arg-type]  # ids

    assert (found[0].name, found[0].meaning) == ("logits", "logits")
    assert {use.name for use in found if use.meaning == "ignored"} == {"echo", "shape", "sum"}
    assert "no candidate can change it" in (tmp_path / "workspace/calibration/m.yaml").read_text("utf-8")
    kinds.pop("logits")
    write_graph(tmp_path / "alone/m.onnx", nodes, fed, kinds, **weights)
    with pytest.raises(ConfigError, match=r"every output .*echo, shape, sum.* no candidate can change it"):
        started(tmp_path / "alone", ids)  # type: ignore[arg-type]  # ids


def detector(path: Path, *, objectness: bool) -> Floats:
    """A head whose answers lie in its samples: [n, 4 + classes, anchors], or with objectness [n, anchors, 5 + classes];
    boxes are centres and sizes in pixels."""
    rng, classes, anchors = np.random.default_rng(0), 80, 200
    table = np.zeros((ROWS, 4 + objectness + classes, anchors), np.float32)
    table[:, :2], table[:, 2:4] = rng.uniform(40, 600, (ROWS, 2, anchors)), rng.uniform(20, 120, (ROWS, 2, anchors))
    score = np.where(rng.random((ROWS, 1, anchors)) < 0.1, 0.8, 0.05)
    kinds = rng.integers(0, classes, (ROWS, 1, anchors))
    np.put_along_axis(table[:, 4 + objectness :], kinds, 0.9 if objectness else score, axis=1)
    if objectness:
        table[:, 4:5] = score
    size = table.shape[1]
    perm, shape = ([0, 2, 1], [anchors, size]) if objectness else ([0, 1, 2], [size, anchors])
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Transpose", ["c"], ["output0"], perm=perm)]
    eye = np.eye(size, dtype=np.float32)[..., None]
    write_graph(path, nodes, {"x": ["n", size, anchors]}, {"output0": ["n", *shape]}, w=eye)
    return table


def test_boxes_that_lose_themselves_are_refused_with_the_options_that_are_right(tmp_path: Path) -> None:
    for objectness, right in (
        (False, "axis=1,format=cxcywh,class_column=4"),
        (True, "format=cxcywh,score_column=4,class_column=5"),
    ):
        folder = tmp_path / str(objectness)
        samples = detector(folder / "m.onnx", objectness=objectness)
        lost = rf"f1 of the float model against its own .*--output output0=boxes:{right} "
        with pytest.raises(ConfigError, match=lost):
            started(folder, samples, {"output0": "boxes"})
        with pytest.raises(ConfigError, match=rf"nothing tells.*--output output0=boxes:{right}$"):
            started(folder, samples)
        (use,) = started(folder, samples, {"output0": f"boxes:{right}"})
        assert use.meaning == "boxes"


def test_time_first_is_taken_from_the_axis_of_samples_or_told_with_what_to_declare(tmp_path: Path) -> None:
    outputs = {"y": "logits"}
    samples = drawn(ROWS, 20, FEATURES, seed=2)
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), helper.make_node("MatMul", ["t", "w"], ["y"])]

    def made(batch: int | str, declared: list[int | str], opset: int = 17) -> Path:
        folder = tmp_path / f"{batch}{opset}{''.join(map(str, declared))}"
        shapes = {"x": [batch, 20, FEATURES]}, {"y": declared}
        return write_graph(folder / "m.onnx", nodes, *shapes, opset, w=drawn(FEATURES, 11)).parent

    for batch in (1, "n"):
        said = rf"'y' has the shape \[20, 1, 11\] for 1 sample, and its file declares \[{batch}, seqlen\].*"
        with pytest.raises(ConfigError, match=said + r"\[axis_0, batch, 11\]"):
            started(made(batch, [batch, "seqlen"]), samples, outputs)
    for folder in (made(1, ["time", 1, 11]), made("batch", ["time", "batch", 11]), made(1, [1, "seqlen"], 11)):
        started(folder, samples, outputs)


def test_labels_tell_classes_from_numbers_and_chance_tells_nothing(tmp_path: Path) -> None:
    weight = write_head(tmp_path / "m.onnx", 5)
    answers = (X @ weight).argmax(axis=1)
    for name, labels in (("right", answers), ("chance", np.roll(answers, 7)), ("numbers", drawn(ROWS, 5, seed=3))):
        (tmp_path / f"{name}.py").write_text(
            "import numpy as np\n"
            f"x = np.array({X.tolist()}, np.float32)\nlabels = {labels.tolist()}\n"
            "def load(split):\n"
            "    return None if split == 'holdout' else [({'x': a}, b) for a, b in zip(x, labels)]\n"
        )

    def told(name: str) -> dict[str, dict[str, object]]:
        to = tmp_path / name
        file = initialize(tmp_path / "m.onnx", [Path(f"{tmp_path / name}.py:load")], to, name="q").files[0]
        return {use.meaning: dict(use.options) for use in read_experiment(file).dataset.interface.outputs}

    assert told("right") == {"logits": {"against": "labels"}}
    assert told("numbers") == {"values": {"against": "labels"}}
    with pytest.raises(ConfigError, match="nothing tells what an output means"):
        told("chance")
