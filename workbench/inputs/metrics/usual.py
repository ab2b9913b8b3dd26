"""What is usually allowed of the primary metric, and what it counts: for a first experiment, and for words."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from workbench.inputs.dataset import Batch
from workbench.inputs.metrics.agreement import MEANINGS
from workbench.inputs.metrics.meaning_scorer import MeaningScorer
from workbench.inputs.metrics.score import Outputs
from workbench.inputs.metrics.scorer import Scorer


def usual_loss(scorer: Scorer) -> float | None:
    """How far the primary metric may be from that of two equal models, by the limits of its output's meaning; in its
    own unit, a share where it has none. None where no limit is usual.

    A metric that has no limit of its own (F1 beside recall and precision) has that of the others.
    """
    if not isinstance(scorer, MeaningScorer):
        return None
    judge, order = scorer.judges[0], scorer.order[0]
    first, limits = judge.metrics[order[0]], MEANINGS[judge.use.meaning].limits
    specs = {spec.name: spec for spec in judge.metrics}
    alike = {name: limit for name, limit in limits.items() if name in specs and specs[name].unit == first.unit}
    losses = {name: abs(specs[name].best - limit) for name, limit in alike.items()}
    return losses.get(first.name, max(losses.values(), default=None))


def counted_in_a_sample(scorer: Scorer, runs: Iterable[tuple[Batch, Outputs]]) -> float | None:
    """Things of one weight that the primary metric counts, in the mean over these samples; None where it counts none.

    Args:
        runs: of the float model.
    """
    if not isinstance(scorer, MeaningScorer) or not scorer.specs[0].counts:
        return None
    weights = [scorer.score(outputs, batch, outputs).denominators[:, 0] for batch, outputs in runs]
    return float(np.concatenate(weights).mean()) if weights else None
