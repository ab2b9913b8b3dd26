"""Clip ranges and scales: golden vectors, brute force, and properties over any tensor."""

import math
import time
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.targets.encoder import PRODUCTS, WEIGHT_LAYERS, ids, tiny_encoder
from workbench.candidate import Quantization
from workbench.graph import read_model
from workbench.quantization.algorithms import choose
from workbench.quantization.density import expected_error
from workbench.quantization.ranges import clip_range, kl_range, minmax_range, mse_range, percentile_range
from workbench.quantization.scales import int8_parameters
from workbench.quantization.histogram import EMPTY, histogram_of, merge
from workbench.quantization.observe import Statistics, observe

Floats = npt.NDArray[np.float32]
tensors = hnp.arrays(
    np.float32, st.integers(1, 60), elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=True)
)
MINMAX = Quantization(
    scheme="static",
    algorithm="minmax",
    activation_symmetric=False,
    weight_granularity="channel",
    attention_matmul=True,
    keep_float=0,
)
RECIPES = [
    replace(MINMAX, algorithm=algorithm, percentile=percentile, activation_symmetric=symmetric)
    for algorithm, percentile in (("minmax", None), ("percentile", 99.9), ("kl", None), ("mse", None))
    for symmetric in (False, True)
]
NAMES = [f"{r.algorithm} {'symmetric' if r.activation_symmetric else 'asymmetric'}" for r in RECIPES]


def dequantized(values: Floats, scale: float, zero_point: int) -> npt.NDArray[np.float64]:
    integers = np.clip(np.rint(values.astype(np.float64) / scale) + zero_point, -128, 127)
    return (integers - zero_point) * scale


def heavy_tailed(count: int = 50_000) -> Floats:
    return np.random.default_rng(0).standard_t(3, count).astype(np.float32)


@given(values=tensors, symmetric=st.booleans())
def test_inside_the_range_quantizing_costs_at_most_half_a_step(values: Floats, symmetric: bool) -> None:
    scale, zero_point = int8_parameters(*minmax_range(histogram_of(values)), symmetric=symmetric)
    low, high = (-128 - zero_point) * scale, (127 - zero_point) * scale
    inside = values[(values >= low) & (values <= high)]

    assert np.all(np.abs(dequantized(inside, scale, zero_point) - inside) <= scale / 2 * (1 + 1e-6))
    assert dequantized(np.zeros(1, np.float32), scale, zero_point)[0] == 0.0


@given(values=tensors)
def test_the_asymmetric_range_covers_every_value(values: Floats) -> None:
    scale, zero_point = int8_parameters(*minmax_range(histogram_of(values)), symmetric=False)

    assert np.all(np.abs(dequantized(values, scale, zero_point) - values) <= scale / 2 * (1 + 1e-6))


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
@given(values=tensors, data=st.data())
def test_the_order_and_split_of_the_data_do_not_change_the_range(
    recipe: Quantization, values: Floats, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, values.size))
    parts = merge(histogram_of(values[cut:]), histogram_of(values[:cut]))

    assert clip_range(histogram_of(values), recipe) == clip_range(parts, recipe)


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
@given(values=tensors)
def test_every_range_contains_zero_and_stays_within_what_was_seen(recipe: Quantization, values: Floats) -> None:
    histogram = histogram_of(values)

    low, high = clip_range(histogram, recipe)
    scale, zero_point = int8_parameters(low, high, symmetric=bool(recipe.activation_symmetric))

    assert minmax_range(histogram)[0] <= low <= 0 <= high <= minmax_range(histogram)[1]
    assert math.isfinite(scale)
    assert scale > 0
    assert -128 <= zero_point <= 127


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
@pytest.mark.parametrize(
    "values",
    [
        pytest.param([2.5] * 9, id="constant"),
        pytest.param([-2.5] * 9, id="negative constant"),
        pytest.param([0.0] * 9, id="all zero"),
        pytest.param([1e-3], id="single value"),
        pytest.param([1e-45, -2e-42], id="denormal"),
    ],
)
def test_tensors_of_one_kind_of_value_keep_it(recipe: Quantization, values: list[float]) -> None:
    array = np.array(values, np.float32)
    histogram = histogram_of(array)

    low, high = clip_range(histogram, recipe)
    scale, zero_point = int8_parameters(low, high, symmetric=bool(recipe.activation_symmetric))

    largest = float(np.abs(array).max())
    assert np.abs(dequantized(array, scale, zero_point) - array).max() <= max(largest / 100, 1e-6)


@given(values=tensors)
def test_percentile_100_is_minmax(values: Floats) -> None:
    histogram = histogram_of(values)

    assert minmax_range(histogram) == percentile_range(histogram, 100)


@pytest.mark.parametrize("percent", [90, 99, 99.9, 99.99])
def test_a_percentile_is_found_to_within_a_bin(percent: float) -> None:
    values = heavy_tailed()
    histogram = histogram_of(values)

    low, high = percentile_range(histogram, percent)

    kept = math.ceil(values.size * percent / 100)
    assert max(-low, high) == pytest.approx(np.sort(np.abs(values))[kept - 1], abs=histogram.width)


def test_a_percentile_leaves_the_shorter_side_alone() -> None:
    values = np.abs(heavy_tailed())
    values[0] = -0.01

    low, high = percentile_range(histogram_of(values), 99)

    assert (np.float32(-0.01), True) == (low, high < values.max() / 2)


def test_zeros_do_not_decide_a_percentile() -> None:
    values = np.concatenate([np.zeros(100_000, np.float32), heavy_tailed()])

    assert percentile_range(histogram_of(heavy_tailed()), 99) == percentile_range(histogram_of(values), 99)


def test_percentiles_outside_0_to_100_are_refused() -> None:
    with pytest.raises(ValueError, match=r"percentile 101 is outside"):
        percentile_range(EMPTY, 101)


@pytest.mark.parametrize("symmetric", [False, True])
def test_kl_finds_the_threshold_that_plain_loops_find(symmetric: bool) -> None:
    values = heavy_tailed(3000)
    histogram = histogram_of(values)
    width = 2 * histogram.width
    counts = np.bincount((np.abs(values) / width).astype(int), minlength=2048).astype(float)
    losses = {}
    for bins in range(128, int(np.flatnonzero(counts)[-1]) + 2):
        p = counts[:bins].copy()
        p[-1] += counts[bins:].sum()
        q = np.zeros(bins)
        for level in range(128):
            first, last = level * bins // 128, (level + 1) * bins // 128
            inside = np.arange(first, last)
            filled = inside[(counts[inside] > 0) | ((inside == bins - 1) & (p[inside] > 0))]
            if filled.size:
                q[filled] = counts[first:last].sum() / filled.size
        p, q = p / p.sum(), q / q.sum()
        with np.errstate(divide="ignore"):
            losses[bins] = float((p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum())
    best = min(losses, key=losses.__getitem__)

    assert (-best * width, best * width) == kl_range(histogram, symmetric=symmetric)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(heavy_tailed(), id="heavy tails"),
        pytest.param(np.maximum(heavy_tailed(), 0), id="ReLU"),
        pytest.param(np.append(heavy_tailed(), np.float32(400)), id="outlier"),
        pytest.param(np.random.default_rng(1).uniform(-3, 5, 20_000).astype(np.float32), id="uniform"),
    ],
)
def test_mse_is_within_one_percent_of_the_best_range_on_the_values_themselves(values: Floats, symmetric: bool) -> None:
    def cost(low: float, high: float) -> float:
        scale, zero_point = int8_parameters(low, high, symmetric=symmetric)
        return float(np.square(dequantized(values, scale, zero_point) - values).mean())

    low, high = minmax_range(histogram_of(values))
    factors = np.geomspace(1, 0.01, 60)
    grid = [(low * a, high * b) for a in factors for b in (factors if not symmetric and low else [a])]
    best = min(cost(*pair) for pair in grid)

    assert cost(*mse_range(histogram_of(values), symmetric=symmetric)) <= best * 1.01


@pytest.mark.parametrize("recipe", [r for r in RECIPES if r.algorithm != "mse"])
def test_no_algorithm_has_a_smaller_expected_error_than_mse(recipe: Quantization) -> None:
    symmetric = bool(recipe.activation_symmetric)
    histogram = histogram_of(np.append(heavy_tailed(), np.float32(60)))

    def error(low: float, high: float) -> float:
        return expected_error(histogram, *int8_parameters(low, high, symmetric=symmetric))

    assert error(*mse_range(histogram, symmetric=symmetric)) <= error(*clip_range(histogram, recipe)) * 1.001


@given(values=hnp.arrays(np.float32, st.integers(200, 400), elements=st.floats(-50, 50, width=32)), sharp=st.booleans())
def test_the_expected_error_is_the_error_up_to_the_width_of_a_bin(values: Floats, sharp: bool) -> None:
    histogram = histogram_of(values)
    low, high = minmax_range(histogram)
    scale, zero_point = int8_parameters(low / (2 if sharp else 1), high, symmetric=False)

    actual = np.abs(dequantized(values, scale, zero_point) - values)

    # a value may lie anywhere in its bin: each error is known up to a width
    bound = float(np.mean(2 * actual * histogram.width + histogram.width**2))
    assert abs(expected_error(histogram, scale, zero_point) - np.square(actual).mean()) <= bound + 1e-12


@pytest.mark.parametrize(
    ("low", "high", "symmetric", "scale", "zero_point"),
    [
        pytest.param(-1.0, 1.0, True, 1 / 127, 0, id="symmetric, positive side at a tie"),
        pytest.param(-2.0, 1.0, True, 2 / 128, 0, id="symmetric, negative side"),
        pytest.param(0.0, 5.1, False, 5.1 / 255, -128, id="one-sided"),
        pytest.param(-5.1, 0.0, False, 5.1 / 255, 127, id="one-sided, negative"),
        pytest.param(-1.0, 4.1, False, 5.1 / 255, -78, id="two-sided"),
        pytest.param(0.0, 0.0, False, 1.0, -128, id="nothing, asymmetric"),
        pytest.param(0.0, 1e-9, True, 1.0, 0, id="next to nothing, symmetric"),
    ],
)
def test_scales_follow_amcts_rule(low: float, high: float, symmetric: bool, scale: float, zero_point: int) -> None:
    assert (float(np.float32(scale)), zero_point) == int8_parameters(low, high, symmetric=symmetric)


def test_a_huge_outlier_is_clipped_by_all_but_minmax() -> None:
    normal = np.random.default_rng(0).normal(size=2_000_000).astype(np.float32)
    histogram = histogram_of(np.append(normal, np.float32(50)))

    assert minmax_range(histogram)[1] == 50
    assert all(clip_range(histogram, r)[1] < 25 for r in RECIPES if r.algorithm != "minmax")


def test_a_tensor_that_was_never_seen_gets_a_neutral_scale() -> None:
    assert all(clip_range(EMPTY, recipe) == (0.0, 0.0) for recipe in RECIPES)
    assert expected_error(EMPTY, 1.0, 0) == 0.0


# --- choose --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def statistics(tmp_path_factory: pytest.TempPathFactory) -> Statistics:
    path = tmp_path_factory.mktemp("encoder") / "model.onnx"
    onnx.save(tiny_encoder(), path)
    return observe(read_model(path), [ids(4, 8), ids(4, 12, seed=1)])


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
def test_a_record_covers_every_layer_with_the_chosen_ranges(statistics: Statistics, recipe: Quantization) -> None:
    record = choose(statistics, recipe)

    assert [layer.name for layer in statistics.layers] == [layer.layer for layer in record.layers]
    for layer in record.layers:
        seen = statistics.tensors[layer.activation.tensor].histogram
        assert clip_range(seen, recipe) == (layer.activation.low, layer.activation.high)
        assert (layer.layer in PRODUCTS) == (layer.second is not None)
    assert statistics.digest == record.provenance.statistics
    assert record.provenance.recipe["algorithm"] == recipe.algorithm


def test_weights_are_symmetric_per_channel_or_per_tensor(statistics: Statistics) -> None:
    seen = statistics.weights["query"]
    per_channel = choose(statistics, MINMAX).layers[0].weight
    per_tensor = choose(statistics, replace(MINMAX, weight_granularity="tensor")).layers[0].weight

    expected = [int8_parameters(a, b, symmetric=True)[0] for a, b in zip(seen.minima, seen.maxima, strict=True)]
    assert (tuple(expected), 1) == (per_channel.scales, per_channel.axis)
    expected = int8_parameters(float(seen.minima.min()), float(seen.maxima.max()), symmetric=True)[0]
    assert ((expected,), None) == (per_tensor.scales, per_tensor.axis)


def test_attention_products_are_left_out_on_request(statistics: Statistics) -> None:
    record = choose(statistics, replace(MINMAX, attention_matmul=False))

    assert set(WEIGHT_LAYERS) == {layer.layer for layer in record.layers}


def test_the_most_sensitive_layers_that_apply_stay_in_float(statistics: Statistics) -> None:
    ranking = ["scores", "up", "context", "down", "query", "key", "value", "out", "classifier"]

    with_products = choose(statistics, replace(MINMAX, keep_float=2), ranking)
    without = choose(statistics, replace(MINMAX, keep_float=2, attention_matmul=False), ranking)

    assert with_products.float_layers == ("scores", "up")
    assert without.float_layers == ("up", "down")
    assert {"scores", "up"}.isdisjoint(layer.layer for layer in with_products.layers)


def test_more_layers_in_float_than_there_are_leave_nothing_quantized(statistics: Statistics) -> None:
    ranking = [layer.name for layer in statistics.layers]

    assert choose(statistics, replace(MINMAX, keep_float=99), ranking).layers == ()


def test_a_ranking_that_is_too_short_is_refused(statistics: Statistics) -> None:
    with pytest.raises(ValueError, match="2 layers are to stay in float, the ranking has only 1"):
        choose(statistics, replace(MINMAX, keep_float=2), ["up"])


def test_a_ranking_with_an_unknown_layer_is_refused(statistics: Statistics) -> None:
    with pytest.raises(ValueError, match="'nowhere'"):
        choose(statistics, MINMAX, ["nowhere"])


def test_only_static_recipes_have_records(statistics: Statistics) -> None:
    with pytest.raises(ValueError, match="'dynamic' recipe needs no record"):
        choose(statistics, Quantization(scheme="dynamic", weight_granularity="channel"))


def test_percentile_100_and_minmax_give_the_same_scales(statistics: Statistics) -> None:
    percentile = replace(MINMAX, algorithm="percentile", percentile=100.0)

    assert choose(statistics, MINMAX).layers == choose(statistics, percentile).layers


def test_the_same_statistics_give_the_same_record(statistics: Statistics) -> None:
    assert all(choose(statistics, recipe).digest == choose(statistics, recipe).digest for recipe in RECIPES)


def test_a_range_is_found_in_milliseconds() -> None:
    histogram = histogram_of(heavy_tailed())

    for recipe in RECIPES:
        began = time.perf_counter()
        clip_range(histogram, recipe)
        assert time.perf_counter() - began < 0.25  # some 5 ms; the bound is for busy machines
