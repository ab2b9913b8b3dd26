"""Search points as AMCT configurations, and what AMCT cannot do."""

from dataclasses import replace
from typing import Any

import pytest

from tests.quantization.amct_files import conv, matmul, pool, product
from workbench.quantization.amct.cfg import parse_cfg
from workbench.quantization.amct.recipe import recipe_of_config
from workbench.quantization.recipe import recipe_of
from workbench.targets.ascend.amct.calibrator import quantization_to_amct_cfg
from workbench.values.candidate import Quantization
from workbench.values.errors import CalibrationError

LAYERS = (matmul("query"), product("scores"), pool("pool"), matmul("fc", op_type="Gemm"))


def point(**changes: Any) -> Quantization:
    settings: dict[str, Any] = {
        "scheme": "static",
        "algorithm": "ifmr",
        "weight_algorithm": "arq",
        "weight_granularity": "tensor",
        "activation_symmetric": False,
        "attention_matmul": False,
        "keep_float": 0,
    }
    return Quantization(**settings | changes)


@pytest.mark.parametrize("algorithm", ["ifmr", "hfmg"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("attention", [True, False])
def test_what_both_know_is_the_same_recipe(algorithm: str, symmetric: bool, attention: bool) -> None:
    quantization = point(algorithm=algorithm, activation_symmetric=symmetric, attention_matmul=attention, balance=0.5)

    text = quantization_to_amct_cfg(quantization, LAYERS, ["fc"], batch_num=3)

    given = recipe_of_config(parse_cfg(text), LAYERS)
    expected = recipe_of(quantization, LAYERS, ["fc"])
    forced = {name: replace(s, activation=replace(s.activation, symmetric=True)) for name, s in expected.layers.items()}
    assert given.layers == {n: forced[n] if n == "scores" else s for n, s in expected.layers.items()}
    assert set(given.float_layers) == {"fc", "pool"} | (set() if attention else {"scores"})
    assert given.source["batch_num"] == 3
    assert "dst_type" not in text


@pytest.mark.parametrize(
    ("operators", "names"),
    [("all", {"conv", "query", "scores", "fc"}), ("matmul", {"query", "scores", "fc"}), ("conv", {"conv"})],
)
def test_one_kind_of_operators_alone_becomes_int8_by_both(operators: str, names: set[str]) -> None:
    layers = (conv("conv"), *LAYERS)
    quantization = point(operators=operators, attention_matmul=True)

    given = recipe_of_config(parse_cfg(quantization_to_amct_cfg(quantization, layers)), layers)

    assert set(recipe_of(quantization, layers).layers) == names == set(given.layers)
    assert ("operators" in quantization.settings()) == (operators != "all")


def test_a_percentile_is_ifmr_with_a_search_of_one_per_cent() -> None:
    text = quantization_to_amct_cfg(point(algorithm="percentile", percentile=99.99), LAYERS)

    activation = recipe_of_config(parse_cfg(text), LAYERS).layers["query"].activation
    assert (activation.max_percentile, activation.min_percentile) == (0.9999, 0.9999)
    assert (activation.search_start, activation.search_end) == (1.0, 1.01)


@pytest.mark.parametrize(("granularity", "channels"), [("channel", True), ("tensor", False)])
def test_convolutions_have_a_scale_per_channel_where_it_is_asked_for(granularity: str, channels: bool) -> None:
    layers = (conv("conv1"),)

    text = quantization_to_amct_cfg(point(weight_granularity=granularity), layers)

    weight = recipe_of_config(parse_cfg(text), layers).layers["conv1"].weight
    assert weight is not None
    assert weight.per_channel == channels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "mse"}, "find ranges by 'mse'.*ifmr, hfmg or percentile"),
        ({"weight_granularity": "channel"}, "give MatMul layers such as 'query' a scale per channel"),
        ({"weight_algorithm": "mse"}, "find weight scales by 'mse'"),
        ({"bias_correction": True}, "correct biases"),
        ({"balance": "auto"}, "search a strength"),
        ({"balance": 0.1}, "balance with strength 0.1"),
    ],
)
def test_what_amct_cannot_do_says_what_to_set_instead(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CalibrationError, match=rf"AMCT cannot {message}.*or let the workbench calibrate\."):
        quantization_to_amct_cfg(point(**changes), LAYERS)
