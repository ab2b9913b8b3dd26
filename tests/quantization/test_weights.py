"""Weight scales: the three rules, layouts of every operator, and degenerate channels."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import numpy_helper

from tests.quantization.networks import saved
from workbench.graph.layers import Layer
from workbench.graph.read import constants
from workbench.quantization.balance import balance_factors, dmq_factors
from workbench.quantization.observe import observe
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.quantization.weights import rounded_weight, scales_along, weight_rows, weight_scale
from workbench.testing.encoder import WEIGHT_LAYERS, ids, tiny_encoder

Floats = npt.NDArray[np.float32]
matrices = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 20), st.integers(1, 5)), elements=st.floats(-100, 100, width=32)
)


def layer_of(shape: tuple[int, ...], op_type: str = "MatMul", groups: int = 1, transposed: bool = False) -> Layer:
    axis = {"Conv": 0, "ConvTranspose": 1}.get(op_type, 0 if transposed else 1)
    return Layer(
        name="fc",
        op_type=op_type,
        activation="x",
        output="y",
        weight="w",
        weight_shape=shape,
        output_axis=axis,
        groups=groups,
        transposed=transposed,
    )


def recipe(algorithm: str, *, per_channel: bool = False) -> WeightRecipe:
    return WeightRecipe(algorithm=algorithm, per_channel=per_channel)


def test_minmax_uses_127_and_arq_the_side_that_dominates() -> None:
    values = np.array([[-2.0, 1.0], [0.5, -0.5]], np.float32)
    layer = layer_of(values.shape)

    assert weight_scale(values, recipe("minmax"), layer).scales == (float(np.float32(2 / 127)),)
    assert weight_scale(values, recipe("arq"), layer).scales == (2 / 128,)
    assert weight_scale(values, recipe("arq", per_channel=True), layer).scales == (2 / 128, float(np.float32(1 / 127)))


@given(values=matrices, per_channel=st.booleans())
def test_mse_is_never_worse_than_the_other_rules(values: Floats, per_channel: bool) -> None:
    layer, errors = layer_of(values.shape), {}
    for algorithm in ("mse", "minmax", "arq"):
        scale = weight_scale(values, recipe(algorithm, per_channel=per_channel), layer)
        by_channel = np.square(rounded_weight(values, scale, layer).astype(np.float64) - values).sum(axis=0)
        errors[algorithm] = by_channel if per_channel else by_channel.sum()
    for other in ("minmax", "arq"):
        assert np.all(errors["mse"] <= errors[other] * (1 + 1e-4) + 1e-12)


@pytest.mark.parametrize("algorithm", ["minmax", "arq", "mse"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_degenerate_channels_have_a_usable_scale(algorithm: str, per_channel: bool) -> None:
    for column in ([0.0, 0.0], [1e-45, -1e-42], [3.0, 3.0], [-3.0, 0.0], [3e38, -3e38]):
        values = np.array([column, column], np.float32).T
        layer = layer_of(values.shape)

        scale = weight_scale(values, recipe(algorithm, per_channel=per_channel), layer)

        assert all(0 < s < np.inf for s in scale.scales)
        largest = float(np.abs(values).max())
        assert np.abs(rounded_weight(values, scale, layer) - values).max() <= max(largest / 200, 1e-6), column


def test_every_layout_has_one_scale_per_output_channel() -> None:
    for layer, channels in (
        (layer_of((6, 4)), 4),
        (layer_of((6, 4), "Gemm", transposed=True), 6),
        (layer_of((6, 4, 3, 3), "Conv"), 6),
        (layer_of((6, 2, 3, 3), "Conv", groups=3), 6),
        (layer_of((6, 4, 3, 3), "ConvTranspose"), 4),
        (layer_of((6, 4, 3, 3), "ConvTranspose", groups=2), 8),
    ):
        values = np.random.default_rng(0).normal(size=layer.weight_shape).astype(np.float32)

        scale = weight_scale(values, recipe("arq", per_channel=True), layer)

        rows = weight_rows(values, layer, per_channel=True)
        assert len(scale.scales) == channels == len(rows)
        # the same scales, laid over the weight as it is stored, put each weight under its own channel's
        steps = np.broadcast_to(scales_along(scale, values.shape, layer.groups), values.shape)
        per_row = weight_rows(np.ascontiguousarray(steps), layer, per_channel=True)
        assert np.array_equal(per_row, np.broadcast_to(np.float32(scale.scales)[:, None], rows.shape))
        assert np.abs(rounded_weight(values, scale, layer) - values).max() <= max(scale.scales) / 2 * (1 + 1e-5)


# --- balance factors -------------------------------------------------------------------------------------------------


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
