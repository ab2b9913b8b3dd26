"""The loss of accuracy that a first experiment allows: the usual one, or more where the data could not show that."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from workbench.evaluation.float_run import FloatRun
from workbench.inputs.dataset import Dataset
from workbench.inputs.metrics import counted_in_a_sample, scorer_of, usual_loss
from workbench.values.model import Model

USUAL_LIMIT_PP = 0.5
_LIMITS_PP = (USUAL_LIMIT_PP, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """
    Attributes:
        worst: loss that is allowed, in percentage points or in the unit; None where nobody knows a usual one.
        usual: what it would be with data enough.
        unit: of the primary metric; empty for a share of 0..1, whose losses are percentage points.
        counted: things that the metric counts in the smaller split, of which each is right or wrong; None where it
            counts none, so that no loss is too fine for it.
        what: those things.
        why: where the usual one comes from; empty for that of labels.
    """

    worst: float | None
    usual: float
    unit: str = ""
    counted: int | None
    what: str = "samples"
    why: str = ""


def limit_of(dataset: Dataset, model: Model, run: FloatRun, samples: int) -> Limit:
    """
    Args:
        samples: of the smaller of the splits that are scored.
    """
    own = dataset.metric
    if own is not None and own.unit_of(own.name):
        return Limit(worst=None, usual=0.0, unit=own.unit_of(own.name), counted=None)
    if dataset.task != "tensors" or own is not None:
        return Limit(worst=limit_pp(samples, USUAL_LIMIT_PP), usual=USUAL_LIMIT_PP, counted=samples)
    with contextlib.closing(scorer_of(dataset, model)) as scorer:
        usual = usual_loss(scorer)
        if usual is None or scorer.unit:
            why = f"the usual limit of {scorer.primary}"
            return Limit(worst=usual, usual=usual or 0.0, unit=scorer.unit, counted=None, why=why)
        each = counted_in_a_sample(scorer, run.rows)
    pp, why = 100 * usual, f"{scorer.primary} is usually allowed {100 * usual:g}"
    if each is None:
        return Limit(worst=pp, usual=pp, counted=None, why=why)
    counted = max(1, round(each * samples))
    what = "samples" if each == 1 else "decisions"
    return Limit(worst=limit_pp(counted, pp), usual=pp, counted=counted, what=what, why=why)


def limit_pp(counted: int, usual_pp: float) -> float:
    """The usual limit where it is more than one of so many, else the smallest usual one that is, in points."""
    return next((limit for limit in (usual_pp, *_LIMITS_PP) if limit >= usual_pp and 100 / counted < limit), 100.0)
