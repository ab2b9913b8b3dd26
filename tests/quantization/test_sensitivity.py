"""Ranking layers: one at a time, in one session, against quantizing each layer by hand."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.quantization.networks import CONVOLUTIONS, choose, convolutions, images, saved
from workbench.graph.read import load_graph
from workbench.quantization.lowering.qdq import lower_static
from workbench.quantization.observe import Feeds, observe
from workbench.quantization.recipe import recipe_of
from workbench.quantization.sensitivity import Sensitivity, measure_sensitivity, ranked
from workbench.quantization.statistics import Statistics
from workbench.testing.encoder import PRODUCTS, WEIGHT_LAYERS, ids, run, tiny_encoder
from workbench.values.candidate import EVERYTHING_INT8, Quantization
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

FEEDS = [ids(4, 8), ids(3, 12, seed=1)]


def rank_layers(
    model: Model, statistics: Statistics, recipe: Quantization, feeds: Iterable[Feeds]
) -> tuple[Sensitivity, ...]:
    """Every layer by output SQNR, most sensitive first."""
    return ranked(measure_sensitivity(model, statistics, recipe_of(recipe, statistics.layers), feeds), "sqnr")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Statistics]:
    model = saved(tiny_encoder(), tmp_path_factory.mktemp("encoder"))
    return model, observe(model, FEEDS)


@pytest.mark.parametrize("granularity", ["channel", "tensor"])
def test_the_ranking_is_what_quantizing_each_layer_by_hand_gives(
    encoder: tuple[Model, Statistics], granularity: str
) -> None:
    model, statistics = encoder
    recipe = replace(EVERYTHING_INT8, weight_granularity=granularity)
    expected = [run(onnx.load(model.path), feeds, ["logits"])[0] for feeds in FEEDS]
    sqnr_db = {}
    record = choose(model, statistics, recipe)
    for layer in record.layers:  # alone in INT8
        lowered = lower_static(load_graph(model), replace(record, layers=(layer,)))
        pairs = [(y, run(lowered, feeds, ["logits"])[0]) for y, feeds in zip(expected, FEEDS, strict=True)]
        noise = sum(float(np.square(got.astype(np.float64) - y).sum()) for y, got in pairs)
        sqnr_db[layer.layer] = 10 * np.log10(sum(float(np.square(y).sum()) for y, _ in pairs) / noise)

    ranking = rank_layers(model, statistics, recipe, FEEDS)

    assert {*WEIGHT_LAYERS, *PRODUCTS} == {item.unit for item in ranking}
    assert sorted(item.sqnr_db for item in ranking) == [item.sqnr_db for item in ranking]
    for item in ranking:
        assert item.sqnr_db == pytest.approx(sqnr_db[item.unit], abs=0.3)
        assert item.kl is not None
        assert 0 <= item.kl < 0.1
    with pytest.raises(CalibrationError, match="no samples to rank layers with"):
        rank_layers(model, statistics, recipe, [])


def test_convolutions_of_every_grouping_are_ranked(tmp_path: Path) -> None:
    model, feeds = saved(convolutions(), tmp_path), [images(4)]

    ranking = rank_layers(model, observe(model, feeds), EVERYTHING_INT8, feeds)

    assert {item.unit for item in ranking} == set(CONVOLUTIONS)
    assert all(15 < item.sqnr_db < 60 for item in ranking)
    assert all(item.first_order_db == pytest.approx(item.sqnr_db, abs=20) for item in ranking)


def test_a_group_is_worse_than_its_members_and_the_metrics_agree_on_exactness(
    encoder: tuple[Model, Statistics],
) -> None:
    model, statistics = encoder
    names = list(WEIGHT_LAYERS)
    units = {"everything": names, "first two": names[:2], names[0]: names[:1], names[1]: names[1:2]}

    recipe = recipe_of(EVERYTHING_INT8, statistics.layers)
    found = {item.unit: item for item in measure_sensitivity(model, statistics, recipe, FEEDS, units)}

    assert list(found) == list(units)
    assert found["first two"].layers == tuple(names[:2])
    noise = {name: 10 ** (-item.sqnr_db / 10) for name, item in found.items()}
    assert noise["first two"] == pytest.approx(noise[names[0]] + noise[names[1]], rel=0.7)  # roughly independent
    assert found["everything"].sqnr_db < min(found[name].sqnr_db for name in names[:2])
    for item in found.values():
        assert 1 - item.cosine == pytest.approx(10 ** (-item.sqnr_db / 10) / 2, rel=0.6)
    estimates = [10 ** (-found[name].first_order_db / 10) for name in names[:2]]
    assert 10 ** (-found["first two"].first_order_db / 10) == pytest.approx(sum(estimates))


def test_every_metric_ranks_by_its_own_sense_of_bad_and_kl_needs_logits() -> None:
    def unit(name: str, sqnr: float, cosine: float, kl: float | None, estimate: float) -> Sensitivity:
        return Sensitivity(unit=name, layers=(name,), sqnr_db=sqnr, cosine=cosine, kl=kl, first_order_db=estimate)

    units = [unit("a", 10, 0.9, 0.1, 30), unit("b", 20, 0.99, 0.3, 20), unit("c", 30, 0.8, 0.2, 10)]

    for metric, order in (("sqnr", "abc"), ("cosine", "cab"), ("kl", "bca"), ("first_order", "cba")):
        assert "".join(item.unit for item in ranked(units, metric)) == order
    with pytest.raises(CalibrationError, match="needs an output called 'logits'"):
        ranked([unit("a", 1.0, 0.9, None, 1.0)], "kl")
