"""A model that ignores its mask is found on the float baseline, before other bins are measured as the same model; so
are rows that know of each other."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.binned_texts import SPACE, write_binned_workspace
from tests.emulated_cann import emulated_environment, switched_on
from tests.targets.masked_encoder import masked_encoder
from tests.tiny import bench_of
from workbench.evaluation.batch_invariance import check_batch_invariance
from workbench.evaluation.bench import Bench
from workbench.inputs.dataset import read_manifest
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.pipeline import evaluate
from workbench.testing.encoder import save
from workbench.values.errors import ConfigError
from workbench.values.model import Model, TensorSpec

ASCEND = """
version: 1
target: ascend910b3
parameters:
  quantization.scheme: {choices: [none]}
  precision.mode: {choices: [force_fp16]}
  compile.sequence_bins: {choices: ["48", "16 48"]}
"""
Opened = tuple[Experiment, Bench]
Open = Callable[..., Opened]


def mean_over_all_positions() -> onnx.ModelProto:
    """The sound encoder, but its classifier reads the mean over all positions, padding included."""
    proto = masked_encoder()
    pool = next(node for node in proto.graph.node if node.name == "pool")
    pool.CopyFrom(helper.make_node("ReduceMean", [pool.input[0]], list(pool.output), name="pool", axes=[1], keepdims=0))
    return proto


def barely_hidden() -> onnx.ModelProto:
    """Padding is hidden by -9 instead of -10000: each position still weighs about 1e-4 of one that counts."""
    proto = masked_encoder()
    far = next(constant for constant in proto.graph.initializer if constant.name == "far")
    far.CopyFrom(numpy_helper.from_array(np.array(-9, np.float32), "far"))
    return proto


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    benches = []

    def open_with(proto: onnx.ModelProto, space: str = SPACE, bins: str = "[48]") -> Opened:
        file = write_binned_workspace(tmp_path, "classification")
        save(proto, tmp_path / "data" / "model.onnx")
        (tmp_path / "search_spaces" / "bins.yaml").write_text(space, encoding="utf-8")
        manifest = tmp_path / "data" / "manifest.yaml"
        manifest.write_text(manifest.read_text(encoding="utf-8").replace("bins: [48]", f"bins: {bins}"))
        question = read_experiment(file)
        benches.append(bench_of(question, fresh=True))
        return question, benches[-1]

    yield open_with
    for bench in benches:
        bench.store.close()


def test_a_mean_over_padding_stops_before_anything_is_scored(opened: Open) -> None:
    question, bench = opened(mean_over_all_positions())

    with pytest.raises(ConfigError, match="of validation gets another answer alone at length") as caught:
        evaluate(question, question.baseline, bench)

    said = str(caught.value)
    assert said.startswith(f"{question.model.path}: attention_mask: row ")
    assert "'logits' moves by 0." in said
    assert "though input 'attention_mask' says what is padding" in said
    assert "Texts run at 8 24 48" in said
    assert "export again; or offer one length only: sequence_bins: {choices: [48]} in bins.yaml" in said


def test_a_sound_model_passes_without_a_word(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    question, bench = opened(masked_encoder())

    assert evaluate(question, question.baseline, bench).status == "complete"
    assert not [r for r in caplog.records if r.name == "workbench.evaluation.batch_invariance"]


def test_a_model_that_lets_a_little_through_is_warned_of(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    question, bench = opened(barely_hidden())

    with caplog.at_level(logging.WARNING):
        assert evaluate(question, question.baseline, bench).status == "complete"

    (said,) = [r.getMessage() for r in caplog.records if r.name == "workbench.evaluation.batch_invariance"]
    assert "Candidates with other lengths or batches differ by as much" in said


@pytest.mark.parametrize("sound", [True, False])
def test_a_device_that_compiled_the_longest_length_alone_hides_nothing(
    opened: Open, tmp_path: Path, sound: bool
) -> None:
    with switched_on(emulated_environment(tmp_path / "cann")):
        question, bench = opened(masked_encoder() if sound else mean_over_all_positions(), ASCEND)
        assert question.baseline.sequence_bins == (48,)

        if sound:
            assert evaluate(question, question.baseline, bench).status == "complete"
        else:
            with pytest.raises(ConfigError, match="Texts run at 16 48"):
                evaluate(question, question.baseline, bench)


# --- samples that are no texts --------------------------------------------------------------------------------------

SPECS = (TensorSpec(name="x", dtype="float32", shape=("batch", "frames")),)
MODEL = Model(path=Path("m.onnx"), sha256="0", size_bytes=1, opset=17, inputs=SPECS, outputs=())


def question(folder: Path, *, axes: str = "", batches: tuple[int, ...] = (1,), search: bool = False) -> Any:
    x = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32) + 1
    np.savez(folder / "d.npz", x=x, **{"x.sizes": np.array([2, 5, 3, 4, 5, 2])})
    files = "{calibration: d.npz, validation: d.npz, holdout: d.npz}"
    (folder / "m.yaml").write_text(f"version: 1\ntask: tensors\nfiles: {files}\n{axes}")
    parameters = [SimpleNamespace(name="serving.batch", choices=batches)]
    parameters += [SimpleNamespace(name="serving.sequence_bins", choices=("5", "8"))] if search else []
    compiled = SimpleNamespace(compiles_shapes=False)
    return SimpleNamespace(
        dataset=read_manifest(folder / "m.yaml", MODEL),
        model=MODEL,
        space=SimpleNamespace(parameters=parameters, path=folder / "space.yaml"),
        baseline=SimpleNamespace(compile=compiled),
    )


def check(experiment: Any, function: Any) -> None:
    bench: Any = None
    session: Any = SimpleNamespace(run=lambda feeds: {"y": function(feeds["x"])})
    check_batch_invariance(experiment, bench, session, "validation")


def test_padding_that_moves_the_answer_is_said_and_refused_where_it_is_searched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    axes = "axes: {frames: {bins: [2, 5]}}\n"
    check(question(tmp_path, axes=axes, search=True), lambda x: x * 2)  # each frame by itself
    check(question(tmp_path, axes=axes, search=True), lambda x: x.sum(axis=1))  # zeros add nothing
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        check(question(tmp_path, axes=axes), lambda x: x.mean(axis=1))
    assert "with the padding of a larger one beside it" in caplog.text
    with pytest.raises(ConfigError, match="candidates with other bins are other models"):
        check(question(tmp_path, axes=axes, search=True), lambda x: x.mean(axis=1))


def test_rows_that_change_each_other_allow_batch_one_only(tmp_path: Path) -> None:
    check(question(tmp_path, batches=(1, 4)), lambda x: x - x.mean(axis=1, keepdims=True))
    check(question(tmp_path), lambda x: x - x.mean(axis=0))
    with pytest.raises(ConfigError, match="rows of a call are not independent"):
        check(question(tmp_path, batches=(1, 4), axes="axes: {frames: {bins: [5]}}\n"), lambda x: x - x.mean(axis=0))
