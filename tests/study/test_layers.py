"""Which layers to keep in float: on the tiny classifier with a real sweep's machinery, and on a tiny encoder."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from tests.tiny import SPACE, bench_of, write_workspace
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.quantization.amct.cfg import parse_cfg
from workbench.report.layers import sensitivity_html
from workbench.search.pipeline import evaluate
from workbench.study.layers import LayerStudy, plain_recipe, study_layers, write_recipe
from workbench.testing.encoder import CLASSES, VOCABULARY, run, save, tiny_encoder
from workbench.values.candidate import candidate_from_json

MANIFEST = """
version: 1
task: classification
files: {calibration: calibration.npz, validation: validation.npz}
columns: {label: label}
"""
EXPERIMENT = """
version: 1
name: encoder
model: ../data/model.onnx
dataset: ../data/manifest.yaml
search_space: ../search_spaces/encoder.yaml
calibration: {samples: 24, batch: 8}
objectives: [latency_p50_ms, accuracy]
budget: {trials: 2, timeout: 1h}
measure: {calls: 60, short_calls: 20, feeds: 8}
"""


def opened(file: Path) -> tuple[Experiment, Bench]:
    question = read_experiment(file)
    return question, bench_of(question, fresh=True)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Experiment, Bench]]:
    question, bench = opened(write_workspace(tmp_path_factory.mktemp("tiny")))
    yield question, bench
    bench.store.close()


@pytest.fixture(scope="module")
def study(tiny: tuple[Experiment, Bench]) -> LayerStudy:
    return study_layers(*tiny, plain_recipe(), unit="layer", counts=(0, 1, 2, 8))


@pytest.fixture(scope="module")
def encoder_study(tmp_path_factory: pytest.TempPathFactory) -> LayerStudy:
    root = tmp_path_factory.mktemp("encoder")
    for name in ("data", "experiments", "search_spaces"):
        (root / name).mkdir()
    proto = tiny_encoder()
    save(proto, root / "data" / "model.onnx")
    for seed, (split, size) in enumerate({"calibration": 24, "validation": 64}.items()):
        ids = np.random.default_rng(seed).integers(0, VOCABULARY, (size, 12))
        label = run(proto, {"ids": ids})[0].argmax(axis=1).astype(np.int64)
        assert label.max() < CLASSES
        np.savez(root / "data" / f"{split}.npz", ids=ids, label=label)
    (root / "data" / "manifest.yaml").write_text(MANIFEST, encoding="utf-8")
    (root / "search_spaces" / "encoder.yaml").write_text(SPACE, encoding="utf-8")
    file = root / "experiments" / "encoder.yaml"
    file.write_text(EXPERIMENT, encoding="utf-8")
    question, bench = opened(file)
    try:
        return study_layers(question, bench, plain_recipe(), counts=())
    finally:
        bench.store.close()


def test_every_layer_is_ranked_with_what_it_buys_and_what_it_costs(study: LayerStudy) -> None:
    assert {unit.sensitivity.unit for unit in study.layers} == {"dense0", "dense1", "dense2"}
    decibels = [unit.sensitivity.sqnr_db for unit in study.layers]
    assert decibels == sorted(decibels)
    assert sum(unit.damage_share for unit in study.layers) == pytest.approx(1.0)
    shares = [unit.damage_share for unit in study.layers]
    assert shares == sorted(shares, reverse=True)
    macs = {unit.sensitivity.unit: unit.macs_share for unit in study.layers}
    assert macs["dense1"] == pytest.approx(48 * 48 / (16 * 48 + 48 * 48 + 48 * 4))
    assert all(unit.float_us > 0 and unit.int8_us > 0 for unit in study.layers)
    assert all(
        unit.call_share == pytest.approx((unit.float_us - unit.int8_us) / study.prices.call_us) for unit in study.layers
    )


def test_the_steps_keep_the_most_sensitive_layers_and_measures_every_step(study: LayerStudy) -> None:
    ranking = [unit.sensitivity.unit for unit in study.layers]

    assert [step.kept for step in study.steps] == [0, 1, 2]  # the model has no eight layers
    assert [list(step.units) for step in study.steps] == [[], ranking[:1], ranking[:2]]
    for step in study.steps:
        assert step.evaluation.status == "complete"
        assert step.evaluation.measurement.accuracy is not None
        assert step.evaluation.measurement.latency is not None
        assert step.evaluation.candidate.quantization.keep_float == step.kept


def test_the_recipe_is_a_candidate_that_runs_and_a_configuration_that_skips_the_same_layers(
    tiny: tuple[Experiment, Bench], study: LayerStudy, tmp_path: Path
) -> None:
    question, bench = tiny
    chosen = study.chosen
    assert chosen is not None, "the tiny classifier keeps its accuracy in INT8"
    assert study.to_json()["chosen"] == chosen.kept
    assert replace(study, steps=tuple(replace(step, feasible=False) for step in study.steps)).chosen is None

    said = write_recipe(study, question, bench, tmp_path)

    candidate = candidate_from_json(json.loads((tmp_path / "candidate.json").read_text(encoding="utf-8")))
    assert candidate == chosen.evaluation.candidate
    assert evaluate(question, candidate, bench, gates=False).status == "complete"
    config = parse_cfg((tmp_path / "amct.cfg").read_text(encoding="utf-8"), file="amct.cfg")
    assert set(config.skip_layers) == set(chosen.units)
    assert str(tmp_path / "candidate.json") in said[0]


def test_layers_whose_int8_gains_no_time_on_the_device_are_a_candidate_in_float(
    tiny: tuple[Experiment, Bench], study: LayerStudy, tmp_path: Path
) -> None:
    question, bench = tiny
    slow, *rest = study.groups
    shares = (replace(slow, call_share=-0.01), *(replace(unit, call_share=0.02) for unit in rest))
    priced = replace(study, groups=shares, prices=replace(study.prices, by="device", level="modelled"))

    said = write_recipe(priced, question, bench, tmp_path)

    assert any("INT8 gains no time in 1 of 3 layers (modelled" in line for line in said)
    config = parse_cfg((tmp_path / "priced.cfg").read_text(encoding="utf-8"), file="priced.cfg")
    assert tuple(config.skip_layers) == slow.sensitivity.layers
    candidate = candidate_from_json(json.loads((tmp_path / "priced.json").read_text(encoding="utf-8")))
    assert evaluate(question, candidate, bench, gates=False).status == "complete"
    cases: tuple[tuple[Literal["host", "device"], float], ...] = (("host", -0.01), ("device", 0.02), ("device", -0.01))
    for number, (by, share) in enumerate(cases):  # of prices of the host, or where all or none gain, nothing is written
        groups, to = tuple(replace(unit, call_share=share) for unit in study.groups), tmp_path / str(number)
        said = write_recipe(replace(study, groups=groups, prices=replace(study.prices, by=by)), question, bench, to)
        assert not (to / "priced.json").exists()
        assert any("the float file is the faster one" in line for line in said) is (by == "device" and share < 0)


def test_every_group_of_an_encoder_is_ranked_and_its_costs_are_those_of_its_layers(encoder_study: LayerStudy) -> None:
    groups = {unit.sensitivity.unit: unit for unit in encoder_study.groups}
    layers = {unit.sensitivity.unit: unit for unit in encoder_study.layers}

    assert set(groups) == {
        *(f"block 0 / {part}" for part in ("qkv", "scores", "context", "attention output", "FFN in", "FFN out")),
        "classifier",
    }
    assert groups["block 0 / qkv"].sensitivity.layers == ("query", "key", "value")
    for group in groups.values():
        members = [layers[name] for name in group.sensitivity.layers]
        assert group.float_us == pytest.approx(sum(member.float_us for member in members))
        assert group.macs_share == pytest.approx(sum(member.macs_share for member in members))
    assert sum(group.macs_share for group in groups.values()) == pytest.approx(1.0)
    prices = encoder_study.prices
    assert (prices.by, prices.level, prices.batch, prices.length) == ("host", "measured", 1, 12)
    assert encoder_study.steps == ()
    assert encoder_study.chosen is None


def test_the_page_shows_both_sides_of_every_unit_and_loads_nothing(
    encoder_study: LayerStudy, study: LayerStudy
) -> None:
    encoder, measured = sensitivity_html(encoder_study), sensitivity_html(study)

    assert all(unit.sensitivity.unit in encoder for unit in (*encoder_study.groups, *encoder_study.layers))
    assert ("speed-up over float" in measured, "speed-up over float" in encoder) == (True, False)
    assert "src=" not in measured
