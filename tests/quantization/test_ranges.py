"""Clip ranges: golden vectors, brute force, and properties over any tensor."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.quantization.histograms import histogram_of
from workbench.quantization.algorithms import clip_range, kl_range, minmax_range, mse_range, percentile_range
from workbench.quantization.histogram import Histogram, expected_error
from workbench.quantization.recipe import ActivationRecipe
from workbench.quantization.record import as_half, int8_parameters
from workbench.quantization.statistics import TensorStatistics

Floats = npt.NDArray[np.float32]
tensors = hnp.arrays(
    np.float32, st.integers(1, 60), elements=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=True)
)
PERCENTILES = {"percentile": 99.9}
RECIPES = [
    ActivationRecipe(algorithm=algorithm, percentile=PERCENTILES.get(algorithm), symmetric=symmetric)
    for algorithm in ("minmax", "moving_average", "percentile", "kl", "mse", "ifmr", "hfmg")
    for symmetric in (False, True)
]
NAMES = [f"{r.algorithm} {'symmetric' if r.symmetric else 'asymmetric'}" for r in RECIPES]


def one_sample(histogram: Histogram) -> TensorStatistics:
    """A tensor whose values all belong to one sample."""
    return TensorStatistics(
        histogram=histogram,
        samples=1 if histogram.count else 0,
        minimum_sum=(histogram.minimum if histogram.count else 0.0, 0.0),
        maximum_sum=(histogram.maximum if histogram.count else 0.0, 0.0),
    )


def found(histogram: Histogram, recipe: ActivationRecipe) -> tuple[float, float]:
    return clip_range(one_sample(histogram), recipe)


def dequantized(values: Floats, scale: float, zero_point: int) -> npt.NDArray[np.float64]:
    integers = np.clip(np.rint(values.astype(np.float64) / scale) + zero_point, -128, 127)
    return (integers - zero_point) * scale


def heavy_tailed(count: int = 50_000) -> Floats:
    return np.random.default_rng(0).standard_t(3, count).astype(np.float32)


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
@settings(max_examples=15)
@given(values=tensors)
def test_every_range_contains_zero_and_stays_within_what_was_seen(recipe: ActivationRecipe, values: Floats) -> None:
    histogram = histogram_of(values)

    low, high = found(histogram, recipe)
    scale, zero_point = int8_parameters(low, high, symmetric=recipe.symmetric)

    lowest, highest = minmax_range(histogram)
    reach = 1.3 if recipe.algorithm == "ifmr" else 1.0  # its search goes beyond the largest value
    if recipe.algorithm == "ifmr" and recipe.symmetric:
        lowest, highest = -max(-lowest, highest), max(-lowest, highest)
    assert lowest * reach * (1 + 1e-6) <= low <= 0 <= high <= highest * reach * (1 + 1e-6)
    assert math.isfinite(scale)
    assert scale > 0
    assert -128 <= zero_point <= 127


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
def test_tensors_of_one_kind_of_value_keep_it(recipe: ActivationRecipe) -> None:
    for values in ([2.5] * 9, [-2.5] * 9, [0.0] * 9, [1e-3], [1e-45, -2e-42]):
        array = np.array(values, np.float32)

        low, high = found(histogram_of(array), recipe)
        scale, zero_point = int8_parameters(low, high, symmetric=recipe.symmetric)

        largest = float(np.abs(array).max())
        assert np.abs(dequantized(array, scale, zero_point) - array).max() <= max(largest / 100, 1e-6), values


def test_a_percentile_is_found_to_within_a_bin() -> None:
    values = heavy_tailed()
    histogram = histogram_of(values)
    for percent in (90, 99, 99.9, 99.99):
        low, high = percentile_range(histogram, percent)

        kept = math.ceil(values.size * percent / 100)
        assert max(-low, high) == pytest.approx(np.sort(np.abs(values))[kept - 1], abs=histogram.width)


def test_zeros_do_not_decide_a_percentile() -> None:
    values = np.concatenate([np.zeros(100_000, np.float32), heavy_tailed()])

    assert percentile_range(histogram_of(heavy_tailed()), 99) == percentile_range(histogram_of(values), 99)


@pytest.mark.parametrize("symmetric", [False, True])
def test_kl_finds_the_threshold_that_plain_loops_find(symmetric: bool) -> None:
    values = heavy_tailed(3000)
    histogram = histogram_of(values)
    width = 2 * histogram.width
    counts = np.bincount((np.abs(values) / width).astype(int), minlength=2048).astype(float)
    threshold = kl_range(histogram, symmetric=symmetric)[1]
    losses = {}
    last = int(np.flatnonzero(counts)[-1]) + 2
    for bins in sorted({*range(128, last, 9), round(threshold / width)}):
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
    assert len(losses) > 100


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        heavy_tailed(),
        np.maximum(heavy_tailed(), 0),
        np.append(heavy_tailed(), np.float32(400)),
        np.random.default_rng(1).uniform(-3, 5, 20_000).astype(np.float32),
    ],
    ids=["heavy tails", "ReLU", "outlier", "uniform"],
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


def test_a_tensor_that_was_never_seen_gets_a_neutral_scale() -> None:
    assert all(found(histogram_of(), recipe) == (0.0, 0.0) for recipe in RECIPES)
    assert expected_error(histogram_of(), 1.0, 0) == 0.0


# --- from a range to int8 parameters: AMCT's rule and its float32 arithmetic ------------------------------------------


def test_scales_follow_amcts_rule() -> None:
    for low, high, symmetric, scale, zero_point in (
        (-1.0, 1.0, True, 1 / 127, 0),  # a tie: the positive side
        (-2.0, 1.0, True, 2 / 128, 0),
        (0.0, 5.1, False, 5.1 / 255, -128),
        (-5.1, 0.0, False, 5.1 / 255, 127),
        (-1.0, 4.1, False, 5.1 / 255, -78),
        (0.0, 0.0, False, 1.0, -128),
        (0.0, 1e-9, True, 1.0, 0),  # next to nothing
    ):
        assert (float(np.float32(scale)), zero_point) == int8_parameters(low, high, symmetric=symmetric)


def test_scales_in_the_range_of_float16_are_rounded_to_it_and_others_through_their_root() -> None:
    assert as_half(0.02495) == float(np.float16(0.02495))
    assert as_half(1e-6) == float(np.float32(float(np.float16(1e-3)) ** 2))
    assert as_half(1e6) == float(np.float32(float(np.float16(1e3)) ** 2))
