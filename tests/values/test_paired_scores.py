"""Paired tests of any metric kept per sample, against closed forms and by simulation."""

import numpy as np
import pytest

from workbench.values.paired_scores import PairedScores
from workbench.values.sequential import certain_violation
from workbench.values.significance import compare, mcnemar


def scores(numerators: object, denominators: object = None, **settings: object) -> PairedScores:
    values = np.asarray(numerators, dtype=np.float64)
    weights = np.ones(len(values)) if denominators is None else np.asarray(denominators, dtype=np.float64)
    return PairedScores(numerators=values, denominators=weights, **settings)


def test_right_or_wrong_is_compared_exactly() -> None:
    before, after = np.arange(200) % 10 != 0, np.arange(200) % 8 != 0

    assert compare(scores(before), scores(after)) == mcnemar(before, after)


def test_a_drop_is_a_worsening_whichever_way_the_metric_points() -> None:
    generator = np.random.default_rng(0)
    errors = generator.uniform(0, 1, 300)
    worse = errors + generator.uniform(0, 0.4, 300)
    lower = {"higher": False, "bounds": None, "unit": "px"}

    found = compare(scores(errors, **lower), scores(worse, **lower))

    assert found.unit == "px"
    assert found.drop_pp.value == pytest.approx(float((worse - errors).mean()))
    assert 0.18 < found.drop_pp.low < found.drop_pp.value < found.drop_pp.high < 0.22
    assert found.p_value < 0.01
    assert certain_violation(scores(errors, **lower), scores(worse, **lower), limit_pp=0.01) is None  # no bounds


def test_a_rate_of_counts_that_agrees_everywhere_does_not_claim_to_know_its_drop_exactly() -> None:
    found = compare(scores([3] * 100, [3] * 100), scores([3] * 100, [3] * 100))

    assert found.drop_pp.value == 0.0
    assert found.drop_pp.low < -0.5
    assert found.drop_pp.high > 0.5
    assert found.p_value > 0.9


def test_a_certain_drop_of_a_bounded_mean_is_seen_and_the_truth_is_never_refuted() -> None:
    generator = np.random.default_rng(1)
    before = generator.beta(20, 1, 512)
    after = before - 0.3 * generator.uniform(0, 1, 512) * before
    few, many = (scores(np.full(256, rate), higher=False, bounds=(0.0, 1.0)) for rate in (0.02, 0.30))

    excess = certain_violation(scores(before), scores(after), limit_pp=1.0)

    assert 5 < excess < 13.3
    assert certain_violation(few, many, limit_pp=5.0) is not None
    assert certain_violation(many, few, limit_pp=5.0) is None
    for _ in range(200):
        noise = generator.uniform(-0.05, 0.05, 512)
        assert certain_violation(scores(before), scores(np.clip(before - noise, 0, 1)), limit_pp=1.0) is None


def test_intervals_of_a_skewed_mean_hold_the_truth() -> None:
    """What is promised as 95 % holds in at least nine of ten draws of a hundred samples."""
    generator = np.random.default_rng(2)
    held = 0
    for draw in range(100):
        losses = generator.beta(0.3, 6, 100)  # mean 1/21, most samples lose next to nothing
        found = compare(scores(np.ones(100)), scores(1 - losses), seed=draw)
        held += found.drop_pp.low <= 100 * 0.3 / 6.3 <= found.drop_pp.high
    assert held >= 90
