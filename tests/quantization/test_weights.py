"""Weight scales: the three rules, layouts of every operator, and degenerate channels."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.graph.layers import Layer
from workbench.quantization.recipe import WeightRecipe
from workbench.quantization.weights import rounded_weight, scales_along, weight_rows, weight_scale

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
