"""A tiny text model and its data, and `initialize` called on them as a user would."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.values.test_preprocess import VOCABULARY
from workbench.commands.init import Wishes, initialize
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

    def table(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.normal(0, 1, shape).astype(np.float32), name)

    def numbers(name: str, *values: int) -> TensorProto:
        return numpy_helper.from_array(np.array(values, dtype=np.int64), name)

    constants = [
        table("tokens", len(VOCABULARY), WIDTH),
        table("places", positions, WIDTH),
        table("w", WIDTH, WIDTH),
        table("head", WIDTH, classes),
        numpy_helper.from_array(np.arange(positions, dtype=np.int64)[None], "all_places"),
        *(numbers("zero", 0), numbers("one", 1), numbers("last", -1)),
    ]
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
    graph = helper.make_graph(
        nodes[:-2] + nodes[-1:] if ner else nodes,
        "text",
        [helper.make_tensor_value_info(name, TensorProto.INT64, [batch, length]) for name in names],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, *([length] if ner else []), classes])],
        constants,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


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
    own = {name: arguments.pop(name) for name in [f.name for f in fields(Wishes)] if name in arguments}
    started = initialize(data=[folder / name for name in data], wishes=Wishes(**own), **arguments)
    experiment = read_experiment(started.files[0])
    check_data(experiment)
    return experiment


def refused(folder: Path, *data: str, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        start(folder, *data, **given)
    assert not (folder.parent / "workspace").exists(), "something was written"
    return str(caught.value)


def parameters(experiment: Experiment) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in experiment.space.parameters}
