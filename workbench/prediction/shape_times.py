"""Times of shapes that nobody compiled, from those that somebody did: of the same structure, and of others scaled.

    same structure, same shape      the time is known
    enough shapes of the structure  a + b·n + c·n·length over positions n = batch · length, fitted to relative errors
    fewer                           the fit of every other structure, scaled to the shapes that are known

An interval is not assumed. Known times are left out and predicted in the same way: single ones where the structure has
a fit of its own, else all of another structure but the shapes that are known of this one. The interval is as wide as
the largest error among those; where too few can be left out there is no prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from workbench.values.measurement import Estimate

Shape = tuple[int, int]
"""Batch and padded length; length 0 where samples are no sequences."""
Times = Mapping[str, Mapping[Shape, Estimate]]
"""Structure → shape → milliseconds of a call."""

FEWEST_ERRORS = 6
"""Left-out times that must have been predicted before an interval is given: the largest of six errors is exceeded by
one in seven that follow, where all are alike."""
LEAST_MARGIN = 0.01
_TERMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTimes:
    """Predicted milliseconds by shape.

    Attributes:
        margin: by how much a time that is not known may be off, as a share; of `errors` that were left out.
    """

    times: Mapping[Shape, Estimate]
    margin: float
    errors: int


def predict_times(known: Times, structure: str, shapes: Iterable[Shape]) -> ShapeTimes | None:
    """The times of these shapes; None where too little is known to give an interval."""
    own = known.get(structure, {})
    wanted = tuple(shapes)
    missing = [shape for shape in wanted if shape not in own]
    if not missing:
        return ShapeTimes(times={shape: own[shape] for shape in wanted}, margin=0.0, errors=0)
    several = len({length for _, length in (*own, *wanted)}) > 1
    errors = _scaling_errors(known, structure, several) if _fit(own) is None else _fitting_errors(known, several)
    if len(errors) < FEWEST_ERRORS:
        return None
    margin = max(LEAST_MARGIN, *(math.exp(abs(error)) - 1 for error in errors))
    found: dict[Shape, Estimate] = {shape: own[shape] for shape in wanted if shape in own}
    for shape in missing:
        value = _one(known, structure, shape)
        if value is None:
            return None
        found[shape] = Estimate(value=value, low=value / (1 + margin), high=value * (1 + margin))
    return ShapeTimes(times=found, margin=margin, errors=len(errors))


def _fitting_errors(known: Times, several_lengths: bool) -> list[float]:
    """Logarithms of actual over predicted, each time of a structure that has a fit left out once.

    Args:
        several_lengths: only where another length had to be reached, or batches alone say nothing of it.
    """
    found = []
    for own in known.values():
        if several_lengths and len({length for _, length in own}) == 1:
            continue
        for shape in own:
            fit = _fit({other: time for other, time in own.items() if other != shape})
            value = None if fit is None else fit.at(shape)
            if value is not None:
                found.append(math.log(own[shape].value / value))
    return found


def _scaling_errors(known: Times, structure: str, several_lengths: bool) -> list[float]:
    """The same of every other structure, as if no more of it were known than of this one."""
    own, found = known.get(structure, {}), []
    for other, times in known.items():
        if other == structure or (several_lengths and len({length for _, length in times}) == 1):
            continue
        told = {shape: times[shape] for shape in own if shape in times}
        rest = {**{name: each for name, each in known.items() if name != structure}, other: told}
        for shape in times.keys() - told.keys():
            value = _one(rest, other, shape)
            if value is not None:
                found.append(math.log(times[shape].value / value))
    return found


def _one(known: Times, structure: str, shape: Shape) -> float | None:
    own = known.get(structure, {})
    fit = _fit(own)
    value = None if fit is None else fit.at(shape)
    if value is not None or not own:
        return value
    scaled = []
    for other, times in known.items():
        reference = None if other == structure else _fit(times)
        if reference is None:
            continue
        there = times[shape].value if shape in times else reference.at(shape)
        here = [times[at].value if at in times else reference.at(at) for at in own]
        ratios = [time.value / at for time, at in zip(own.values(), here, strict=True) if at is not None]
        if there is not None and ratios:
            scaled.append(there * median(ratios))
    return median(scaled) if scaled else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """Args: length: the only one that it was fitted at, and says anything of; None where several were."""

    factors: tuple[float, ...]
    length: int | None

    def at(self, shape: Shape) -> float | None:
        if self.length not in (None, shape[1]):
            return None
        value = sum(factor * term for factor, term in zip(self.factors, _terms(shape), strict=False))
        return value if value > 0 else None


def _fit(times: Mapping[Shape, Estimate]) -> _Fit | None:
    """None where the shapes do not decide the factors; one more shape than factors is wanted."""
    lengths = {length for _, length in times}
    count = _TERMS if len(lengths) > 1 else _TERMS - 1
    if len(times) <= count:
        return None
    rows = np.array([_terms(shape)[:count] for shape in times]) / np.array([[t.value] for t in times.values()])
    scale = np.abs(rows).max(axis=0)
    found, _, rank, _ = np.linalg.lstsq(rows / scale, np.ones(len(times)), rcond=1e-6)
    if rank < count:
        return None
    return _Fit(factors=tuple(float(f) for f in found / scale), length=None if len(lengths) > 1 else min(lengths))


def _terms(shape: Shape) -> tuple[float, float, float]:
    batch, length = shape
    positions = float(batch * max(1, length))
    return 1.0, positions, positions * max(1, length)
