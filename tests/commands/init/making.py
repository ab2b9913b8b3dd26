"""A tiny text model and its data, and `initialize` called on them as a user would."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.small_graphs import write_graph
from tests.word_pieces import VOCABULARY
from workbench.commands.init.files import initialize
from workbench.evaluation.data_check import check_data
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.space.space import Parameter
from workbench.values.errors import ConfigError

WIDTH, POSITIONS = 8, 40


def write_text_model(
    path: Path,
    *,
    classes: int = 2,
    ner: bool = False,
    names: Sequence[str] = ("input_ids", "attention_mask"),
    length: int | str = "length",
    batch: int | str = "batch",
    positions: int = POSITIONS,
) -> Path:
    """Tokens and positions embedded, one product of two activations, one dense layer, classes."""
    rng = np.random.default_rng(0)

    sizes = {"tokens": len(VOCABULARY), "places": positions, "w": WIDTH}
    tables = {name: rng.normal(0, 1, (size, WIDTH)).astype(np.float32) for name, size in sizes.items()}
    tables["head"] = rng.normal(0, 1, (WIDTH, classes)).astype(np.float32)
    tables["all_places"] = np.arange(positions, dtype=np.int64)[None]
    tables |= {"zero": np.array([0]), "one": np.array([1])}
    nodes = [
        helper.make_node("Gather", ["tokens", names[0]], ["embedded"]),
        helper.make_node("Shape", [names[0]], ["extent"], start=1),
        helper.make_node("Slice", ["all_places", "zero", "extent", "one"], ["used"]),
        helper.make_node("Gather", ["places", "used"], ["placed"]),
        helper.make_node("Add", ["embedded", "placed"], ["x"]),
        helper.make_node("Transpose", ["x"], ["xt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "xt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"]),
        helper.make_node("MatMul", ["weights", "x"], ["context"]),
        helper.make_node("MatMul", ["context", "w"], ["dense"]),
        helper.make_node("Relu", ["dense"], ["relu"]),
        helper.make_node("ReduceMean", ["relu"], ["pooled"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["relu" if ner else "pooled", "head"], ["logits"]),
    ]
    fed = {name: (TensorProto.INT64, [batch, length]) for name in names}
    told = {"logits": [batch, *([length] if ner else []), classes]}
    return write_graph(path, nodes[:-2] + nodes[-1:] if ner else nodes, fed, told, **tables)


def write_csv(path: Path, labels: Sequence[Any], words: int = 3) -> Path:
    rows = "".join(f'"loan due{" loan" * (i % words)}",{label}\n' for i, label in enumerate(labels))
    path.write_text("Text,label\n" + rows, encoding="utf-8")
    return path


def start(folder: Path, *data: str, **given: Any) -> Experiment:
    """Initialize a workspace beside the folder and read what was written, as a sweep would."""
    arguments = {
        "tokenizer": folder / "tokenizer.json",
        "labels": folder / "labels.json",
        "name": "question",
        "to": folder.parent / "workspace",
        "model": folder / "model.onnx",
    } | given
    experiment = read_experiment(initialize(data=[folder / name for name in data], **arguments).files[0])
    check_data(experiment)
    return experiment


def refused(folder: Path, *data: str, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        start(folder, *data, **given)
    assert not (folder.parent / "workspace").exists(), "something was written"
    return str(caught.value)


def parameters(experiment: Experiment) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in experiment.space.parameters}
