"""HFMG: AMCT's growing histogram, and the search compared with its definition in plain loops."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from tests.quantization.histograms import histogram_of
from workbench.quantization.hfmg import HfmgHistogram, first_histogram, hfmg_range, search

Floats = npt.NDArray[np.float32]


# --- the search ----------------------------------------------------------------------------------------------------


def literal_search(histogram: HfmgHistogram) -> tuple[int, int]:
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

        left, right = literal_search(histogram)

        low, width = np.float32(histogram.low), np.float32(histogram.width)
        assert search(histogram) == (low + np.float32(left) * width, low + np.float32(right + 1) * width)


# --- on our histogram ----------------------------------------------------------------------------------------------


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
