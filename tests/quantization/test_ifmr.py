"""IFMR's search: AMCT's arithmetic, the sorted form of its loss, and the search on a histogram."""

import numpy as np
import numpy.typing as npt
import pytest

from tests.quantization.histograms import histogram_of
from tests.quantization.literal_ifmr import literal_search
from workbench.quantization.ifmr import candidates, ifmr_range, search_factors, squared_errors, tail_rank
from workbench.quantization.recipe import ActivationRecipe

Floats = npt.NDArray[np.float32]


def recipe(**changed: object) -> ActivationRecipe:
    return ActivationRecipe(**({"algorithm": "ifmr", "symmetric": False} | changed))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("shift", [-1, 0, 2])
def test_losses_of_many_values_agree_with_the_literal_ones(symmetric: bool, shift: float) -> None:
    values = (np.random.default_rng(0).standard_t(4, 40_000) + shift).astype(np.float32)
    chosen = recipe(symmetric=symmetric)
    low, high = values.min(), values.max()
    tried = candidates(float(low), float(high), chosen)

    literal = literal_search(values, chosen, np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0)))

    assert np.unique(values).size > 16_384
    assert squared_errors(values, tried) == pytest.approx([loss for _, loss in literal], rel=5e-6)


def test_the_default_search_tries_61_factors_and_a_shorter_end_the_60_of_the_other_variant() -> None:
    factors = search_factors(recipe())

    assert (factors.size, factors[0]) == (61, np.float32(0.7))
    assert factors[-1] == pytest.approx(1.3)
    assert factors[37] == np.float32(1.0699999)  # the digits that AMCT's record of a balanced MLP shows
    assert search_factors(recipe(search_end=1.295)) == pytest.approx(factors[:60])
    assert search_factors(recipe(search_start=0.5, search_end=1.2, search_step=0.05)).size == 14


def test_the_rank_of_the_start_is_n_minus_int_of_the_share() -> None:
    for count, share, rank in (
        *((10, 1.0, 1), (10, 0.9999999999, 1), (384, 0.999999, 1)),
        *((3_500_000, 0.999999, 4), (384, 0.98, 8), (5, 0.6, 2)),
    ):
        assert tail_rank(count, share) == rank


# --- on a histogram ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_histogram_finds_a_range_as_good_as_the_values_do(symmetric: bool) -> None:
    chosen = recipe(symmetric=symmetric, max_percentile=0.9999, min_percentile=0.999)
    itself = recipe(symmetric=symmetric, search_start=1.0, search_end=1.5, search_step=0.5)
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
