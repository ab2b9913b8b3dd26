"""Coverage, size and power of the tests that everything else trusts; exact where the distribution can be summed."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from workbench.values.measurement import Estimate
from workbench.values.paired_scores import PairedScores
from workbench.values.significance import (
    all_pairs,
    bootstrap_rounds,
    compare,
    indistinguishable,
    may_be_equal,
    mcnemar,
    midmean,
    times_the_data,
)

Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


def outcomes(lost: int, won: int, n: int) -> tuple[Bools, Bools]:
    """Baseline and candidate, of whose n samples some are lost, some won, and the rest right in both."""
    baseline, candidate = np.ones(n, dtype=bool), np.ones(n, dtype=bool)
    candidate[:lost] = False
    baseline[lost : lost + won] = False
    return baseline, candidate


def sentences(generator: np.random.Generator, n: int, lose: float, gain: float) -> tuple[Counts, Counts]:
    """A tagger that finds 9 of 10 entities, and one that loses and wins entities with the given probabilities."""
    gold = generator.integers(0, 6, n)
    found = generator.binomial(gold, 0.9)
    extra = generator.binomial(2, 0.1, n)
    kept = generator.binomial(found, 1 - lose) + generator.binomial(gold - found, gain)
    baseline = np.column_stack([found, np.minimum(gold, found) + extra, gold])
    candidate = np.column_stack([kept, kept + extra, gold])
    return baseline, candidate


def f1(counts: Counts) -> float:
    correct, predicted, gold = counts.sum(axis=0)
    return float(2 * correct / (predicted + gold))


# --- McNemar and Tango ------------------------------------------------------------------------------------------


def test_mcnemar_p_value_is_that_of_the_exact_binomial_test() -> None:
    for lost, won in ((5, 5), (12, 3), (0, 9), (70, 40)):
        expected = stats.binomtest(lost, lost + won).pvalue
        assert mcnemar(*outcomes(lost, won, 200)).p_value == pytest.approx(expected, abs=1e-12)


def test_the_interval_is_where_the_score_statistic_meets_the_normal_quantile() -> None:
    """Checked against the statistic of Tango's paper, maximized over its nuisance parameter by brute force."""
    lost, won, n = 12, 3, 60
    drop = mcnemar(*outcomes(lost, won, n)).drop_pp

    for bound in (drop.low / 100, drop.high / 100):
        share_won = np.linspace(max(0.0, -bound), (1 - bound) / 2, 400_001)[1:-1]
        share_lost = share_won + bound
        likelihood = (
            lost * np.log(share_lost) + won * np.log(share_won) + (n - lost - won) * np.log1p(-share_lost - share_won)
        )
        best = share_won[np.argmax(likelihood)]
        z = (lost - won - n * bound) / np.sqrt(n * (2 * best + bound * (1 - bound)))
        assert abs(z) == pytest.approx(stats.norm.isf(0.025), abs=1e-3)


def test_equal_models_get_an_interval_with_a_width() -> None:
    found = mcnemar(*outcomes(0, 0, 1000))

    assert (found.drop_pp.value, found.p_value) == (0.0, 1.0)
    assert found.drop_pp.high == pytest.approx(100 * 1.96**2 / (1000 + 1.96**2), rel=1e-3)
    assert found.drop_pp.low == -found.drop_pp.high


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80))
@example([(True, False)] * 7)
@example([(False, True)] * 7)
@settings(max_examples=100, deadline=None)
def test_swapping_the_models_mirrors_the_comparison(pairs: list[tuple[bool, bool]]) -> None:
    a, b = (np.array(column, dtype=bool) for column in zip(*pairs, strict=True))
    forth, back = mcnemar(a, b), mcnemar(b, a)

    assert -100 <= forth.drop_pp.low <= forth.drop_pp.value <= forth.drop_pp.high <= 100
    assert forth.p_value == back.p_value
    assert forth.drop_pp.low == pytest.approx(-back.drop_pp.high, abs=1e-5)


# --- paired bootstrap -------------------------------------------------------------------------------------------


def test_four_times_the_data_halve_an_interval() -> None:
    drop = Estimate(value=1.0, low=0.0, high=3.0)

    assert (times_the_data(drop, 2.0), times_the_data(drop, 0.5)) == (4.0, 4.0)


def test_the_drop_is_that_of_micro_f1_and_its_interval_depends_on_the_seed_but_not_on_the_order() -> None:
    baseline, candidate = sentences(np.random.default_rng(1), 300, lose=0.05, gain=0.02)
    order = np.random.default_rng(2).permutation(300)

    found = compare(baseline, candidate, seed=3)

    assert found.drop_pp.value == pytest.approx(100 * (f1(baseline) - f1(candidate)))
    assert found == compare(baseline[order], candidate[order], seed=3)
    assert found != compare(baseline, candidate, seed=4)


def test_the_bootstrap_interval_covers_the_true_drop() -> None:
    truth = 100 * (f1((many := sentences(np.random.default_rng(0), 400_000, 0.03, 0.05))[0]) - f1(many[1]))
    covered = 0
    for seed in range(250):
        drop = compare(*sentences(np.random.default_rng(1000 + seed), 120, 0.03, 0.05), seed=seed).drop_pp
        covered += drop.low <= truth <= drop.high

    assert covered / 250 >= 0.91


# --- choosing the test ------------------------------------------------------------------------------------------


def test_the_form_of_the_outcomes_chooses_the_test_which_tells_models_apart() -> None:
    assert compare(*outcomes(3, 1, 50)).test == "McNemar exact"
    assert compare(*sentences(np.random.default_rng(0), 50, 0.1, 0.0)).test == "paired bootstrap over sentences"
    assert indistinguishable(*outcomes(6, 3, 500))
    assert not indistinguishable(*outcomes(30, 3, 500))


def test_outcomes_that_cannot_be_compared_are_refused() -> None:
    scores = PairedScores(numerators=np.array([1.0, 0.5]), denominators=np.ones(2))
    for a, b, message in (
        (np.ones(3, dtype=bool), np.ones(4, dtype=bool), "paired and not empty"),
        (np.ones(0, dtype=bool), np.ones(0, dtype=bool), "paired and not empty"),
        (np.ones((3, 2), dtype=np.int64), np.ones((3, 2), dtype=np.int64), "expected bool"),
        (np.ones(3, dtype=np.float64), np.ones(3, dtype=np.float64), "expected bool"),
        (np.array([[1, 1, 1]]), np.array([[1, 1, 2]]), "gold counts differ"),
        (scores, replace(scores, unit="dB"), "one metric"),
        (scores, np.array([True, False]), "different kinds"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(a, b)


# --- estimates of times -----------------------------------------------------------------------------------------


def test_the_interval_over_rounds_covers_the_truth_when_rounds_are_disturbed_as_a_whole() -> None:
    generator = np.random.default_rng(7)
    covered = 0
    for seed in range(300):
        rounds = 3.0 + generator.normal(0, 0.1, (25, 1)) + generator.normal(0, 0.02, (25, 8))
        found = bootstrap_rounds(rounds, midmean, seed=seed, resamples=400)
        assert found.low <= found.value <= found.high
        covered += found.low <= 3.0 <= found.high

    assert covered / 300 >= 0.91
    with pytest.raises(ValueError, match="at least two rounds"):
        bootstrap_rounds(np.ones((1, 8)), midmean, seed=0)


def test_times_may_be_equal_when_the_interval_of_their_ratio_holds_one() -> None:
    def estimate(value: float, low: float, high: float) -> Estimate:
        return Estimate(value=value, low=low, high=high)

    slow, close, quick = estimate(1.50, 1.45, 1.55), estimate(1.54, 1.49, 1.59), estimate(10.0, 9.9, 10.1)
    alike = [(slow, slow), (slow, close), *((estimate(300.0, low, 640.0), quick) for low in (0.0, -40.0))]

    assert all(may_be_equal(a, b) and may_be_equal(b, a) for a, b in alike)
    assert not may_be_equal(slow, estimate(1.59, 1.54, 1.64)), "they overlap, and yet"
    assert not may_be_equal(estimate(300.0, 200.0, 640.0), quick)


def test_all_pairs_are_told_apart_at_once() -> None:
    random = np.random.default_rng(1)
    values = 3 + random.normal(size=20) + random.normal(size=(4, 20)) / 50
    values[2] += 0.5
    values[1] = values[0]
    pairs = all_pairs(values, np.linspace(1, 2, 20))

    assert pairs.alike.tolist() == [[i == j or 2 not in (i, j) for j in range(4)] for i in range(4)]
    assert np.allclose(pairs.low, -pairs.high.T)
    assert pairs.high[0, 1] == 0.0, "the same model twice"
    assert all_pairs(values[:, :1], np.ones(1)).alike.all(), "one sample tells nothing"
