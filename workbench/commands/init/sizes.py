"""How many samples score a candidate, how large a loss they can show, and how a service is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from workbench.commands.init.model import Outline
from workbench.inputs.dataset import Dataset
from workbench.targets import described

USUAL_LIMIT_PP = 0.5
_LIMITS_PP = (USUAL_LIMIT_PP, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0)
_FEWEST = 50
"""Samples that an experiment may ask for."""
_MANY = (3000, 6000)
"""Validation and holdout samples beyond which every pass costs more than a candidate gains."""
_CALIBRATION_BATCH = 8
_P99_MS = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """
    Attributes:
        validation, holdout: samples in all.
        scored: (validation, holdout) samples to use of them; None for all.
        limit_pp: the least usual limit that one sample's loss stays below.
    """

    calibration: int
    calibration_batch: int
    validation: int
    holdout: int
    scored: tuple[int, int] | None
    limit_pp: float


def sizes_of(dataset: Dataset, outline: Outline) -> Sizes:
    """From the splits as they are divided, and what the target says is enough."""
    there = (dataset.size("validation"), dataset.size("holdout"))
    wanted = outline.start.scored or _MANY
    used = tuple(min(size, max(most, _FEWEST)) for size, most in zip(there, wanted, strict=True))
    batch = outline.fixed_batch or min(_CALIBRATION_BATCH, dataset.size("calibration"))
    samples = min(outline.start.calibration_samples, dataset.size("calibration"))
    if outline.fixed_batch is not None:  # such a model takes full batches only
        samples = max(batch, samples // batch * batch)
    return Sizes(
        calibration=samples,
        calibration_batch=batch,
        validation=there[0],
        holdout=there[1],
        scored=(used[0], used[1]) if used != there and min(used) >= _FEWEST else None,
        limit_pp=limit_pp(min(used)),
    )


def limit_pp(samples: int) -> float:
    """The smallest of the usual limits that is more than one of so many samples, in percentage points."""
    return next((limit for limit in _LIMITS_PP if 100 / samples < limit), _LIMITS_PP[-1])


def concurrency(outline: Outline, cores: int) -> int:
    return outline.start.service.concurrency or max(4, 2 * cores)


def p99_ms(outline: Outline, cores: int, call_ms: float) -> int | None:
    """A limit that the float model keeps on this machine: some times what so many clients wait for one another.

    None where the target is no host, since nothing here tells its time.
    """
    if not described(outline.target).on_host:
        return None
    wanted = 4.0 * concurrency(outline, cores) * call_ms / max(1.0, cores / 2) + 12.0 * concurrency(outline, cores)
    return next((limit for limit in _P99_MS if limit >= wanted), math.ceil(wanted / 60_000) * 60_000)
