"""Overflows planted in toy models on the emulated device: none of them is recommended or handed over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.ascend_workspace import QUIET
from tests.emulated_cann import emulated_environment, switched_on
from tests.targets.encoder import Array, model_of, value
from tests.tiny import bench_of
from workbench.api.opening import summary_of
from workbench.evaluation.bench import Bench
from workbench.evaluation.journal import Journal
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.report.text import detail
from workbench.search.pipeline import evaluate
from workbench.shipping.handover import bundle_contents
from workbench.space.space import build, complete
from workbench.values.candidate import Candidate
from workbench.values.errors import MeasureError

COLUMNS, CLASSES = 16, 5
SPACE = """
version: 1
target: ascend910b3
parameters:
  quantization.scheme: {choices: [none, static]}
  quantization.algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.weight_algorithm: {choices: [minmax], when: {quantization.scheme: [static]}}
  quantization.activation_symmetric: {choices: [true], when: {quantization.scheme: [static]}}
  quantization.weight_granularity: {choices: [tensor], when: {quantization.scheme: [static]}}
  quantization.attention_matmul: {choices: [false], when: {quantization.scheme: [static]}}
  quantization.keep_float: {choices: [0], when: {quantization.scheme: [static]}}
  precision.mode: {choices: [force_fp16, must_keep_origin_dtype]}
  serving.batch: {choices: [4]}
forbid:
  - {quantization.scheme: static, precision.mode: must_keep_origin_dtype, reason: ATC refuses it}
"""
EXPERIMENT = """
version: 1
name: planted
about: does it overflow?
model: model.onnx
dataset: manifest.yaml
search_space: space.yaml
calibration: {samples: 8, batch: 4}
objectives: [latency_p50_ms, accuracy]
constraints: {}
budget: {trials: 2, timeout: 5m}
measure: {calls: 20, short_calls: 20, feeds: 2}
smoke_cosine: -1
"""
MANIFEST = """
version: 1
task: classification
files: {calibration: calibration.npz, validation: validation.npz, holdout: holdout.npz}
columns: {label: label}
labels: labels.json
"""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Attributes: nodes: between `h`, of the first product, and `c`, which the second reads. named: what has to be."""

    nodes: tuple[tuple[str, str, tuple[str, ...], str], ...]
    named: str
    scale: float = 1.0
    holdout: float = 1.0  # factor on one sample that is held out
    int8: bool = False


EXP = (("neg", "Neg", ("h",), "g"), ("exp", "Exp", ("g",), "e"))
BACK = ("relu", "Relu", ("b",), "c")
HIDE = (("hide", "Tanh", ("a",), "b"), BACK)
GROW = ("grow", "Mul", ("h", "thousands"), "a")
PLANTED = {
    "one operator": Planted(nodes=(GROW, *HIDE), named="grow"),
    "inside of a fused chain": Planted(
        nodes=(*EXP, ("grow", "Mul", ("e", "million"), "a"), ("shrink", "Mul", ("a", "millionth"), "b"), BACK),
        named="grow",
    ),
    "with what is held out alone": Planted(
        nodes=(("grow", "Mul", ("h", "hundred"), "a"), *HIDE), named="grow", holdout=4000.0
    ),
    "to NaN": Planted(
        nodes=(GROW, ("zero", "Mul", ("a", "nought"), "d"), ("isnan", "IsNaN", ("d",), "n"),
               ("where", "Where", ("n", "nought", "d"), "b"), BACK),
        named="grow",
    ),
    "of a sum of INT8 products": Planted(
        nodes=(("hide", "Tanh", ("h",), "b"), BACK), named="last.quant", scale=1e6, int8=True
    ),
}  # fmt: skip


def model(planted: Planted) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    known: dict[str, Array] = {
        "w1": (random.standard_normal((COLUMNS, COLUMNS)) / 4 * planted.scale).astype(np.float32),
        "w2": random.standard_normal((COLUMNS, CLASSES)).astype(np.float32),
        "thousands": np.array(1e5, np.float32),
        "hundred": np.array(1e2, np.float32),
        "nought": np.array(0.0, np.float32),
        "million": np.array(1e6, np.float32),
        "millionth": np.array(1e-6, np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        *(helper.make_node(kind, list(read), [made], name=name) for name, kind, read, made in planted.nodes),
        helper.make_node("MatMul", ["c", "w2"], ["logits"], name="last"),
    ]
    used = {name for node in nodes for name in node.input}
    return model_of(
        nodes,
        {name: array for name, array in known.items() if name in used},
        [value("x", ["batch", COLUMNS])],
        [value("logits", ["batch", CLASSES])],
    )


def workspace(root: Path, planted: Planted) -> Path:
    root.mkdir(parents=True)
    onnx.save(model(planted), root / "model.onnx")
    for seed, (split, size) in enumerate({"calibration": 8, "validation": 24, "holdout": 24}.items()):
        random = np.random.default_rng(seed)
        x = random.standard_normal((size, COLUMNS)).astype(np.float32)
        if split == "holdout":
            x[-1] *= planted.holdout
        np.savez(root / f"{split}.npz", x=x, label=random.integers(0, CLASSES, size))
    (root / "labels.json").write_text(json.dumps([f"c{i}" for i in range(CLASSES)]), encoding="utf-8")
    for name, text in (("manifest.yaml", MANIFEST), ("space.yaml", SPACE), ("experiment.yaml", EXPERIMENT)):
        (root / name).write_text(text, encoding="utf-8")
    return root / "experiment.yaml"


@pytest.fixture(scope="module", autouse=True)
def _cann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with switched_on(emulated_environment(tmp_path_factory.mktemp("cann"), **QUIET)):
        yield


Swept = tuple[Experiment, Bench, Journal, Candidate]


def swept(root: Path, planted: Planted, settings: Mapping[str, str] | None = None) -> Iterator[Swept]:
    """The float baseline and the candidate with these settings, or of INT8, searched and confirmed."""
    question = read_experiment(workspace(root / "workspace", planted))
    bench = bench_of(question, root / "store", fresh=True)
    chosen = question.baseline
    if settings := settings or ({"quantization.scheme": "static"} if planted.int8 else {}):
        chosen = build(question.space, complete(question.space, settings))
    for candidate in {question.baseline.id: question.baseline, chosen.id: chosen}.values():
        for split in ("validation", "holdout"):
            bench.journal.write(evaluate(question, candidate, bench, split=split, gates=False))
    yield question, bench, bench.journal, chosen
    bench.store.close()


@pytest.mark.parametrize("name", PLANTED)
def test_what_overflows_is_neither_recommended_nor_handed_over_and_the_way_on_is_said(
    tmp_path: Path, name: str
) -> None:
    planted = PLANTED[name]
    for question, bench, journal, chosen in swept(tmp_path, planted):
        confirmed = journal.evaluation(chosen.id, "holdout")
        assert confirmed.failure is None, confirmed.failure
        assert planted.named in confirmed.overflow.partition("compile.keep_dtype")[0]
        assert "compile.keep_dtype: " in confirmed.overflow

        found = summary_of(question, journal).recommended
        assert found is None or found.candidate_id != chosen.id
        with pytest.raises(MeasureError, match=f"cannot be handed over: .*{planted.named}"):
            bundle_contents(question, chosen, bench, journal)
        kept = [usage.entries for usage in bench.store.usage() if usage.kind == "overflow"]
        assert kept == [len({question.baseline.id, chosen.id})], "the answer of the confirmation is used again"
        assert f"Not to be shipped: {confirmed.overflow}" in detail(summary_of(question, journal), chosen.id)


def test_the_way_on_leads_to_a_candidate_that_is_not_refused_and_is_handed_over(tmp_path: Path) -> None:
    for question, bench, journal, chosen in swept(
        tmp_path, PLANTED["one operator"], {"precision.mode": "must_keep_origin_dtype"}
    ):
        confirmed = journal.evaluations("holdout")
        assert "grow" in confirmed[question.baseline.id].overflow
        assert confirmed[chosen.id].overflow == ""
        summary = summary_of(question, journal)
        confirmed_one = next(member.evaluation for member in summary.front if member.id == chosen.id)
        assert summary.refusal(confirmed_one) == ""
        assert "no INT8 candidate was measured" in summary.why_none
        assert bundle_contents(question, chosen, bench, journal).candidate == chosen
