import re
from pathlib import Path

import numpy as np
from onnx import helper

from tests.commands.init.making import parameters, start, write_text_model
from tests.model_zoo import write_cnn
from tests.small_graphs import write_graph
from workbench.commands.init.model import examine_model
from workbench.commands.init.space import space_text
from workbench.space.reader import read_space
from workbench.space.space import combinations


def test_convolutions_may_keep_8_bits_between_them_where_the_target_can_and_that_is_tried_first(
    folder: Path, tmp_path: Path
) -> None:
    write_cnn(tmp_path / "model.onnx")
    text = space_text("cnn", examine_model(tmp_path / "model.onnx", "openvino", "onnxruntime"), 2)
    (tmp_path / "both.yaml").write_text(text, encoding="utf-8")
    assert "INT8 can serve 5 of its layers and 0 of its products of two activations" in text, "pooling is none"

    space = read_space(tmp_path / "both.yaml")
    names = [preset.name for preset in space.presets]

    asked = next(p for p in space.parameters if p.name == "quantization.elementwise")
    assert "target" not in asked.when, "both engines have the choice"
    for first in ("", "onnxruntime-"):
        assert names.index(f"{first}static-int8-elementwise") < names.index(f"{first}static-int8")
    corrected = next(preset for preset in space.presets if preset.name == "static-int8-elementwise")
    assert corrected.assignment["quantization.bias_correction"] is True
    assert "quantization.elementwise" not in parameters(start(folder, "train.csv", "dev.csv"))


def test_a_model_that_cannot_be_int8_gets_a_space_without_it(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    write_graph(tmp_path / "data" / "model.onnx", nodes, {"x": ["batch", 4]}, {"y": ["batch", 4]})
    for name in ("calib", "valid"):
        values = np.random.default_rng(len(name)).normal(size=(20, 4)).astype(np.float32)
        np.savez(tmp_path / "data" / f"{name}.npz", x=values)

    nothing = {"tokenizer": None, "labels": None}
    experiment = start(tmp_path / "data", "calib.npz", "valid.npz", outputs={"y": "values"}, **nothing)

    assert {a["quantization.scheme"] for a in combinations(experiment.space)} == {"none"}
    assert "No layer of this model can be INT8" in experiment.space.path.read_text()
    assert [p.name for p in experiment.space.presets] in (["float"], ["float", "float-1-thread"])


def test_a_model_with_layers_may_be_balanced_and_says_what_else_there_is(folder: Path, tmp_path: Path) -> None:
    text = start(folder, "train.csv", "dev.csv").space.path.read_text(encoding="utf-8")
    (tmp_path / "more.yaml").write_text(
        re.sub(r"^  # (?=quantization\.|  when:|  choices:)", "  ", text, flags=re.MULTILINE), encoding="utf-8"
    )
    (tmp_path / "space.yaml").write_text(text, encoding="utf-8")
    space, more = (read_space(tmp_path / name) for name in ("space.yaml", "more.yaml"))

    assert {p.name: p.choices for p in space.parameters}["quantization.balance"] == ("off", "auto")
    assert "static-int8-balanced" in [preset.name for preset in space.presets]
    assert {p.name for p in more.parameters} - {p.name for p in space.parameters} == {
        "quantization.bias_correction",
        "quantization.keep_float_unit",
        "quantization.sensitivity",
        "quantization.weight_algorithm",
    }


def test_texts_of_any_length_get_bins_and_nothing_else_does(folder: Path) -> None:
    choices = start(folder, "train.csv", "dev.csv").space.service

    assert choices is not None
    # a choice of the service; optimal 1 is the manifest's max_length; 8 come to the same as 4
    assert choices.sequence_bins == ((32,), (8, 32), (8, 16, 24, 32))
    fixed = examine_model(write_text_model(folder / "fixed.onnx", length=24))
    assert "sequence_bins" not in space_text("fixed", fixed, 2, lengths=[5], max_length=24)
    assert "sequence_bins" not in space_text("arrays", examine_model(folder / "model.onnx"), 2)


def test_a_space_for_another_target_has_its_settings_and_no_others(folder: Path) -> None:
    for target, has, lacks in (
        ("openvino", "compile.performance_hint", {"compile.graph_optimization", "serving.sequence_bins"}),
        ("ascend910b3", "compile.sequence_bins", {"serving.sequence_bins", "serving.intra_op_threads"}),
    ):
        experiment = start(folder, "train.csv", "dev.csv", targets=[target], name=target)
        offered = parameters(experiment)
        assert (experiment.targets, experiment.baseline.target) == ((target,), target)
        assert has in offered
        assert not lacks & offered.keys()
        assert offered["quantization.scheme"].choices == ("none", "static")
