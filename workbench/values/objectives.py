"""Objectives: what better means, when a constraint is met, and who is on the Pareto front.

Everything here is arithmetic on the numbers that `metrics` names; nothing knows where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.values.documents.canonical import added_later
from workbench.values.errors import ConfigError, nearest
from workbench.values.metrics import LOSSES, METRICS, Direction, Metric
from workbench.values.sequential import Gate, WhenUndecided

Numbers = Mapping[str, float]
"""Metric name → value; what was not measured is absent."""


def _check_metric(name: str) -> None:
    if name not in METRICS:
        raise ConfigError(f"{name!r} is not a metric.", key=name, hint=nearest(name, METRICS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A metric to make better.

    Raises:
        ConfigError: no such metric.
    """

    metric: str

    def __post_init__(self) -> None:
        _check_metric(self.metric)

    @property
    def direction(self) -> Direction:
        return METRICS[self.metric].direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A limit that a candidate must keep: at most `limit` where less is better, at least `limit` where more is.

    Attributes:
        of_output: how to read a metric of one of the model's outputs, which `METRICS` does not know; None for those
            that it does.
        zone, undecided: of a limit on a loss, as of its `gate`; None where the user states neither.

    Raises:
        ConfigError: no such metric, or the limit is not a finite number.
    """

    metric: str
    limit: float
    of_output: Metric | None = added_later(None)  # noqa: RUF009  # it gives a dataclass field
    zone: float | None = added_later(None)
    undecided: WhenUndecided | None = added_later(None)  # noqa: RUF009

    def __post_init__(self) -> None:
        if self.of_output is None:
            _check_metric(self.metric)
        if not math.isfinite(self.limit):
            raise ConfigError(f"the limit {self.limit} is not a finite number.", key=self.metric)

    def violation(self, value: float) -> float:
        """By how much `value` breaks the limit, in the metric's unit; zero or negative when it is met.

        Raises:
            ValueError: the value is NaN, of which nothing can be said.
        """
        if math.isnan(value):
            raise ValueError(f"{self.metric} is NaN")
        return value - self.limit if self.known.direction == "minimize" else self.limit - value

    @property
    def gate(self) -> Gate | None:
        """With known errors, of a limit on a loss; no other metric is kept sample by sample."""
        if self.metric not in LOSSES:
            return None
        return Gate.around(self.limit, self.zone, self.undecided)

    @property
    def known(self) -> Metric:
        """How the metric is read."""
        return self.of_output or METRICS[self.metric]

    def __str__(self) -> str:
        metric = self.known
        sign = "<=" if metric.direction == "minimize" else ">="
        return f"{self.metric} {sign} {self.limit:g}" + (f" {metric.unit}" if metric.unit else "")


def violations(constraints: Sequence[Constraint], numbers: Numbers) -> dict[str, float]:
    """Metric → `Constraint.violation`, in the order of the constraints; a number that is absent stays absent."""
    return {c.metric: c.violation(numbers[c.metric]) for c in constraints if c.metric in numbers}


def feasible(constraints: Sequence[Constraint], numbers: Numbers) -> bool:
    """Whether every constraint is measured and met; what was not measured is not met."""
    found = violations(constraints, numbers)
    return all(c.metric in found and found[c.metric] <= 0 for c in constraints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closest:
    """The candidate that came closest to meeting every constraint.

    Attributes:
        violations: the broken constraints, metric → by how much, in the metric's unit (> 0).
        unknown: constraints of which nothing is known for this candidate.
    """

    candidate_id: str
    violations: Mapping[str, float]
    unknown: tuple[str, ...] = ()


def closest_to_feasible(
    constraints: Sequence[Constraint], violated: Mapping[str, Mapping[str, float]]
) -> Closest | None:
    """Who came closest when nobody meets every constraint; None when nothing is known of anybody.

    A candidate with fewer unknown constraints goes first; then the smaller sum of violations, each as a share of its
    limit, so that milliseconds and percentage points can be added (a limit of zero counts as one unit); then the
    smaller id.

    Args:
        violated: candidate id → metric → violation, as `violations` gives or a gate recorded it.
    """

    def distance(candidate_id: str) -> tuple[int, float, str]:
        known = violated[candidate_id]
        shares = [max(known[c.metric], 0.0) / (abs(c.limit) or 1.0) for c in constraints if c.metric in known]
        return len(constraints) - len(shares), math.fsum(shares), candidate_id

    told = [key for key, known in violated.items() if any(c.metric in known for c in constraints)]
    if not told:
        return None
    best = min(told, key=distance)
    known = violated[best]
    return Closest(
        candidate_id=best,
        violations={c.metric: known[c.metric] for c in constraints if known.get(c.metric, 0.0) > 0},
        unknown=tuple(c.metric for c in constraints if c.metric not in known),
    )


Floats = npt.NDArray[np.float64]


def pareto_front(points: Sequence[Sequence[float]], directions: Sequence[Direction]) -> list[int]:
    """Indices, ascending, of the points that no other dominates; equal points are all kept.

    Raises:
        ValueError: a coordinate is NaN, or a point has not as many coordinates as there are directions.
    """
    if any(len(point) != len(directions) for point in points):
        raise ValueError(f"points of other than {len(directions)} coordinates, one for each direction")
    signs = [-1.0 if direction == "maximize" else 1.0 for direction in directions]
    costs = np.array(points, dtype=np.float64).reshape(-1, len(directions)) * signs
    if np.isnan(costs).any():
        raise ValueError("NaN in a point: what was not measured must be left out")
    no_worse = (costs[None] <= costs[:, None]).all(axis=2)
    better = (costs[None] < costs[:, None]).any(axis=2)
    dominated = np.any(no_worse & better, axis=1)
    return [index for index, beaten in enumerate(dominated) if not beaten]


def nondominated(points: Floats) -> Floats:
    """The points that no other dominates, each once, sorted by the first axis."""
    found = np.unique(points, axis=0)
    if found.shape[1] == 2:  # sorted by the first axis: a point stays where the second is below all before it
        lowest = np.minimum.accumulate(found[:, 1]) if len(found) else found[:, 1]
        return found[np.concatenate([[True], found[1:, 1] < lowest[:-1]])] if len(found) else found
    alone: Floats = found[pareto_front(found.tolist(), ["minimize"] * found.shape[1])]
    return alone
