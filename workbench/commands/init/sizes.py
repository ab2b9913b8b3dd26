"""How many samples score a candidate, how large a loss they can show, and how a service is asked."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

from workbench.commands.init.model import Outline
from workbench.evaluation.float_run import FloatRun
from workbench.inputs.dataset import Dataset
from workbench.inputs.metrics import counted_in_a_sample, scorer_of, usual_loss
from workbench.targets import described
from workbench.values.model import Model

_FEWEST = 50
"""Samples that an experiment may ask for."""
_MANY = (3000, 6000)
"""Validation and holdout samples beyond which every pass costs more than a candidate gains."""
_CALIBRATION_BATCH = 8
_NUMBER_MS = 0.0008
"""Of the front end, for each number in a request of JSON: twice what a busy machine took."""
_P99_MS = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """
    Attributes:
        validation, holdout: samples in all.
        scored: (validation, holdout) samples to use of them; None for all.
        limit: on the loss of accuracy.
        numbers: in a request of one sample; 0 where it is a text.
    """

    calibration: int
    calibration_batch: int
    validation: int
    holdout: int
    scored: tuple[int, int] | None
    limit: Limit
    numbers: int


def sizes_of(dataset: Dataset, outline: Outline, run: FloatRun) -> Sizes:
    """From the splits as they are divided, and what the target says is enough."""
    there = (dataset.size("validation"), dataset.size("holdout"))
    wanted = outline.start.scored or _MANY
    used = tuple(min(size, max(most, _FEWEST)) for size, most in zip(there, wanted, strict=True))
    batch = outline.model.fixed_batch or min(_CALIBRATION_BATCH, dataset.size("calibration"))
    samples = min(outline.start.calibration_samples, dataset.size("calibration"))
    if outline.model.fixed_batch is not None:  # such a model takes full batches only
        samples = max(batch, samples // batch * batch)
    return Sizes(
        calibration=samples,
        calibration_batch=batch,
        validation=there[0],
        holdout=there[1],
        scored=(used[0], used[1]) if used != there and min(used) >= _FEWEST else None,
        limit=limit_of(dataset, outline.model, run, min(used)),
        numbers=_numbers(dataset, outline),
    )


def _numbers(dataset: Dataset, outline: Outline) -> int:
    if dataset.preprocessor is not None:
        return 0
    rows = outline.model.fixed_batch or 1
    first = next(iter(dataset.batches("validation", rows, stop=rows)))
    return sum(array.size for array in first.feeds.values()) // rows


def concurrency(outline: Outline, cores: int) -> int:
    return outline.start.service.concurrency or max(4, 2 * cores)


def p99_ms(outline: Outline, cores: int, call_ms: float, numbers: int) -> int | None:
    """A limit that the float model keeps on this machine: some times what so many clients wait for one another.

    A request of a picture takes longer to read than to compute, and one process reads them all.

    None where the target is no host, since nothing here tells its time.
    """
    if not described(outline.target).on_host:
        return None
    clients = concurrency(outline, cores)
    wanted = 4.0 * clients * call_ms / max(1.0, cores / 2) + (12.0 + _NUMBER_MS * numbers) * clients
    return next((limit for limit in _P99_MS if limit >= wanted), math.ceil(wanted / 60_000) * 60_000)


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
