"""What separates models on the same windows: perplexity, distance to float, and how sure one can be of it.

Everything is paired over windows, which are drawn together for all models, since tokens of one window depend on each
other. A perplexity's logarithm is a mean over tokens, so a ratio of two perplexities is exp of a paired difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from workbench.quantization.llm.outcomes import TextOutcomes
from workbench.values.measurement import Estimate
from workbench.values.paired_scores import PairedScores, paired_bootstrap
from workbench.values.significance import FALSE_STOP, mcnemar
from workbench.values.simultaneous import Pairs, all_pairs

FEW_WINDOWS = 10
"""With fewer, intervals over windows are rough: a bootstrap of so few values hardly knows their spread."""
_MOST_NATS = 600.0
SMALLEST_LOOK = 8
"""Windows at the first look; with fewer a recipe's spread is not known well enough to be certain of anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextComparison:
    """One model on the windows, against the float model on the same; 95 % intervals over windows, none of one window.

    Attributes:
        perplexity: with the interval for other windows of such text.
        ratio: perplexity over the float model's, paired.
        kl: mean KL(float ‖ model) of a token, in nats.
        top1: share of tokens whose most likely next token is the float model's.
        windows_needed: windows that would tell it from float, if its difference stays as it is; None where these do, or
            where there is no difference.
    """

    windows: int
    predictions: int
    perplexity: Estimate
    ratio: Estimate
    kl: Estimate
    top1: Estimate
    windows_needed: int | None

    @property
    def told_apart(self) -> bool:
        """Whether these windows, for this model alone, tell its perplexity from the float model's."""
        return self.windows > 1 and (self.ratio.low > 1 or self.ratio.high < 1)


def compare_text(reference: TextOutcomes, outcomes: TextOutcomes) -> TextComparison:
    """A model against the float model on the same windows."""
    if not np.array_equal(reference.predictions, outcomes.predictions):
        raise ValueError("outcomes of different windows cannot be paired")
    nll = _against(perplexity_scores(reference), perplexity_scores(outcomes))
    return TextComparison(
        windows=len(outcomes),
        predictions=int(outcomes.predictions.sum()),
        perplexity=_exp(_alone(outcomes.nll, outcomes)),
        ratio=_exp(nll),
        kl=_alone(outcomes.kl, outcomes),
        top1=_share(reference, outcomes),
        windows_needed=windows_needed(nll, len(outcomes)),
    )


def perplexity_scores(outcomes: TextOutcomes) -> PairedScores:
    """−log p of a token, less is better, for any of the paired tests: its drops are differences of log perplexity."""
    return _nats(outcomes.nll, outcomes)


def agreement_scores(outcomes: TextOutcomes) -> PairedScores:
    """The share of tokens with the float model's most likely next token, likewise."""
    return PairedScores(
        numerators=outcomes.agreed.astype(np.float64), denominators=outcomes.predictions.astype(np.float64)
    )


def perplexity_pairs(models: Sequence[TextOutcomes]) -> Pairs:
    """Differences of log perplexity between all pairs of models, with intervals that hold all at once."""
    return all_pairs(np.stack([each.nll for each in models]), models[0].predictions.astype(np.float64))


def kl_pairs(models: Sequence[TextOutcomes]) -> Pairs:
    """The same of the mean KL(float ‖ model), in nats a token."""
    return all_pairs(np.stack([each.kl for each in models]), models[0].predictions.astype(np.float64))


def windows_needed(difference: Estimate, windows: int) -> int | None:
    """Windows that would bring the interval of such a difference off 0, if its value stays; None where it is off 0
    already, or exactly 0. Intervals shrink with the square root of the windows."""
    if difference.low > 0 or difference.high < 0 or difference.value == 0:
        return None
    half = difference.value - difference.low if difference.value > 0 else difference.high - difference.value
    return max(math.ceil(windows * (half / difference.value) ** 2), windows + 1)


def looks(windows: int) -> tuple[int, ...]:
    """How many windows have been judged at each look before all: an eighth, a quarter, a half, as in sweeps."""
    return tuple(size for size in (windows // 8, windows // 4, windows // 2) if size >= SMALLEST_LOOK)


def certainly_above(
    reference: TextOutcomes, outcomes: TextOutcomes, *, limit: float, planned_looks: int, alpha: float = FALSE_STOP
) -> float | None:
    """The ratio of perplexities that a model certainly exceeds, where that is above the limit; None otherwise.

    −log p has no bounds, so the betting test of sweeps (`significance.certain_violation`) can never be certain of it.
    Instead Student's lower bound of the paired difference is taken at `alpha` divided among the looks: a model within
    the limit is stopped with a probability of about alpha at most over all looks, where differences of windows are
    near to normal [inferred: they are means over hundreds of tokens].

    Args:
        reference, outcomes: of the same windows, the first of them *in random order*.
        limit: of the ratio to the float model's perplexity.
        planned_looks: over which alpha is divided.
    """
    from scipy import special  # a quarter of a second that whoever tests nothing need not spend

    count = len(outcomes)
    if count < SMALLEST_LOOK:
        return None
    weights = outcomes.predictions.astype(np.float64)
    apart = outcomes.nll - reference.nll
    mean = apart.sum() / weights.sum()
    error = math.sqrt(count / (count - 1) * float(np.square(apart - mean * weights).sum())) / weights.sum()
    low = math.exp(mean + float(special.stdtrit(count - 1, alpha / max(planned_looks, 1))) * error)
    return low if low > limit else None


def _nats(sums: np.ndarray, outcomes: TextOutcomes) -> PairedScores:
    return PairedScores(
        numerators=sums,
        denominators=outcomes.predictions.astype(np.float64),
        higher=False,
        bounds=None,
        unit="nats a token",
    )


def _against(reference: PairedScores, scores: PairedScores) -> Estimate:
    return paired_bootstrap(reference, scores, seed=0).drop_pp


def _alone(sums: np.ndarray, outcomes: TextOutcomes) -> Estimate:
    """A mean of a token with its interval: the difference to a model that has none of it."""
    return _against(_nats(np.zeros(len(sums)), outcomes), _nats(sums, outcomes))


def _exp(logarithm: Estimate) -> Estimate:
    """Of a wrecked model that is beyond any number it is the largest that is told."""
    low, value, high = (math.exp(min(x, _MOST_NATS)) for x in (logarithm.low, logarithm.value, logarithm.high))
    return Estimate(value=value, low=low, high=high, confidence=logarithm.confidence)


def _share(reference: TextOutcomes, outcomes: TextOutcomes) -> Estimate:
    """Counts of bounded samples, so an agreement everywhere is not taken for certain (`paired_bootstrap`)."""
    drop = _against(agreement_scores(reference), agreement_scores(outcomes))
    return Estimate(
        value=1 - drop.value / 100,
        low=max(1 - drop.high / 100, 0.0),
        high=min(1 - drop.low / 100, 1.0),
        confidence=drop.confidence,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAgreement:
    """Attributes:
    same: share of prompts whose whole answers are equal, with Tango's interval.
    first_different: of each prompt the token, counted from 0, at which the answers part; None where they are equal.
    kept: share of the float model's tokens before the answers part, over all prompts.
    """

    prompts: int
    tokens: int
    same: Estimate
    first_different: tuple[int | None, ...]
    kept: float


def compare_continuations(
    reference: Sequence[torch.Tensor], given: Sequence[torch.Tensor], *, tokens: int
) -> AnswerAgreement:
    """A model's answers beside the float model's.

    One rounding turns an answer where two tokens are nearly as likely, and all behind it differ; so equal answers say
    much, and different ones little.
    """
    parts = [_parting(ours.tolist(), theirs.tolist()) for ours, theirs in zip(reference, given, strict=True)]
    same = np.array([part is None for part in parts])
    drop = mcnemar(np.ones(len(same), dtype=np.bool_), same).drop_pp
    total = sum(len(each) for each in reference)
    before = sum(
        len(ours) if part is None else min(part, len(ours)) for ours, part in zip(reference, parts, strict=True)
    )
    return AnswerAgreement(
        prompts=len(parts),
        tokens=tokens,
        same=Estimate(value=float(same.mean()), low=max(1 - drop.high / 100, 0.0), high=min(1 - drop.low / 100, 1.0)),
        first_different=tuple(parts),
        kept=before / total if total else 1.0,
    )


def _parting(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    if list(ours) == list(theirs):
        return None
    shared = min(len(ours), len(theirs))
    return next((place for place in range(shared) if ours[place] != theirs[place]), shared)
