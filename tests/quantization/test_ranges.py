"""Clip ranges: golden vectors, brute force, and properties over any tensor."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.quantization.histograms import histogram_of
from tests.quantization.literal_ifmr import literal_search
from workbench.quantization.algorithms import clip_range, kl_range, minmax_range, mse_range, percentile_range
from workbench.quantization.hfmg import HfmgHistogram, first_histogram, hfmg_range, search
from workbench.quantization.histogram import Histogram, expected_error
from workbench.quantization.ifmr import candidates, ifmr_range, search_factors, squared_errors, tail_rank
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


# --- IFMR: AMCT's arithmetic, and the search on a histogram ----------------------------------------------------------


def ifmr(**changed: object) -> ActivationRecipe:
    return ActivationRecipe(**({"algorithm": "ifmr", "symmetric": False} | changed))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("shift", [-1, 0, 2])
def test_losses_of_many_values_agree_with_the_literal_ones(symmetric: bool, shift: float) -> None:
    values = (np.random.default_rng(0).standard_t(4, 40_000) + shift).astype(np.float32)
    chosen = ifmr(symmetric=symmetric)
    low, high = values.min(), values.max()
    tried = candidates(float(low), float(high), chosen)

    literal = literal_search(values, chosen, np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0)))

    assert np.unique(values).size > 16_384
    assert squared_errors(values, tried) == pytest.approx([loss for _, loss in literal], rel=5e-6)


def test_the_default_search_tries_61_factors_and_a_shorter_end_the_60_of_the_other_variant() -> None:
    factors = search_factors(ifmr())

    assert (factors.size, factors[0]) == (61, np.float32(0.7))
    assert factors[-1] == pytest.approx(1.3)
    assert factors[37] == np.float32(1.0699999)  # the digits that AMCT's record of a balanced MLP shows
    assert search_factors(ifmr(search_end=1.295)) == pytest.approx(factors[:60])
    assert search_factors(ifmr(search_start=0.5, search_end=1.2, search_step=0.05)).size == 14


def test_the_rank_of_the_start_is_n_minus_int_of_the_share() -> None:
    for count, share, rank in (
        *((10, 1.0, 1), (10, 0.9999999999, 1), (384, 0.999999, 1)),
        *((3_500_000, 0.999999, 4), (384, 0.98, 8), (5, 0.6, 2)),
    ):
        assert tail_rank(count, share) == rank


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_histogram_finds_a_range_as_good_as_the_values_do(symmetric: bool) -> None:
    chosen = ifmr(symmetric=symmetric, max_percentile=0.9999, min_percentile=0.999)
    itself = ifmr(symmetric=symmetric, search_start=1.0, search_end=1.5, search_step=0.5)
    random, size = np.random.default_rng(0), 50_000
    for drawn in (
        random.standard_t(3, size),
        np.maximum(random.normal(size=size), 0),
        -random.exponential(size=size),
        random.normal(3, 1, size),
    ):
        values = drawn.astype(np.float32)
        ordered = np.sort(values)
        low = ordered[tail_rank(size, chosen.min_percentile) - 1]
        high = ordered[-tail_rank(size, chosen.max_percentile)]

        found = ifmr_range(histogram_of(values), chosen)

        # the range found is one of the candidates up to a bin, and costs about as much as the best of them
        losses = squared_errors(values, candidates(float(low), float(high), chosen))
        assert squared_errors(values, candidates(*found, itself))[0] <= losses.min() * 1.02


# --- HFMG: AMCT's growing histogram, and the search compared with its definition in plain loops ----------------------


def literal_hfmg(histogram: HfmgHistogram) -> tuple[int, int]:
    """amct.md §4.3, word by word."""
    counts, bins = histogram.counts.tolist(), histogram.counts.size
    width = histogram.width
    step = max(1, math.ceil(sum(counts) / 100_000))
    left, right, cuts = 0, bins - 1, []
    while right - left > math.ceil(bins / 4) and sum(counts[left : right + 1]) >= step:
        needed = []
        for order in (range(left, right + 1), range(right, left - 1, -1)):
            consumed = taken = 0
            for at in order:
                consumed, taken = consumed + counts[at], taken + 1
                if consumed >= step:
                    break
            needed.append(taken)
        if needed[0] > needed[1]:
            left += needed[0]
        else:
            right -= needed[1]
        if left <= right:
            cuts.append((left, right))
    return min(cuts, key=lambda cut: literal_loss(counts, width, *cut))


def literal_loss(counts: list[int], width: float, left: int, right: int) -> float:
    step = width * (right - left + 1) / 256
    total = 0.0
    for at, count in enumerate(counts):
        if not count:
            continue
        density, start, end = count / width, (at - left) * width, (at - left + 1) * width
        first, last = (min(max(math.floor(x / step), 0), 255) for x in (start, end))
        for target in range(first, last + 1):
            a = start if target == first else target * step
            b = end if target == last else (target + 1) * step
            centre = (target + 0.5) * step
            total += density * ((b - centre) ** 3 - (a - centre) ** 3) / 3
    return total


def test_the_search_finds_what_plain_loops_find() -> None:
    random = np.random.default_rng(0)
    for values in (
        random.normal(size=3000),
        random.standard_t(2, 1500),
        np.append(random.normal(size=3000), [40.0, -30.0, 41.0]),
        np.maximum(random.normal(size=2000), 0),
        random.exponential(size=900) * -1,
        np.tile(random.standard_t(3, 500), 700),  # steps of several values
    ):
        histogram = first_histogram(values.astype(np.float32), 1024)

        left, right = literal_hfmg(histogram)

        low, width = np.float32(histogram.low), np.float32(histogram.width)
        assert search(histogram) == (low + np.float32(left) * width, low + np.float32(right + 1) * width)


@pytest.mark.parametrize("seed", range(6))
def test_the_range_from_our_histogram_costs_about_what_amcts_does(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = (random.standard_t(2 + seed, 20_000) + random.normal()).astype(np.float32)
    exact = first_histogram(values, 1024)

    low, high = hfmg_range(histogram_of(values), 1024)

    def cost(low: float, high: float) -> float:
        left = round((low - exact.low) / exact.width)
        right = round((high - exact.low) / exact.width) - 1
        return literal_loss(exact.counts.tolist(), exact.width, max(left, 0), min(right, 1023))

    assert cost(low, high) <= cost(*search(exact)) * 1.1
