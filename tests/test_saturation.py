"""INT8 costs as little accuracy on a processor that adds 8-bit products in 16 bits as elsewhere (`make test-avx2`)."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.small_graphs import write_graph
from tests.tiny import EXPERIMENT, MANIFEST
from workbench.evaluation.bench import open_bench
from workbench.evaluation.store import Store
from workbench.evaluation.sweep_folders import open_journal
from workbench.inputs.experiment import read_experiment
from workbench.search.sweep import run_sweep

CHANNELS, HALF = 32, 4
SPACE = """
version: 1
target: [onnxruntime, openvino]
parameters:
  quantization.scheme: {choices: [none, SCHEMES]}
  quantization.algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.activation_symmetric: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.weight_granularity: {choices: [tensor, channel], when: {quantization.scheme: [SCHEMES]}}
  quantization.attention_matmul: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.keep_float: {choices: [0], when: {quantization.scheme: [static]}}
  serving.intra_op_threads: {choices: [1]}
presets:
  - {name: here, quantization.scheme: static, quantization.weight_granularity: channel}
  - {name: there, target: openvino, quantization.scheme: static}
"""
DYNAMIC = """  - {name: dynamic, quantization.scheme: dynamic}
forbid:
  - {target: openvino, quantization.scheme: dynamic, reason: runs in float}
"""


def write_toy(root: Path, *, dense: bool) -> Path:
    """One layer: half of its filters add every channel, so that pairs of products are large, half every other one.

    The class is that of the larger half, which the channels decide that only the first half sees.
    """
    w, bias = np.ones((2 * HALF, CHANNELS), np.float32), np.repeat(np.float32([-14.2, 0]), HALF)
    w[HALF:, 1::2] = 0
    spread = () if dense else (4, 4)
    layer = "MatMul" if dense else "Conv"
    nodes = [
        helper.make_node(layer, ["x", "w"] if dense else ["x", "w", "bias"], ["filtered"], name="layer"),
        helper.make_node("Add", ["filtered", "bias"], ["mean"], name="bias")
        if dense
        else helper.make_node("ReduceMean", ["filtered"], ["mean"], name="mean", axes=[2, 3], keepdims=0),
        helper.make_node("Reshape", ["mean", "halves"], ["both"], name="halves"),
        helper.make_node("ReduceMax", ["both"], ["logits"], name="largest", axes=[2], keepdims=0),
    ]
    tensors = {"w": w.T.copy() if dense else w[..., None, None], "bias": bias, "halves": np.array([0, 2, HALF])}
    for folder in ("data", "experiments", "search_spaces"):
        (root / folder).mkdir()
    shapes = {"x": ["batch", CHANNELS, *spread]}, {"logits": ["batch", 2]}
    write_graph(root / "data/model.onnx", nodes, *shapes, **tensors)
    for seed, (split, size) in enumerate({"calibration": 48, "validation": 320, "holdout": 160}.items()):
        random = np.random.default_rng(seed)
        label = random.integers(0, 2, size)
        x = random.uniform(0.85, 1, (size, CHANNELS, *spread)).astype(np.float32)
        decisive = np.where(label == 0, 0.96, 0.8).reshape(-1, *[1] * (x.ndim - 1))
        x[:, 1::2] = decisive + random.uniform(-0.04, 0.04, x[:, 1::2].shape)
        np.savez(root / "data" / f"{split}.npz", x=x, label=label)
    (root / "data" / "manifest.yaml").write_text(MANIFEST, encoding="utf-8")
    space = SPACE.replace("SCHEMES", "static, dynamic") + DYNAMIC if dense else SPACE.replace("SCHEMES", "static")
    (root / "search_spaces" / "tiny.yaml").write_text(space, encoding="utf-8")
    file = root / "experiments" / "toy.yaml"
    experiment = EXPERIMENT.replace("trials: 6, timeout: 5m", "trials: 5, timeout: 60m")
    file.write_text(experiment.replace("{calls: 60,", "{calls: 20,"), encoding="utf-8")
    return file


@pytest.mark.skipif(find_spec("openvino") is None, reason="the extra [openvino] is not installed")
@pytest.mark.parametrize("dense", [False, True], ids=["convolution", "product of matrices"])
def test_a_net_that_lives_on_large_pairs_of_products_loses_nothing_in_int8(dense: bool, tmp_path: Path) -> None:
    """Where they are cut off, half of the classes are wrong."""
    question = read_experiment(write_toy(tmp_path, dense=dense))
    journal = open_journal(question.workspace, question.name, question.identity)
    store = Store(question.workspace / ".workbench" / "store")

    run_sweep(question, open_bench(question, journal, store, lambda candidate, stage: None))

    found = [e for e in journal.evaluations().values() if e.candidate.quantization.scheme != "none"]
    store.close()
    assert {e.candidate.target for e in found} == {"onnxruntime", "openvino"}
    for evaluation in found:
        accuracy = evaluation.measurement.accuracy
        assert accuracy is not None, (evaluation.failure, evaluation.stop)
        assert accuracy.comparison is not None
        assert accuracy.comparison.drop_pp.value <= 1, evaluation.candidate
