"""What a plan says before any work: limits, time, memory, and what targets refuse."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.search.sweeping import silent
from tests.small_graphs import graph_of, weight
from tests.tiny import EXPERIMENT, FEATURES, SPACE, write_workspace
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.journal import Journal
from workbench.evaluation.store import Store
from workbench.inputs.dataset import read_manifest
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.pipeline import evaluate
from workbench.search.plan import check_memory, make_plan, memory_of
from workbench.search.refusals import candidate_errors, check_targets, rejection, too_fine
from workbench.space.space import build, complete
from workbench.targets import open_target
from workbench.values.errors import ConfigError
from workbench.values.objectives import Constraint
from workbench.values.significance import compare


def test_a_limit_finer_than_one_sample_is_warned_about_with_the_samples_it_needs(
    tmp_path: Path, warm_store: Path
) -> None:
    text = EXPERIMENT.replace("accuracy_loss_pp: 2.0", "accuracy_loss_pp: 0.01")
    fine = read_experiment(write_workspace(tmp_path, experiment=text))
    bench = open_bench(fine, Journal(root=tmp_path), Store(warm_store), silent)

    first, *_ = make_plan(fine, bench, probe=lambda: 1.0).warnings

    size = fine.dataset.size("validation")
    assert f"finer than one sample of validation: of {size} samples one is {100 / size:.3g} pp. 10000 samples" in first


def test_entities_are_counted_where_they_weigh(question: Experiment, tmp_path: Path) -> None:
    tags = np.array([[1, 2, 0, 1], [0, 0, 0, 0], [1, 0, -100, -100]])
    np.savez(tmp_path / "x.npz", input_ids=np.ones((3, 4), np.int64), labels=tags)
    (tmp_path / "tags.json").write_text('["O", "B-A", "I-A"]')
    files = "files: {calibration: x.npz, validation: x.npz, holdout: x.npz}"
    (tmp_path / "ner.yaml").write_text(f"version: 1\ntask: ner\nlabels: tags.json\n{files}\n")
    ner = replace(question, dataset=read_manifest(tmp_path / "ner.yaml"))

    found = too_fine(replace(ner, constraints=(Constraint(metric="accuracy_loss_pp", limit=33.0),)))

    assert len(found) == 2
    assert "finer than one entity of validation: of 3 entities one is 33.3 pp" in found[0]
    assert too_fine(replace(ner, constraints=(Constraint(metric="accuracy_loss_pp", limit=34.0),))) == []


def test_a_rejection_shows_its_interval_and_whether_it_is_certain() -> None:
    right = np.ones(1000, dtype=bool)
    few, many = np.arange(1000) >= 10, np.arange(1000) >= 100

    unsure = rejection("accuracy_loss_pp", compare(right, few), 0.9, right, few)
    sure = rejection("accuracy_loss_pp", compare(right, many), 0.5, right, many)

    assert unsure.startswith("accuracy_loss_pp 1.00 pp [0.5")
    assert unsure.endswith("limit 0.9: not certain: 10 of 1000 samples worse, 0 better")
    assert sure.endswith("], limit 0.5: certain")


def test_a_sweep_that_would_swap_is_refused_before_any_work(tmp_path: Path) -> None:
    experiment = read_experiment(write_workspace(tmp_path))
    needed = memory_of(experiment)

    check_memory(experiment, needed)
    with pytest.raises(ConfigError, match="before the machine swaps") as refused:
        check_memory(experiment, needed - 1)
    assert "service.workers" in (refused.value.hint or "")
    large = SPACE.replace("  serving.intra", "  serving.batch: {choices: [1, 65536]}\n  serving.intra")
    many = memory_of(read_experiment(write_workspace(tmp_path / "many", space=large)))
    assert many - needed == 3 * (65_536 - 8) * FEATURES * 4, "calls that would fill the memory count"


BOTH_ENGINES = """
version: 1
target: [onnxruntime, openvino]
parameters:
  quantization.scheme: {choices: [none]}
  serving.intra_op_threads: {choices: [1]}
"""
STATIC = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, static]}
  quantization.algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.activation_symmetric: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.weight_granularity: {choices: [tensor], when: {quantization.scheme: [static]}}
  quantization.attention_matmul: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.operators: {choices: [matmul, all], when: {quantization.scheme: [static]}}
  quantization.keep_float: {choices: [0, 3], when: {quantization.scheme: [static]}}
"""
MANIFEST = """
version: 1
task: tensors
files: {calibration: data.npz, validation: data.npz}
outputs: {y: values}
"""


def bench_of(root: Path, space: str, proto: onnx.ModelProto | None = None) -> tuple[Experiment, Bench]:
    """The tiny workspace, or one of another model of the float input `x` and the output `y`."""
    file = write_workspace(root, space=space)
    if proto is not None:
        onnx.save(proto, root / "data" / "model.onnx")
        shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim[1:]]
        x = np.random.default_rng(0).normal(size=(64, *shape)).astype(np.float32)
        np.savez(root / "data" / "data.npz", x=x)
        (root / "data" / "manifest.yaml").write_text(MANIFEST, encoding="utf-8")
        file.write_text(file.read_text().replace("constraints: {accuracy_loss_pp: 2.0}\n", ""), encoding="utf-8")
    experiment = read_experiment(file)
    return experiment, open_bench(experiment, Journal(root=root), Store(root / "store"), silent)


def test_what_one_target_of_a_space_cannot_run_ends_the_plan_by_its_name(tmp_path: Path) -> None:
    determinant = graph_of([helper.make_node("Det", ["x"], ["y"], name="area")], {}, ["n", 3, 3])
    experiment, bench = bench_of(tmp_path, BOTH_ENGINES, determinant)

    with pytest.raises(ConfigError, match="OpenVINO") as refused:
        make_plan(experiment, bench, probe=lambda: pytest.fail("the float model is not asked for"))

    assert "Det" in refused.value.rule
    assert refused.value.file == experiment.model.path


def test_a_kind_of_int8_that_leaves_nothing_in_int8_is_said_and_refused_at_its_check(tmp_path: Path) -> None:
    attention = graph_of(
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["x", "t"], ["scores"], name="scores"),
            helper.make_node("Unsqueeze", ["scores", "axis"], ["image"]),
            helper.make_node("Conv", ["image", "w"], ["y"], name="conv"),
        ],
        {"w": weight(4, 1, 3, 3), "axis": np.array([1])},
        ["n", 8, 6],
    )
    experiment, bench = bench_of(tmp_path, STATIC, attention)

    words = check_targets(experiment, bench)
    first = build(experiment.space, complete(experiment.space, {"quantization.scheme": "static"}))
    evaluation = evaluate(experiment, first, bench)

    assert len(words) == 2, words
    assert "quantization.operators matmul" in words[0]
    assert "quantization.keep_float 0 or 3 will be refused" in words[0]
    assert "only products of two activations could be INT8" in words[0]
    assert "Set it to true" in words[0]
    assert "it keeps every layer in float that could be INT8 (1)" in words[1]
    assert evaluation.stage_reached == "check"
    assert "only products of two activations" in evaluation.failure.message
    wanted = replace(first, quantization=replace(first.quantization, attention_matmul=True))
    assert candidate_errors(open_target("onnxruntime"), experiment.model, wanted) == []


def test_a_space_of_which_no_int8_is_left_says_so(tmp_path: Path) -> None:
    experiment, bench = bench_of(tmp_path, STATIC.replace("[0, 3]", "[3, 4]"))

    words = check_targets(experiment, bench)

    assert words[-1] == "no candidate of this space is INT8: what is left are float ones."


def test_layers_that_stay_inside_an_if_are_counted_and_said_by_the_plan(tmp_path: Path) -> None:
    y = helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)
    branches = {
        name: helper.make_graph([helper.make_node("MatMul", ["first", kept], ["out"])], name, [], [y])
        for name, kept in (("then_branch", "v"), ("else_branch", "w"))
    }
    decided = graph_of(
        [
            helper.make_node("MatMul", ["x", "u"], ["first"], name="first"),
            helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
            helper.make_node("Greater", ["top", "zero"], ["yes"]),
            helper.make_node("If", ["yes"], ["y"], name="by_value", **branches),
        ],
        {"u": weight(6, 6), "v": weight(6, 4), "w": weight(6, 4), "zero": np.array(0, np.float32)},
        ["n", 6],
    )
    experiment, bench = bench_of(tmp_path, STATIC.replace("[0, 3]", "[0]"), decided)

    *_, last = make_plan(experiment, bench, probe=lambda: 1.0).warnings

    assert last.startswith("2 of 3 layers lie inside If 'by_value' and stay in float")
