"""Which differences are real: paired tests, intervals, and the test that stops a hopeless candidate early.

Outcomes of two models over the same samples come in one of three forms, sample by sample in the same order:

    correct   bool [n]        classification, or top-1 agreement with the float model
    counts    int  [n, 3]     entities per sentence: correct, predicted, gold; scored by micro F1
    scores    `PairedScores`  any other metric kept per sample, as `paired_scores` says

The first is the second with one predicted and one gold entity per sample: micro F1 is then the accuracy. Everything
here is pure and gives equal results for equal arguments, in any order of the samples; wrong shapes raise ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from workbench.values.measurement import CONFIDENCE, AccuracyComparison, Estimate
from workbench.values.paired_scores import PairedScores, check_pair, log_stakes, paired_bootstrap

Arrays = npt.NDArray[np.bool_] | npt.NDArray[np.integer]
Outcomes = Arrays | PairedScores
Floats = npt.NDArray[np.float64]

FALSE_STOP = 0.001
"""Largest probability that a candidate within the limit is ever stopped, over all looks together."""
SMALLEST_LOOK = 64
_CHUNK_VALUES = 2_000_000
_HALVINGS = 50
"""Of an interval of length 2: as exact as a float64."""
_BETS = np.geomspace(0.2, 0.95, 5)
"""Sizes of bet as shares of the largest that a single sample cannot ruin; together they suit drops of 2 to 10 pp."""


def compare(baseline: Outcomes, candidate: Outcomes, *, seed: int = 0) -> AccuracyComparison:
    """The paired comparison that fits the form of the outcomes.

    Raises:
        ValueError: they are not of the same samples, or of different forms.
    """
    if isinstance(baseline, PairedScores) or isinstance(candidate, PairedScores):
        if not (isinstance(baseline, PairedScores) and isinstance(candidate, PairedScores)):
            raise ValueError("outcomes of different kinds cannot be paired")
        check_pair(baseline, candidate)
        if baseline.are_right_or_wrong and candidate.are_right_or_wrong:
            return mcnemar(baseline.numerators == 1, candidate.numerators == 1)
        return paired_bootstrap(baseline, candidate, seed=seed)
    if baseline.ndim == 1:
        return mcnemar(baseline, candidate)
    return paired_bootstrap_f1(baseline, candidate, seed=seed)


def mcnemar(baseline: Arrays, candidate: Arrays) -> AccuracyComparison:
    """Exact McNemar test of two classifiers, and Tango's score interval of their difference in accuracy.

    Only the samples on which the two differ decide: with b lost and c won, the p-value is that of the two-sided
    binomial test of b out of b + c. The interval (Tango, Statistics in Medicine 17, 1998, 891-908) holds its coverage
    with few or no differing samples, where the usual one collapses to a point.

    Args:
        baseline, candidate: bool [n].
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    _check_pair(baseline, candidate)
    if baseline.ndim != 1 or baseline.dtype != np.bool_ or candidate.dtype != np.bool_:
        raise ValueError(f"expected bool [n], got {baseline.dtype} {baseline.shape} and {candidate.dtype}")
    n = len(baseline)
    lost = int(np.count_nonzero(baseline & ~candidate))
    won = int(np.count_nonzero(~baseline & candidate))
    p_value = min(1.0, 2.0 * float(special.bdtr(min(lost, won), lost + won, 0.5)))
    z = -float(special.ndtri((1.0 - CONFIDENCE) / 2))
    drop = (lost - won) / n
    low = _score_bound(lost, won, n, z)
    high = -_score_bound(won, lost, n, z)
    return AccuracyComparison(
        drop_pp=Estimate(value=100 * drop, low=100 * min(low, drop), high=100 * max(high, drop)),
        p_value=p_value,
        test="McNemar exact",
    )


def times_the_data(figure: Estimate, limit: float, variance: Callable[[float], float] | None) -> float:
    """As many times the data move that end of an interval which is beyond a limit onto it, the value being what it is.

    An interval ends so many standard errors from its value as they would be if its end were the truth.

    Args:
        variance: of one sample, if that were the true value; None where it is taken to be the same whatever that is.
    """
    end = figure.high if limit >= figure.value else figure.low
    less = 1.0 if variance is None else variance(limit) / (variance(end) or 1.0)
    return less * ((end - figure.value) / (limit - figure.value)) ** 2


def drop_variance(drop: Estimate, n: int) -> Callable[[float], float]:
    """The variance of one paired difference, given that the drop is so many pp, as Tango's interval has it.

    How many of the samples differ is told by the interval. One of a bootstrap, which `mcnemar` did not make, tells it
    nearly: both widen as if a few samples more differed.
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    value, end = drop.value / 100, max(drop.high / 100, drop.value / 100 + 1e-9)
    z = -float(special.ndtri((1.0 - drop.confidence) / 2))
    low, high = max(0.0, -value), (1 - abs(value)) / 2 + max(0.0, -value)
    for _ in range(_HALVINGS):
        won = (low + high) / 2
        wide = z * z * _variance(n * (won + value), n * won, n, end) >= (n * (end - value)) ** 2
        low, high = (low, won) if wide else (won, high)
    return lambda at: _variance(n * (low + value), n * low, n, at / 100) / n


def paired_bootstrap_f1(baseline: Arrays, candidate: Arrays, *, seed: int, resamples: int = 2000) -> AccuracyComparison:
    """Bootstrap over sentences of the difference in micro F1, with a percentile interval.

    Sentences are drawn together for both models, so what is hard for both cancels. Two pseudo-sentences of one entity,
    one that only the baseline finds and one that only the candidate finds, join the sample (the adjustment of Agresti
    and Min, Statistics in Medicine 24, 2005, 729-740, for paired proportions): a plain bootstrap of models that agree
    everywhere would claim to know their difference without error. F1 is 0 where nothing is predicted and nothing gold.

    Equal sentences are merged and drawn by one multinomial, so memory does not grow with the number of sentences.

    Args:
        baseline, candidate: int [n, 3], with equal gold counts.
    """
    before, after = _counts_pair(baseline, candidate)
    pseudo = np.array([[1, 1, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1]], dtype=np.int64)
    rows, repeats = np.unique(np.vstack([np.hstack([before, after]), pseudo]), axis=0, return_counts=True)
    total = int(repeats.sum())
    generator = np.random.default_rng(seed)
    drops = np.empty(resamples)
    step = max(1, _CHUNK_VALUES // len(rows))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        sums = generator.multinomial(total, repeats / total, size=size) @ rows
        drops[start : start + size] = _micro_f1(sums[:, :3]) - _micro_f1(sums[:, 3:])
    drop = float(_micro_f1(before.sum(axis=0)) - _micro_f1(after.sum(axis=0)))
    low, high = np.quantile(drops, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    tail = min(np.count_nonzero(drops <= 0), np.count_nonzero(drops >= 0)) + 1
    return AccuracyComparison(
        drop_pp=Estimate(value=100 * drop, low=100 * min(float(low), drop), high=100 * max(float(high), drop)),
        p_value=min(1.0, 2.0 * tail / (resamples + 1)),
        test="paired bootstrap over sentences",
    )


def indistinguishable(a: Outcomes, b: Outcomes) -> bool:
    """Whether the samples cannot tell two models apart in accuracy: the paired test finds nothing."""
    return compare(a, b).p_value > 0.05


def may_be_equal(a: Estimate, b: Estimate) -> bool:
    """Whether two positive quantities measured apart, such as two speedups, may be the same.

    True when the interval of their ratio holds 1. That interval comes from the two given ones on the log scale by the
    method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27, 2008, 1693-1702); asking whether
    the two overlap would miss real differences (it is a test at 0.6 %, not at 5 %). An interval that reaches 0, as that
    of a P99 on a disturbed machine may, rules out no smaller value.
    """
    larger, smaller = (a, b) if a.value >= b.value else (b, a)
    if larger.low <= 0:
        return True
    difference = math.log(larger.value / smaller.value)
    return difference <= math.hypot(math.log(larger.value / larger.low), math.log(smaller.high / smaller.value))


def look_schedule(total: int) -> tuple[int, ...]:
    """How many samples have been scored at each look before the whole split: an eighth, a quarter, a half of `total`.

    Looks at fewer than 64 samples can stop nobody and are left out, so a split below 128 samples has no look.
    """
    return tuple(size for size in (total // 8, total // 4, total // 2) if size >= SMALLEST_LOOK)


def certain_violation(
    baseline: Outcomes, candidate: Outcomes, *, limit_pp: float, alpha: float = FALSE_STOP
) -> float | None:
    """By how much the drop certainly exceeds the limit, in percentage points; None while it may still be within.

    A bet against the claim "the drop is at most m": each sample multiplies a stake by a factor whose expectation is at
    most 1 while the claim is true. By Ville's inequality such a stake ever reaches 1 / alpha with probability at most
    alpha, **however often one looks**, so no alpha is shared out over looks and any schedule is sound (Waudby-Smith
    and Ramdas, JRSS B 86, 2024, 1-27). The stake is the mean over five fixed sizes of bet, hence depends on the
    counts alone. The result is the largest m that the stake refutes, less the limit.

    For `correct` the guarantee is exact for any n. For `counts` the claim F1_baseline - F1_candidate <= m reads, with
    f = F1_baseline, E[2 (correct_b - correct_c) - f (predicted_b - predicted_c) - m (predicted_c + gold)] <= 0; f is
    taken at the worse end of four standard errors around its estimate and the size of a bet is bounded by the
    sentences seen, so the guarantee is approximate. For `scores` see `paired_scores.log_stakes`; a metric without
    bounds is never certain, because one sample yet to come could outweigh all that were seen.

    Args:
        baseline, candidate: outcomes of the first n samples of a split *in random order*. A sorted file makes its
            first samples unlike the rest, and then no test on them is sound.
        limit_pp: the constraint on the drop, in percentage points; for scores with a unit of their own, in that unit,
            as the result then is.
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    if isinstance(baseline, PairedScores) or isinstance(candidate, PairedScores):
        return _certain_violation_of_scores(baseline, candidate, limit=limit_pp, alpha=alpha)
    before, after = _counts_pair(baseline, candidate)
    rows, repeats = np.unique(np.hstack([before, after]), axis=0, return_counts=True)
    difference = (rows[:, :3] - rows[:, 3:]).astype(np.float64)
    exposure = (rows[:, 4] + rows[:, 5]).astype(np.float64)
    gains = [2 * difference[:, 0] - f * difference[:, 1] for f in _score_range(before)]
    worst_gain = max(2.0, *(float(-gain.min()) for gain in gains))

    def log_stake(claim: float) -> float:

        bets = _BETS[:, None] / (worst_gain + max(claim, 0.0) * exposure.max())
        # Each bet's log stake is concave in f: its minimum over the range of f lies at an end.
        logs = [np.log1p(bets * (gain - claim * exposure)) @ repeats for gain in gains]
        return float(special.logsumexp(np.minimum(*logs)) - math.log(len(_BETS)))

    refuted = _largest_refuted(log_stake, limit_pp / 100, 1.0, alpha)
    return None if refuted is None else 100 * refuted - limit_pp


def _certain_violation_of_scores(
    baseline: Outcomes, candidate: Outcomes, *, limit: float, alpha: float
) -> float | None:
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    if not (isinstance(baseline, PairedScores) and isinstance(candidate, PairedScores)):
        raise ValueError("outcomes of different kinds cannot be paired")
    check_pair(baseline, candidate)
    if baseline.bounds is None:
        return None

    def log_stake(claim: float) -> float:

        return float(special.logsumexp(log_stakes(baseline, candidate, claim, _BETS)) - math.log(len(_BETS)))

    scale = baseline.drop_scale
    refuted = _largest_refuted(log_stake, limit / scale, baseline.bounds[1] - baseline.bounds[0], alpha)
    return None if refuted is None else scale * refuted - limit


def _largest_refuted(log_stake: Callable[[float], float], low: float, high: float, alpha: float) -> float | None:
    """The largest claim between the two that the stake refutes; None where it does not even refute the lower."""
    threshold = -math.log(alpha)
    if log_stake(low) < threshold:
        return None
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if log_stake(middle) >= threshold else (low, middle)
    return low


def midmean(values: Floats) -> Floats:
    """Mean of the middle half along the last axis: as deaf to outliers as a median needs, and less jumpy."""
    cut = values.shape[-1] // 4
    return np.asarray(np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1), dtype=np.float64)


def bootstrap_rounds(
    rounds: Floats, statistic: Callable[[Floats], Floats], *, seed: int, resamples: int = 2000
) -> Estimate:
    """A statistic of pooled values with its bootstrap interval over whole rounds.

    Values of one round are neighbours in time and share its disturbance; drawing rounds, not values, keeps that. The
    interval is the expanded percentile one (Hesterberg, The American Statistician 69, 2015, 371-386, section 5.3),
    which makes up for the narrowness of the plain percentile interval with few rounds.

    Args:
        rounds: [rounds, values per round], at least two rounds.
        statistic: [k, values] → [k], along the last axis.
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    count = len(rounds)
    if rounds.ndim != 2 or count < 2:
        raise ValueError(f"expected at least two rounds [rounds, values], got shape {rounds.shape}")
    generator = np.random.default_rng(seed)
    found = np.empty(resamples)
    step = max(1, _CHUNK_VALUES // rounds.size)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        drawn = generator.integers(count, size=(size, count))
        found[start : start + size] = statistic(rounds[drawn].reshape(size, -1))
    value = float(statistic(rounds.reshape(1, -1))[0])
    spread = math.sqrt(count / (count - 1)) * -float(special.stdtrit(count - 1, (1 - CONFIDENCE) / 2))
    tail = float(special.ndtr(-spread))
    low, high = np.quantile(found, [tail, 1 - tail])
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value))


def _score_bound(lost: int, won: int, n: int, z: float) -> float:
    """Lower end of Tango's interval of (lost - won) / n: where the score statistic equals z."""

    def statistic(delta: float) -> float:
        return (lost - won - n * delta) / math.sqrt(max(_variance(lost, won, n, delta), 1e-12)) - z

    drop = (lost - won) / n
    if drop <= -1.0:
        return -1.0
    # it falls from low to high; by halving, since importing scipy.optimize costs every evaluation process a second
    low, high = -1.0 + 1e-12, drop
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if statistic(middle) > 0 else (low, middle)
    return low


def _variance(lost: float, won: float, n: int, delta: float) -> float:
    """Of lost - won, given that the difference is delta."""
    # The maximum-likelihood estimate of the share won, given that the difference is delta.
    a, b, c = 2.0 * n, -lost - won + (2 * n - lost + won) * delta, -won * delta * (1 - delta)
    share_won = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    return n * (2 * share_won + delta * (1 - delta))


def _micro_f1(sums: npt.NDArray[np.integer]) -> Floats:
    """[..., 3] (correct, predicted, gold) → [...]; 0 where there is nothing predicted and nothing gold."""
    entities = sums[..., 1] + sums[..., 2]
    return np.asarray(2 * sums[..., 0] / np.maximum(entities, 1), dtype=np.float64)


def _score_range(counts: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Micro F1 give or take four standard errors (of the ratio estimator, by linearization), within 0..1."""
    entities = counts[:, 1] + counts[:, 2]
    score = float(_micro_f1(counts.sum(axis=0)))
    residual = 2 * counts[:, 0] - score * entities
    margin = 4 * math.sqrt(float(np.square(residual).sum())) / max(int(entities.sum()), 1)
    return max(score - margin, 0.0), min(score + margin, 1.0)


def _check_pair(baseline: Arrays, candidate: Arrays) -> None:
    if baseline.shape != candidate.shape or len(baseline) == 0:
        raise ValueError(f"outcomes must be paired and not empty, got shapes {baseline.shape} and {candidate.shape}")


def _counts_pair(baseline: Arrays, candidate: Arrays) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Both outcomes as int64 [n, 3]; a sample that is right or wrong is one predicted and one gold entity."""
    _check_pair(baseline, candidate)
    before, after = _as_counts(baseline), _as_counts(candidate)
    if not np.array_equal(before[:, 2], after[:, 2]):
        raise ValueError("gold counts differ between the two outcomes; they are not of the same sentences")
    return before, after


def _as_counts(outcomes: Arrays) -> npt.NDArray[np.int64]:
    if outcomes.ndim == 1 and outcomes.dtype == np.bool_:
        ones = np.ones(len(outcomes), dtype=np.int64)
        return np.column_stack([outcomes.astype(np.int64), ones, ones])
    if outcomes.ndim != 2 or outcomes.shape[1] != 3 or not np.issubdtype(outcomes.dtype, np.integer):
        raise ValueError(f"expected bool [n] or integers [n, 3], got {outcomes.dtype} {outcomes.shape}")
    counts = outcomes.astype(np.int64)
    if counts.min() < 0 or (counts[:, 0] > counts[:, 1:].min(axis=1)).any():
        raise ValueError("a sentence has negative counts, or more correct entities than predicted or gold ones")
    return counts
