"""Any metric that is kept sample by sample: what a paired test compares, and the tests themselves.

A metric is a sum over samples divided by another one. With denominators of 1 it is a mean (of cosines, of decibels);
with counts it is a rate (detections found of those there are). `significance.compare` and `certain_violation` lead
here for scores of this form. Everything is turned so that a drop is a worsening, whichever way the metric points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.values.measurement import CONFIDENCE, AccuracyComparison, Estimate

Floats = npt.NDArray[np.float64]

_CHUNK_VALUES = 2_000_000
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowOutcomes:
    """A language model over some windows of tokens, window by window in one order; all arrays [windows].

    Attributes:
        nll: sum of −log p of the tokens that count, in nats.
        predictions: how many those are.
        kl: sum over them of KL(float ‖ this model), Σ_v p_float (log p_float − log p), in nats; 0 of the float model.
        agreed: how many have the same most likely token as in the float model, the first one of equal ones.
    """

    nll: Floats
    predictions: npt.NDArray[np.int64]
    kl: Floats
    agreed: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.nll)

    @property
    def perplexity(self) -> float:
        """exp of the mean −log p of a token."""
        return float(np.exp(self.nll.sum() / self.predictions.sum()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedScores:
    """One model's values of one metric over some samples.

    Attributes:
        numerators, denominators: [n]; the metric is the sum of the first over the sum of the second.
        higher: more is better.
        bounds: least and largest value a sample can have; None where there are none.
        unit: empty for a share of 0..1, whose drops are said in percentage points.
    """

    numerators: Floats
    denominators: Floats
    higher: bool = True
    bounds: tuple[float, float] | None = (0.0, 1.0)
    unit: str = ""

    def __post_init__(self) -> None:
        if self.numerators.ndim != 1 or self.numerators.shape != self.denominators.shape or not len(self.numerators):
            raise ValueError(
                f"expected [n] and [n], not empty, got {self.numerators.shape} and {self.denominators.shape}"
            )

    def __len__(self) -> int:
        return len(self.numerators)

    @property
    def turned(self) -> Floats:
        """[n] numerators, negative where less is better: more is then better in every case."""
        return self.numerators if self.higher else -self.numerators

    @property
    def drop_unit(self) -> str:
        """What a difference of two values is said in."""
        return self.unit or "pp"

    @property
    def drop_scale(self) -> float:
        """From the metric's own value to `drop_unit`."""
        return 1.0 if self.unit else 100.0

    @property
    def are_right_or_wrong(self) -> bool:
        """Each sample is 1 or 0, more is better: then exact tests for proportions fit."""
        ones = bool((self.denominators == 1).all())
        return ones and self.higher and self.bounds == (0.0, 1.0) and bool(np.isin(self.numerators, (0.0, 1.0)).all())

    @property
    def are_counts(self) -> bool:
        """Whole numbers throughout, such as detections found and detections there."""
        both = np.concatenate([self.numerators, self.denominators])
        return bool((both == np.round(both)).all())


def paired_bootstrap(
    baseline: PairedScores,
    candidate: PairedScores,
    *,
    seed: int,
) -> AccuracyComparison:
    """Bootstrap over samples of the difference of the two ratios, drawn together for both models.

    The interval is the expanded percentile one (Hesterberg, The American Statistician 69, 2015, 371-386, section 5.3).
    Where the metric counts and has bounds, two pseudo-samples of the mean weight join in, one at which only the
    baseline and one at which only the candidate is right (Agresti and Min, Statistics in Medicine 24, 2005, 729-740):
    two models that agree on every sample would otherwise claim to know their difference without error.
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    check_pair(baseline, candidate)
    rows = np.column_stack([baseline.turned, baseline.denominators, candidate.turned, candidate.denominators])
    drop = float(_difference(rows.sum(axis=0)))
    drawn_from = np.vstack([rows, _pseudo(baseline, rows)]) if _adjusted(baseline, candidate) else rows
    unique, repeats = np.unique(drawn_from, axis=0, return_counts=True)
    total = int(repeats.sum())
    generator = np.random.default_rng(seed)
    drops = np.empty(_RESAMPLES)
    step = max(1, _CHUNK_VALUES // len(unique))
    for start in range(0, _RESAMPLES, step):
        size = min(step, _RESAMPLES - start)
        drops[start : start + size] = _difference(generator.multinomial(total, repeats / total, size=size) @ unique)
    count = max(len(baseline), 2)
    spread = math.sqrt(count / (count - 1)) * -float(special.stdtrit(count - 1, (1 - CONFIDENCE) / 2))
    tail = float(special.ndtr(-spread))
    low, high = np.quantile(drops, [tail, 1 - tail])
    beyond = min(np.count_nonzero(drops <= 0), np.count_nonzero(drops >= 0)) + 1
    scale = baseline.drop_scale
    return AccuracyComparison(
        drop_pp=Estimate(
            value=scale * drop,
            low=scale * min(float(low), drop),
            high=scale * max(float(high), drop),
        ),
        p_value=min(1.0, 2.0 * beyond / (_RESAMPLES + 1)),
        test="paired bootstrap over samples",
        unit=baseline.drop_unit,
    )


def log_stakes(baseline: PairedScores, candidate: PairedScores, claim: float, bets: Floats) -> Floats:
    """Per bet, the logarithm of the stake against "the drop is at most `claim`" (in the metric's own value).

    With f the baseline's ratio, the claim reads E[(a - a') - f (b - b') - claim b'] <= 0 for numerators a and
    denominators b, those of the candidate primed. Where both have the same denominators f plays no part and the bet is
    that of Waudby-Smith and Ramdas (JRSS B 86, 2024, 1-27) on a bounded mean; elsewhere f is taken at the worse end of
    four standard errors around its estimate, which makes the guarantee approximate.

    Raises:
        ValueError: the metric has no bounds, so no bet is sound.
    """
    check_pair(baseline, candidate)
    if baseline.bounds is None:
        raise ValueError("a metric without bounds allows no sequential test")
    width = baseline.bounds[1] - baseline.bounds[0]
    won = baseline.turned - candidate.turned
    weight = baseline.denominators - candidate.denominators
    exposure = candidate.denominators
    gains = [won - f * weight for f in _ratio_range(baseline)]
    heaviest = float(np.maximum(baseline.denominators, exposure).max())
    worst_gain = max(width * heaviest, *(float(-gain.min()) for gain in gains))
    sizes = bets[:, None] / (worst_gain + max(claim, 0.0) * heaviest)
    # each bet's log stake is concave in f: its minimum over the range of f lies at an end
    logs = [np.log1p(sizes * (gain - claim * exposure)).sum(axis=1) for gain in gains]
    return np.asarray(np.minimum(*logs), dtype=np.float64)


def check_pair(baseline: PairedScores, candidate: PairedScores) -> None:
    """Raise ValueError for scores that are not of one metric over as many samples."""
    ours = (len(baseline), baseline.higher, baseline.bounds, baseline.unit)
    theirs = (len(candidate), candidate.higher, candidate.bounds, candidate.unit)
    if ours != theirs:
        raise ValueError(f"scores must be of one metric over the same samples, got {ours} and {theirs}")


def _difference(sums: Floats) -> Floats:
    """[..., 4] → [...]: the first ratio less the second; a ratio of nothing is 0."""
    before = sums[..., 0] / np.where(sums[..., 1] == 0, 1.0, sums[..., 1])
    after = sums[..., 2] / np.where(sums[..., 3] == 0, 1.0, sums[..., 3])
    return np.asarray(before - after, dtype=np.float64)


def _adjusted(baseline: PairedScores, candidate: PairedScores) -> bool:
    return baseline.bounds is not None and baseline.are_counts and candidate.are_counts


def _pseudo(scores: PairedScores, rows: Floats) -> Floats:
    assert scores.bounds is not None
    best, worst = (scores.bounds[1], scores.bounds[0]) if scores.higher else (-scores.bounds[0], -scores.bounds[1])
    before, after = float(rows[:, 1].mean()), float(rows[:, 3].mean())
    return np.array([[best * before, before, worst * after, after], [worst * before, before, best * after, after]])


def _ratio_range(scores: PairedScores) -> tuple[float, float]:
    """The ratio give or take four standard errors (by linearization), within its bounds."""
    total = float(scores.denominators.sum()) or 1.0
    ratio = float(scores.turned.sum()) / total
    margin = 4 * math.sqrt(float(np.square(scores.turned - ratio * scores.denominators).sum())) / total
    assert scores.bounds is not None
    ends = scores.bounds if scores.higher else (-scores.bounds[1], -scores.bounds[0])
    return max(ratio - margin, ends[0]), min(ratio + margin, ends[1])
