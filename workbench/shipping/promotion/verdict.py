"""What a gate asks and finds, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from workbench.values.documents.canonical import encode
from workbench.values.measurement import Estimate, ServiceFigures

CheckOutcome = Literal["passed", "failed", "not checked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the new bundle may lose against the current one.

    Attributes:
        max_loss_pp: of the primary metric, in percentage points.
        max_loss: of a primary metric that is no share of 0..1, in its own unit; None where nobody said.
        max_p99_increase, max_size_increase: shares of the current one's; 0.2 is 20 % more.
        min_throughput: share of the current one's.
        require_proof: the whole interval of a figure that has one must keep its limit, not the figure alone.
        zone: of the gate on accuracy, in the unit of its limit; None for half the limit, and where the samples do not
            suffice the figure decides then; of who states one, undecided fails.
    """

    max_loss_pp: float = 0.5
    max_p99_increase: float = 0.2
    min_throughput: float = 0.8
    max_size_increase: float = 0.2
    require_proof: bool = False
    max_loss: float | None = None
    zone: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question of the gate.

    Attributes:
        figure, limit: in `unit`; None where the question has no number.
        interval: the figure with its 95 % interval, None where it has none.
        proven: whether all of the interval keeps the limit: a figure within it may still be luck. None without one.
        reason: why it came out so, for people.
    """

    name: str
    outcome: CheckOutcome
    reason: str
    figure: float | None = None
    limit: float | None = None
    unit: str = ""
    interval: Estimate | None = None
    proven: bool | None = None


def checked(name: str, passed: bool | None, reason: str, **numbers: Any) -> Check:
    """Args: passed: None where it was not checked; numbers: further fields of `Check`."""
    outcome: CheckOutcome = "not checked" if passed is None else "passed" if passed else "failed"
    return Check(name=name, outcome=outcome, reason=reason, **numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRound:
    """Both services under the same load, one after the other."""

    candidate: ServiceFigures
    current: ServiceFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the gate found.

    Attributes:
        candidate, current: sha256 of the bundles' manifests; current is None where there is nothing to replace.
    """

    name: str
    candidate: str
    current: str | None
    limits: Limits
    checks: tuple[Check, ...]
    rounds: tuple[LoadRound, ...] = ()

    @property
    def passed(self) -> bool:
        return not any(check.outcome == "failed" for check in self.checks)

    @property
    def unproven(self) -> tuple[str, ...]:
        """Checks that passed on their figure, while its interval reaches beyond the limit."""
        return tuple(check.name for check in self.checks if check.outcome == "passed" and check.proven is False)

    @property
    def sound(self) -> bool:
        """Whether the candidate may be kept in a registry at all: its bytes and golden samples are right."""
        return self.checks[0].outcome == "passed"

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, "passed": self.passed, "unproven": list(self.unproven), **encode(self)}
