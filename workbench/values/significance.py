"""Which differences are real: paired tests and intervals.

Outcomes of two models over the same samples come in one of three forms, sample by sample in the same order:

    correct   bool [n]        classification, or top-1 agreement with the float model
    counts    int  [n, 3]     entities per sentence: correct, predicted, gold; scored by micro F1
    scores    `PairedScores`  any other metric kept per sample

Each is a ratio of two sums, and everything is turned so that a drop is a worsening, whichever way the metric points.
All is pure and gives equal results for equal arguments, in any order of the samples; wrong shapes raise ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.values.measurement import CONFIDENCE, AccuracyComparison, Estimate
from workbench.values.paired_scores import PairedScores

Arrays = npt.NDArray[np.bool_] | npt.NDArray[np.integer]
Outcomes = Arrays | PairedScores
Floats = npt.NDArray[np.float64]
Counts = int | npt.NDArray[np.int64]

_CHUNK_VALUES, _RESAMPLES = 2_000_000, 2000
_HALVINGS = 50
"""Of an interval of length 2: as exact as a float64."""


def compare(baseline: Outcomes, candidate: Outcomes, *, seed: int = 0) -> AccuracyComparison:
    """The paired comparison that fits the form of the outcomes.

    Raises:
        ValueError: they are not of the same samples, or of different forms.
    """
    check_pair(baseline, candidate)
    if isinstance(baseline, PairedScores) and isinstance(candidate, PairedScores):
        if baseline.are_right_or_wrong and candidate.are_right_or_wrong:
            return mcnemar(baseline.numerators == 1, candidate.numerators == 1)
        return paired_bootstrap(baseline, candidate, seed=seed)
    assert isinstance(baseline, np.ndarray)
    assert isinstance(candidate, np.ndarray)  # of one form, as was checked
    return mcnemar(baseline, candidate) if baseline.ndim == 1 else paired_bootstrap_f1(baseline, candidate, seed=seed)


def mcnemar(baseline: Arrays, candidate: Arrays) -> AccuracyComparison:
    """Exact McNemar test of two classifiers, and Tango's score interval of their difference in accuracy.

    Only the samples on which the two differ decide: with b lost and c won, the p-value is that of the two-sided
    binomial test of b out of b + c. The interval (Tango, Statistics in Medicine 17, 1998, 891-908) holds its coverage
    with few or no differing samples, where the usual one collapses to a point.

    Args:
        baseline, candidate: bool [n].
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    n = len(baseline)
    lost = int(np.count_nonzero(baseline & ~candidate))
    won = int(np.count_nonzero(~baseline & candidate))
    p_value = min(1.0, 2.0 * float(special.bdtr(min(lost, won), lost + won, 0.5)))
    low, high = map(float, score_interval(lost, won, n))
    return _comparison((lost - won) / n, low, high, p_value, scale=100.0, unit="pp", test="McNemar exact")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """Differences of all pairs, [models, models]; row less column.

    Attributes:
        low, high: intervals that hold all at once; infinite with a single sample.
        alike: whether one holds 0: the two cannot be told apart.
    """

    difference: Floats
    low: Floats
    high: Floats

    @property
    def alike(self) -> npt.NDArray[np.bool_]:
        return np.asarray((self.low <= 0) & (self.high >= 0))


def all_pairs(numerators: Floats, denominators: Floats) -> Pairs:
    """Paired differences of ratios of sums, such as nats a token, between all pairs of models over the same samples.

    Intervals are Student's of the linearized ratio, with Bonferroni's correction: six recipes and the float model are
    21 pairs, of which one in twenty would differ by chance at 5 % each.

    Args:
        numerators: [models, samples], by sample near to normal: means or sums over many parts.
        denominators: [samples], positive, of every model.
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    models, samples = numerators.shape
    values = numerators.sum(axis=1) / denominators.sum()
    residuals = numerators - values[:, None] * denominators
    apart = np.sqrt([[np.square(ours - theirs).sum() for theirs in residuals] for ours in residuals])
    half = np.where(np.eye(models, dtype=np.bool_), 0.0, np.inf)
    if samples > 1:
        tail = (1 - CONFIDENCE) / 2 / max(1, models * (models - 1) // 2)
        reach = -float(special.stdtrit(samples - 1, tail)) * math.sqrt(samples / (samples - 1))
        half = reach * apart / denominators.sum()
    difference = values[:, None] - values
    return Pairs(difference=difference, low=difference - half, high=difference + half)


def times_the_data(figure: Estimate, limit: float) -> float:
    """As many times the data, the value being what it is, move that end of an interval onto a limit which is beyond it:
    an interval shrinks with their square root."""
    end = figure.high if limit >= figure.value else figure.low
    return ((end - figure.value) / (limit - figure.value)) ** 2


def paired_bootstrap_f1(baseline: Arrays, candidate: Arrays, *, seed: int) -> AccuracyComparison:
    """Bootstrap over sentences of the difference in micro F1, with a percentile interval.

    Two pseudo-sentences of one entity, one that only the baseline finds and one that only the candidate finds, join the
    sample (the adjustment of Agresti and Min, Statistics in Medicine 24, 2005, 729-740, for paired proportions): a
    plain bootstrap of models that agree everywhere would claim to know their difference without error. F1 is 0 where
    nothing is predicted and nothing gold.

    Args:
        baseline, candidate: int [n, 3], with equal gold counts.
    """
    rows = np.hstack([baseline, candidate]).astype(np.int64)
    pseudo = np.array([[1, 1, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1]])

    def difference(sums: Floats) -> Floats:
        score = [2 * part[..., 0] / np.maximum(part[..., 1] + part[..., 2], 1) for part in np.split(sums, 2, axis=-1)]
        return np.asarray(score[0] - score[1])

    bounds = _resampled(rows, np.vstack([rows, pseudo]), difference, tail=(1 - CONFIDENCE) / 2, seed=seed)
    return _comparison(*bounds, scale=100.0, unit="pp", test="paired bootstrap over sentences")


def paired_bootstrap(baseline: PairedScores, candidate: PairedScores, *, seed: int) -> AccuracyComparison:
    """Bootstrap over samples of the difference of the two ratios.

    The interval is the expanded percentile one (Hesterberg, The American Statistician 69, 2015, 371-386, section 5.3).
    Where the metric counts and has bounds, two pseudo-samples of the mean weight join in, as in `paired_bootstrap_f1`.
    """
    check_pair(baseline, candidate)
    rows = np.column_stack([baseline.turned, baseline.denominators, candidate.turned, candidate.denominators])
    drawn_from = rows
    if baseline.bounds is not None and baseline.are_counts and candidate.are_counts:
        worst, best = baseline.turned_bounds
        before, after = float(rows[:, 1].mean()), float(rows[:, 3].mean())
        pseudo = [[best * before, before, worst * after, after], [worst * before, before, best * after, after]]
        drawn_from = np.vstack([rows, pseudo])

    def difference(sums: Floats) -> Floats:
        ratios = sums[..., ::2] / np.where(sums[..., 1::2] == 0, 1.0, sums[..., 1::2])
        return np.asarray(ratios[..., 0] - ratios[..., 1], dtype=np.float64)

    bounds = _resampled(rows, drawn_from, difference, tail=expanded_tail(max(len(baseline), 2)), seed=seed)
    test = "paired bootstrap over samples"
    return _comparison(*bounds, scale=baseline.drop_scale, unit=baseline.loss_unit, test=test)


def _resampled(
    rows: npt.NDArray[Any],
    drawn_from: npt.NDArray[Any],
    statistic: Callable[[Floats], Floats],
    *,
    tail: float,
    seed: int,
) -> tuple[float, float, float, float]:
    """(the statistic of the sums of all rows, its quantiles at both tails, the p-value of there being none).

    A row is one sample of both models, so what is hard for both cancels. Equal rows are merged and drawn by one
    multinomial, so memory does not grow with their number.
    """
    unique, repeats = np.unique(drawn_from, axis=0, return_counts=True)
    total = int(repeats.sum())
    draw = np.random.default_rng(seed).multinomial
    found = _drawn(lambda size: statistic(draw(total, repeats / total, size=size) @ unique), _RESAMPLES, len(unique))
    low, high = np.quantile(found, [tail, 1 - tail])
    beyond = min(np.count_nonzero(found <= 0), np.count_nonzero(found >= 0)) + 1
    return float(statistic(rows.sum(axis=0))), float(low), float(high), min(1.0, 2.0 * beyond / (_RESAMPLES + 1))


def _drawn(statistic: Callable[[int], Floats], resamples: int, values: int) -> Floats:
    """[resamples], of so many values each, as many at a time as memory holds."""
    step = max(1, _CHUNK_VALUES // values)
    return np.concatenate([statistic(min(step, resamples - start)) for start in range(0, resamples, step)])


def _comparison(
    drop: float, low: float, high: float, p_value: float, *, scale: float, unit: str, test: str
) -> AccuracyComparison:
    figure = Estimate(value=scale * drop, low=scale * min(low, drop), high=scale * max(high, drop))
    return AccuracyComparison(drop_pp=figure, p_value=p_value, test=test, unit=unit)


def expanded_tail(count: int) -> float:
    """What the expanded percentile interval cuts off on either side, for so many draws."""
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    spread = math.sqrt(count / (count - 1)) * -float(special.stdtrit(count - 1, (1 - CONFIDENCE) / 2))
    return float(special.ndtr(-spread))


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
    count = len(rounds)
    if rounds.ndim != 2 or count < 2:
        raise ValueError(f"expected at least two rounds [rounds, values], got shape {rounds.shape}")
    draw = np.random.default_rng(seed).integers
    found = _drawn(lambda n: statistic(rounds[draw(count, size=(n, count))].reshape(n, -1)), resamples, rounds.size)
    value = float(statistic(rounds.reshape(1, -1))[0])
    tail = expanded_tail(count)
    low, high = np.quantile(found, [tail, 1 - tail])
    return Estimate(value=value, low=min(float(low), value), high=max(float(high), value))


def score_interval(lost: Counts, won: Counts, n: int) -> tuple[Floats, Floats]:
    """Tango's 95 % interval of (lost - won) / n, of as many pairs of models as one likes at once."""
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    z = -float(special.ndtri((1.0 - CONFIDENCE) / 2))
    return _score_bound(lost, won, n, z), -_score_bound(won, lost, n, z)


def _score_bound(lost: Counts, won: Counts, n: int, z: float) -> Floats:
    """Lower end of Tango's interval of (lost - won) / n: where the score statistic equals z."""

    def statistic(delta: Floats) -> Floats:
        # the maximum-likelihood estimate of the share won, given that the difference is delta
        a, b, c = 2.0 * n, -lost - won + (2 * n - lost + won) * delta, -won * delta * (1 - delta)
        share_won = (np.sqrt(np.maximum(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
        variance = n * (2 * share_won + delta * (1 - delta))
        return np.asarray((lost - won - n * delta) / np.sqrt(np.maximum(variance, 1e-12)) - z)

    high = drop = np.asarray((lost - won) / n, dtype=np.float64)
    low = np.full(drop.shape, -1.0 + 1e-12)
    for _ in range(_HALVINGS):  # importing scipy.optimize costs every evaluation process a second
        middle = (low + high) / 2
        beyond = statistic(middle) > 0
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return np.where(drop <= -1.0, -1.0, low)


def check_pair(baseline: Outcomes, candidate: Outcomes) -> None:
    """Raise ValueError for outcomes that are not of one metric over the same samples."""
    if isinstance(baseline, PairedScores) or isinstance(candidate, PairedScores):
        if not (isinstance(baseline, PairedScores) and isinstance(candidate, PairedScores)):
            raise ValueError("outcomes of different kinds cannot be paired")
        ours, theirs = ((len(one), one.higher, one.bounds, one.unit) for one in (baseline, candidate))
        if ours != theirs:
            raise ValueError(f"scores must be of one metric over the same samples, got {ours} and {theirs}")
        return
    if baseline.shape != candidate.shape or len(baseline) == 0:
        raise ValueError(f"outcomes must be paired and not empty, got shapes {baseline.shape} and {candidate.shape}")
    for one in (baseline, candidate):
        right = one.ndim == 1 and one.dtype == np.bool_
        if not right and not (one.ndim == 2 and one.shape[1] == 3 and np.issubdtype(one.dtype, np.integer)):
            raise ValueError(f"expected bool [n] or integers [n, 3], got {one.dtype} {one.shape}")
    if baseline.ndim == 2 and not np.array_equal(baseline[:, 2], candidate[:, 2]):
        raise ValueError("gold counts differ between the two outcomes; they are not of the same sentences")
