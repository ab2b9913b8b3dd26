"""Balance factors: AMCT's formula to the last digits, sharing between layers, and the choice of a strength."""

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

from tests.quantization.networks import showing
from tests.targets.encoder import WEIGHT_LAYERS, ids, run, tiny_encoder
from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import constants, read_model
from workbench.quantization.balance import (
    balance_factors,
    best_strengths,
    dmq_factors,
    grouped_weight,
    input_channel_maxima,
)
from workbench.quantization.observe import observe
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.quantization.statistics import Statistics

Floats = npt.NDArray[np.float32]


def test_channels_of_zeros_follow_the_largest_of_the_others() -> None:
    activations = np.array([4, 0, 9, 0, 16], np.float32)
    weights = np.array([1, 2, 0, 0, 4], np.float32)

    factors = dmq_factors(activations, weights, 0.5)

    assert factors[0] == 2
    assert factors[4] == 2
    assert factors[3] == 1
    assert factors[1] * weights[1] == max(weights[0] * factors[0], weights[4] * factors[4])
    assert activations[2] / factors[2] == max(activations[0] / factors[0], activations[4] / factors[4])


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Layer(name="l", op_type="MatMul", activation="x", output="y"), (6, 4), (1, 4, 6, 1)),
        (Layer(name="l", op_type="Gemm", activation="x", output="y", transposed=True), (4, 6), (1, 4, 6, 1)),
        (Layer(name="l", op_type="Conv", activation="x", output="y", groups=2), (4, 3, 3, 3), (2, 2, 3, 9)),
        (Layer(name="l", op_type="ConvTranspose", activation="x", output="y", groups=2), (6, 2, 3, 3), (2, 2, 3, 9)),
    ],
)
def test_weights_of_every_layout_come_by_group_output_and_input(
    layer: Layer, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)

    assert grouped_weight(values, layer).shape == expected
    maxima = input_channel_maxima(values, layer)
    assert maxima.shape == (6,)
    assert maxima.max() == np.abs(values).max()
    if layer.op_type == "ConvTranspose":  # input channels are the stored rows
        np.testing.assert_array_equal(maxima, np.abs(values).reshape(6, -1).max(axis=1))
    if layer.op_type == "Conv":  # the second group's weights meet the channels 3 to 5
        np.testing.assert_array_equal(maxima[3:], np.abs(values[2:]).max(axis=(0, 2, 3)))


def recipe_for(layers: tuple[Layer, ...], balance: float | None, **other: float | None) -> ModelRecipe:
    activation = ActivationRecipe(algorithm="minmax", symmetric=False)
    weight = WeightRecipe(algorithm="minmax", per_channel=True)
    return ModelRecipe(
        layers={
            layer.name: LayerRecipe(activation=activation, weight=weight, balance=other.get(layer.name, balance))
            for layer in layers
            if layer.weight
        }
    )


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Statistics, dict[str, Floats]]:
    path = tmp_path_factory.mktemp("balance") / "model.onnx"
    proto = _outliers()
    onnx.save(proto, path)
    known = constants(proto)
    weights = {
        layer.name: numpy_helper.to_array(known[layer.weight]) for layer in quantizable_layers(proto) if layer.weight
    }
    return observe(read_model(path), [ids(8, 6)]), weights


def test_layers_that_share_an_input_share_their_factors(encoder: tuple[Statistics, dict[str, Floats]]) -> None:
    statistics, weights = encoder

    factors = balance_factors(statistics, statistics.layers, weights, recipe_for(statistics.layers, 0.5))

    assert set(factors) == set(WEIGHT_LAYERS)
    assert factors["query"] == factors["key"] == factors["value"] != factors["out"]
    together = np.maximum.reduce([np.abs(weights[name]).max(axis=1) for name in ("query", "key", "value")])
    channels = statistics.tensors["embed_y"].channels
    np.testing.assert_allclose(
        factors["query"], np.sqrt(np.maximum(-channels.minima, channels.maxima) / together), rtol=1e-5
    )


def test_the_chosen_strength_moves_outliers_and_has_a_smaller_real_error(
    encoder: tuple[Statistics, dict[str, Floats]],
) -> None:
    statistics, weights = encoder
    recipe = recipe_for(statistics.layers, 0.5)

    strengths = best_strengths(statistics, statistics.layers, weights, recipe)

    assert strengths["query"] == strengths["key"] == strengths["value"]
    chosen = strengths["query"]
    assert chosen is not None
    assert chosen > 0
    assert _error_of_query(statistics, weights, chosen) < 0.5 * _error_of_query(statistics, weights, None)


def _error_of_query(statistics: Statistics, weights: dict[str, Floats], strength: float | None) -> float:
    """Mean squared output error of the real fake-quantized layer on the embeddings it sees."""
    x = run(showing(_outliers(), "embed_y"), ids(8, 6), ["embed_y"])[0].reshape(-1, 16).astype(np.float64)
    w = weights["query"].astype(np.float64)
    s = np.ones(16)
    if strength is not None:
        factors = balance_factors(statistics, statistics.layers, weights, recipe_for(statistics.layers, strength))
        s = np.array(factors["query"])
    low, high = min(0.0, (x / s).min()), max(0.0, (x / s).max())
    step = (high - low) / 255
    rounded_x = np.rint(x / s / step) * step
    w_step = np.abs(w * s[:, None]).max(axis=0) / 127
    rounded_w = np.rint(w * s[:, None] / w_step) * w_step
    return float(np.mean((x @ w - rounded_x @ rounded_w) ** 2))


def _outliers() -> onnx.ModelProto:
    """Two channels of the embeddings dwarf the others, as in real encoders."""
    proto = tiny_encoder()
    for tensor in proto.graph.initializer:
        if tensor.name == "table":
            table = numpy_helper.to_array(tensor).copy()
            table[:, [2, 9]] *= 40
            tensor.CopyFrom(numpy_helper.from_array(table, "table"))
    return proto


def test_factors_of_tiny_and_huge_channels_stay_numbers_and_warn_of_nothing() -> None:
    tiny, huge = np.float32(1e-44), np.float32(3e38)
    activations = np.array([huge, tiny, huge, 0, 1, 2], np.float32)
    weights = np.array([tiny, huge, 1, tiny, 0, 3], np.float32)

    for strength in (0.0, 0.5, 1.0):
        factors = dmq_factors(activations, weights, strength)

        assert np.isfinite(factors).all()
        assert (factors > 0).all()
