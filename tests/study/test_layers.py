"""Which layers to keep in float: on the tiny classifier with a real sweep's machinery."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from tests.tiny import bench_of, write_workspace
from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.quantization.amct.cfg import parse_cfg
from workbench.report.layers import sensitivity_html
from workbench.search.pipeline import evaluate
from workbench.study.layers import LayerStudy, plain_recipe, study_layers, write_recipe
from workbench.values.candidate import candidate_from_json


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Experiment, Bench]]:
    question = read_experiment(write_workspace(tmp_path_factory.mktemp("tiny")))
    bench = bench_of(question, fresh=True)
    yield question, bench
    bench.store.close()


@pytest.fixture(scope="module")
def study(tiny: tuple[Experiment, Bench]) -> LayerStudy:
    return study_layers(*tiny, plain_recipe(), unit="layer", counts=(0, 1, 2, 8))


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
    assert (study.prices.by, study.prices.level) == ("host", "measured")
    layers = {unit.sensitivity.unit: unit for unit in study.layers}
    for group in study.groups:
        assert group.float_us == pytest.approx(sum(layers[name].float_us for name in group.sensitivity.layers))
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
    assert set(config.message.skip_layers) == set(chosen.units)
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
    assert tuple(config.message.skip_layers) == slow.sensitivity.layers
    candidate = candidate_from_json(json.loads((tmp_path / "priced.json").read_text(encoding="utf-8")))
    assert evaluate(question, candidate, bench, gates=False).status == "complete"
    cases: tuple[tuple[Literal["host", "device"], float], ...] = (("host", -0.01), ("device", 0.02), ("device", -0.01))
    for number, (by, share) in enumerate(cases):  # of prices of the host, or where all or none gain, nothing is written
        groups, to = tuple(replace(unit, call_share=share) for unit in study.groups), tmp_path / str(number)
        said = write_recipe(replace(study, groups=groups, prices=replace(study.prices, by=by)), question, bench, to)
        assert not (to / "priced.json").exists()
        assert any("the float file is the faster one" in line for line in said) is (by == "device" and share < 0)


def test_the_page_shows_both_sides_of_every_unit_and_loads_nothing(study: LayerStudy) -> None:
    ranked, measured = sensitivity_html(replace(study, steps=())), sensitivity_html(study)

    assert replace(study, steps=()).chosen is None
    assert all(unit.sensitivity.unit in ranked for unit in (*study.groups, *study.layers))
    assert ("speed-up over float" in measured, "speed-up over float" in ranked) == (True, False)
    assert "src=" not in measured
