"""What is said of models on the same windows: ratios of perplexities, and what more windows would tell."""

import math

import numpy as np
import pytest

from workbench.quantization.llm.outcomes import compare_text, perplexity_pairs
from workbench.values.paired_scores import WindowOutcomes


def outcomes(ratio: float, count: int = 24, *, noise: float = 0.01, seed: int = 0, kl: float = 0.02) -> WindowOutcomes:
    """A model whose windows are as hard as those of ratio 1, and log(ratio) nats a token worse but for noise."""
    hard, own = np.random.default_rng(7), np.random.default_rng(seed)
    means = 3 + hard.normal(size=count) + math.log(ratio)
    if ratio != 1:
        means += noise * own.normal(size=count)
    predictions = np.full(count, 511)
    agreed = predictions if ratio == 1 else predictions - own.integers(5, 30, size=count)
    return WindowOutcomes(
        nll=means * predictions,
        predictions=predictions,
        kl=(0.0 if ratio == 1 else kl) * predictions * own.uniform(0.5, 1.5, size=count),
        agreed=agreed,
    )


def test_a_ratio_is_that_of_the_perplexities_and_its_interval_is_paired() -> None:
    reference, worse = outcomes(1), outcomes(1.05)
    found = compare_text(reference, worse)
    assert found.ratio.value == pytest.approx(worse.perplexity / reference.perplexity)
    assert found.ratio.low > 1
    assert found.ratio.high - found.ratio.low < 0.02
    assert found.perplexity.high - found.perplexity.low > 5  # texts differ far more than the two models
    assert found.kl.low < found.kl.value < found.kl.high
    assert found.top1.value == worse.agreed.sum() / worse.predictions.sum()
    assert found.windows_needed is None


def test_the_float_model_against_itself_has_no_difference_but_no_certain_agreement() -> None:
    found = compare_text(outcomes(1), outcomes(1))
    assert (found.ratio.low, found.ratio.value, found.ratio.high) == (1, 1, 1)
    assert found.kl.value == 0
    assert found.top1.low < found.top1.value == 1


def test_a_difference_within_noise_says_how_many_windows_would_show_it() -> None:
    found = compare_text(outcomes(1), outcomes(1.002, noise=0.02, seed=3))
    assert found.ratio.low < 1 < found.ratio.high
    assert found.windows_needed is not None
    assert found.windows_needed > 24


def test_recipes_are_told_apart_from_each_other_and_from_float_at_once() -> None:
    models = [outcomes(1), outcomes(1.02, seed=1), outcomes(1.0201, seed=2), outcomes(1.3, seed=3)]
    alike = perplexity_pairs(models).alike
    assert alike[1, 2]
    assert not alike[0, 1:].any()
    assert not alike[3, :3].any()
