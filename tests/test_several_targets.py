"""One sweep, several targets, and INT8 by an AMCT configuration: one space, one Pareto set."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.spaces import space_of
from tests.tiny import write_workspace
from workbench.api.bundle import load_bundle
from workbench.bundle.verify import verify_bundle
from workbench.bundle.write import write_bundle
from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.build import artifact_of, lowered_file
from workbench.evaluation.carried import open_reference
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.front import front_of
from workbench.search.sweep import confirm, run_sweep
from workbench.shipping.handover import bundle_contents
from workbench.space.reader import read_space
from workbench.space.served_bins import with_lengths
from workbench.space.space import build, complete, size
from workbench.values.errors import ConfigError

SHIPPED = Path(__file__).parent.parent / "search_spaces" / "cpu.yaml"
BOTH = """
version: 1
target: [onnxruntime, openvino]
parameters:
  quantization.scheme: {choices: [none, static]}
  quantization.algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.activation_symmetric: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.weight_granularity: {choices: [channel], when: {quantization.scheme: [static]}}
  quantization.attention_matmul: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.keep_float: {choices: [0], when: {quantization.scheme: [static]}}
  compile.graph_optimization: {choices: [all, extended], when: {target: [onnxruntime]}}
  compile.performance_hint: {choices: [latency], when: {target: [openvino]}}
  serving.intra_op_threads: {choices: [1]}
presets:
  - {name: openvino, target: openvino}
  - {name: openvino-int8, target: openvino, quantization.scheme: static}
"""
WITH_CFG = """
version: 1
target: onnxruntime
parameters:
  quantization.scheme: {choices: [none, cfg]}
  quantization.cfg: {choices: [ifmr.cfg, skip.cfg], when: {quantization.scheme: [cfg]}}
  serving.intra_op_threads: {choices: [1]}
"""


def bench_for(file: Path) -> Iterator[tuple[Experiment, Bench]]:
    question = read_experiment(file)
    journal = open_journal(question.workspace, question.name, question.identity)
    store = Store(question.workspace / ".workbench" / "store")
    yield question, open_bench(question, journal, store, lambda candidate, stage: None)
    store.close()


def test_settings_of_one_target_reach_no_other(tmp_path: Path) -> None:
    space = space_of(tmp_path, BOTH)

    on_openvino = complete(space, {"target": "openvino", "quantization.scheme": "static"})
    on_onnxruntime = complete(space, {"quantization.scheme": "static"})

    assert "compile.graph_optimization" not in on_openvino
    assert "compile.performance_hint" not in on_onnxruntime
    assert build(space, on_openvino).target == "openvino"
    assert build(space, on_onnxruntime).target == "onnxruntime"
    assert size(space).candidates == 2 * 2 + 2  # two schemes, and two levels on one of the targets
    shipped = with_lengths(read_space(SHIPPED), lambda: np.array([12, 40, 64]), 64)
    presets = {build(shipped, preset.assignment).target for preset in shipped.presets}
    assert shipped.targets == ("onnxruntime", "openvino") == tuple(sorted(presets))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (", when: {target: [onnxruntime]}", "", "target 'openvino' has no such setting; it belongs to onnxruntime"),
        ("[onnxruntime, openvino]", "openvino", "target.* is not|not a parameter defined above"),
        ("[onnxruntime, openvino]", "[openvino, openvino]", "a list of different ones"),
        ("[onnxruntime, openvino]", "[onnxruntime, tensorrt]", "'tensorrt' is not a target that can be swept"),
    ],
)
def test_a_space_that_mixes_targets_up_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        space_of(tmp_path, BOTH.replace(old, new))


@pytest.mark.skipif(find_spec("openvino") is None, reason="the extra [openvino] is not installed")
def test_one_sweep_measures_both_engines_against_one_baseline(tmp_path: Path) -> None:
    for question, bench in bench_for(write_workspace(tmp_path, space=BOTH)):
        end = run_sweep(question, bench)

        found = bench.journal.evaluations()
        assert end.reason in ("budget", "exhausted")
        assert {e.candidate.target for e in found.values()} == {"onnxruntime", "openvino"}
        assert all(e.status != "failed" for e in found.values()), [e.failure for e in found.values()]
        for evaluation in found.values():
            assert evaluation.toolchain.target == evaluation.candidate.target
        assert question.baseline.target == "onnxruntime"
        float_openvino = next(
            e for e in found.values() if e.candidate.target == "openvino" and e.candidate.quantization.scheme == "none"
        )
        accuracy = float_openvino.measurement.accuracy
        assert accuracy is not None
        assert accuracy.comparison is not None
        assert accuracy.comparison.drop_pp.value == pytest.approx(0.0, abs=0.5)  # the same float model
        front = front_of(question, found)
        confirmed = confirm(question, bench, front)
        assert {e.status for e in confirmed.values()} == {"complete"}


def test_an_amct_configuration_drives_the_engine_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "search_spaces"
    folder.mkdir()
    (folder / "ifmr.cfg").write_text("batch_num: 2\ncommon_config { ifmr_quantize { asymmetric: true } }\n")
    (folder / "skip.cfg").write_text('batch_num: 2\nskip_layers: "dense1"\n')

    for question, bench in bench_for(write_workspace(tmp_path, space=WITH_CFG)):
        everything, skipping = (
            build(question.space, complete(question.space, {"quantization.scheme": "cfg", "quantization.cfg": name}))
            for name in ("ifmr.cfg", "skip.cfg")
        )
        first, _ = artifact_of(question, everything, bench)
        second, _ = artifact_of(question, skipping, bench)

        assert (first.int8_ops, first.float_matmuls_left) == (3, 0)
        assert (second.int8_ops, second.float_matmuls_left) == (2, 1)
        assert everything.id != skipping.id
        assert lowered_file(question, everything, bench).is_file()


def test_a_candidate_holds_the_configuration_itself_which_must_be_readable(tmp_path: Path) -> None:
    files = ("ifmr.cfg", "skip.cfg")
    for content, message in (
        (None, r"ifmr\.cfg: no such file"),
        ("batch_nums: 2\n", r"ifmr\.cfg:1: .*batch_nums.* Did you mean"),
    ):
        (tmp_path / "skip.cfg").write_text("batch_num: 2\n")
        if content is not None:
            (tmp_path / "ifmr.cfg").write_text(content)
        with pytest.raises(ConfigError, match=message):
            space_of(tmp_path, WITH_CFG)
    (tmp_path / "ifmr.cfg").write_text("batch_num: 2\n")
    space = space_of(tmp_path, WITH_CFG)

    (candidate,) = {build(space, {"quantization.scheme": "cfg", "quantization.cfg": name}) for name in files}

    assert candidate.parameters()["quantization.cfg"] != "batch_num: 2\n", "two files, one content, one candidate"


def test_a_configuration_that_does_not_fit_fails_its_candidate_and_not_the_sweep(tmp_path: Path) -> None:
    folder = tmp_path / "search_spaces"
    folder.mkdir()
    (folder / "ifmr.cfg").write_text("batch_num: 100\n")
    (folder / "skip.cfg").write_text('batch_num: 2\nskip_layers: "no_such_layer"\n')

    for question, bench in bench_for(write_workspace(tmp_path, space=WITH_CFG)):
        run_sweep(question, bench)

        found = bench.journal.evaluations().values()
        assert sorted(e.status for e in found) == ["complete", "failed", "failed"]
        messages = " ".join(e.failure.message for e in found if e.failure is not None)
        assert "asks for 100 batches" in messages
        assert "no_such_layer" in messages


@pytest.mark.skipif(find_spec("openvino") is None, reason="the extra [openvino] is not installed")
@pytest.mark.parametrize("rows", [1, 3])
def test_a_model_of_a_fixed_batch_is_confirmed_verified_and_served(tmp_path: Path, rows: int) -> None:
    space = BOTH.replace("presets:", f"  serving.batch: {{choices: [{rows}]}}\npresets:")
    file = write_workspace(tmp_path, space=space)
    path = tmp_path / "data" / "model.onnx"
    proto = onnx.load(path)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = rows
    table = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2))  # as many rows as one of the batches
    proto.graph.node.append(helper.make_node("Constant", [], ["table"], value=table))
    proto.graph.output.append(helper.make_tensor_value_info("table", TensorProto.FLOAT, ["kept", 2]))
    onnx.save(proto, path)

    for question, bench in bench_for(file):
        run_sweep(question, bench)

        found = bench.journal.evaluations()
        confirmed = confirm(question, bench, front_of(question, found))
        assert {e.status for e in confirmed.values()} == {"complete"}, [e.failure for e in confirmed.values()]
        assert all(e.agreement is not None for e in confirmed.values())
        (batch,) = question.dataset.batches("holdout", 7, stop=7)
        exact = open_reference(question.model).run(batch.feeds)["logits"]
        for candidate in [e.candidate for e in found.values()]:
            folder = write_bundle(
                tmp_path / candidate.short_id, bundle_contents(question, candidate, bench, bench.journal)
            )
            verify_bundle(folder)
            with load_bundle(folder) as served:
                answers = served.run(batch.feeds)
            error = np.abs(answers["logits"] - exact).max() / np.abs(exact).max()
            assert error <= (1e-5 if candidate.quantization.scheme == "none" else 0.1)
            assert ("table" in answers) == (rows == 1), "it answers nobody where it counts no samples"
