"""Balance factors: AMCT's formula to the last digits, and sharing between layers."""

from pathlib import Path

import numpy as np
from onnx import numpy_helper

from tests.quantization.networks import saved
from workbench.graph.read import constants
from workbench.quantization.balance import balance_factors, dmq_factors
from workbench.quantization.observe import observe
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.testing.encoder import WEIGHT_LAYERS, ids, tiny_encoder


def test_channels_of_zeros_follow_the_largest_of_the_others() -> None:
    activations = np.array([4, 0, 9, 0, 16], np.float32)
    weights = np.array([1, 2, 0, 0, 4], np.float32)

    factors = dmq_factors(activations, weights, 0.5)

    assert (factors[0], factors[3], factors[4]) == (2, 1, 2)
    assert factors[1] * weights[1] == max(weights[0] * factors[0], weights[4] * factors[4])
    assert activations[2] / factors[2] == max(activations[0] / factors[0], activations[4] / factors[4])


def test_layers_that_share_an_input_share_their_factors(tmp_path: Path) -> None:
    proto = tiny_encoder()
    statistics, known = observe(saved(proto, tmp_path), [ids(8, 6)]), constants(proto)
    weights = {each.name: numpy_helper.to_array(known[each.weight]) for each in statistics.layers if each.weight}
    settings = LayerRecipe(
        activation=ActivationRecipe(algorithm="minmax", symmetric=False),
        weight=WeightRecipe(algorithm="minmax", per_channel=True),
        balance=0.5,
    )

    factors = balance_factors(
        statistics, statistics.layers, weights, ModelRecipe(layers=dict.fromkeys(weights, settings))
    )

    assert set(factors) == set(WEIGHT_LAYERS)
    assert factors["query"] == factors["key"] == factors["value"] != factors["out"]
    together = np.maximum.reduce([np.abs(weights[name]).max(axis=1) for name in ("query", "key", "value")])
    channels = statistics.tensors["embed_y"].channels
    largest = np.maximum(-channels.minima, channels.maxima)
    np.testing.assert_allclose(factors["query"], np.sqrt(largest / together), rtol=1e-5)


def test_factors_of_tiny_and_huge_channels_stay_numbers_and_warn_of_nothing() -> None:
    tiny, huge = np.float32(1e-44), np.float32(3e38)
    activations = np.array([huge, tiny, huge, 0, 1, 2], np.float32)
    weights = np.array([tiny, huge, 1, tiny, 0, 3], np.float32)

    for strength in (0.0, 0.5, 1.0):
        factors = dmq_factors(activations, weights, strength)
        assert np.isfinite(factors).all()
        assert (factors > 0).all()
