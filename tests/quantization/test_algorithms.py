"""Records from statistics: which layers, which settings, which scales."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.quantization.networks import choose
from workbench.graph.read import read_model
from workbench.quantization.observe import observe
from workbench.quantization.recipe import ModelRecipe, recipe_of
from workbench.quantization.statistics import Statistics
from workbench.testing.encoder import ids, model_of, value
from workbench.values.candidate import EVERYTHING_INT8
from workbench.values.model import Model


@pytest.fixture(scope="module")
def statistics(encoder: Model) -> Statistics:
    return observe(encoder, [ids(4, 8), ids(4, 12, seed=1)])


# --- recipes per layer ---------------------------------------------------------------------------------------------


def with_activation(recipe: ModelRecipe, layer: str, **settings: object) -> ModelRecipe:
    changed = replace(recipe.layers[layer], activation=replace(recipe.layers[layer].activation, **settings))
    return replace(recipe, layers={**recipe.layers, layer: changed})


def test_layers_that_share_an_input_share_its_scale_only_where_their_settings_agree(
    encoder: Model, statistics: Statistics
) -> None:
    recipe = with_activation(
        recipe_of(EVERYTHING_INT8, statistics.layers), "key", algorithm="percentile", percentile=90.0
    )

    layers = {layer.layer: layer for layer in choose(encoder, statistics, recipe).layers}

    assert layers["query"].activation == layers["value"].activation
    assert layers["key"].activation.tensor == layers["query"].activation.tensor
    assert layers["key"].activation.scale < layers["query"].activation.scale


def test_a_convolutions_output_is_quantized_as_its_reader_asks(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("convolutions") / "model.onnx"
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Conv", ["h", "w2"], ["y"], name="second"),
    ]
    weights = {name: random.normal(size=(3, 3, 2, 2)).astype(np.float32) for name in ("w1", "w2")}
    onnx.save(model_of(nodes, weights, [value("x", ["batch", 3, 5, 5])], [value("y", ["batch", 3, 3, 3])]), path)
    model = read_model(path)
    statistics = observe(model, [{"x": random.normal(size=(4, 3, 5, 5)).astype(np.float32)}])
    recipe = with_activation(recipe_of(EVERYTHING_INT8, statistics.layers), "second", symmetric=True)

    first, second = choose(model, statistics, recipe).layers

    assert first.output == second.activation
    assert (second.activation.zero_point, first.activation.zero_point != 0) == (0, True)
    assert second.output.zero_point == 0
