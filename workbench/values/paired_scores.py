"""Any metric that is kept sample by sample, as `significance` compares it.

A metric is a sum over samples divided by another one. With denominators of 1 it is a mean (of cosines, of decibels);
with counts it is a rate (detections found of those there are).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenWindow:
    """What a language model is given at once.

    Attributes:
        ids: [tokens].
        first: the place of the first token whose prediction counts, at least 1; those before it are context.
    """

    ids: npt.NDArray[np.int64]
    first: int

    @property
    def predictions(self) -> int:
        """How many tokens' predictions count."""
        return len(self.ids) - self.first


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
    def turned_bounds(self) -> tuple[float, float]:
        """Least and largest of `turned` over the denominator; of a metric with bounds."""
        assert self.bounds is not None
        return self.bounds if self.higher else (-self.bounds[1], -self.bounds[0])

    @property
    def loss_unit(self) -> str:
        """What a difference of two values is said in."""
        return self.unit or "pp"

    @property
    def drop_scale(self) -> float:
        """From the metric's own value to `loss_unit`."""
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
