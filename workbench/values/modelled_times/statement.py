"""What a target states of a device that is modelled: the clock, what is open about it, and what a call costs.

    call = Σ works: count · Σ amounts

Every amount is in the unit of a parameter (microseconds as modelled, MB, launches), and a price is microseconds a
unit. So a call that was costed once has a time under any prices, and nothing is compiled again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Amounts = tuple[tuple[str, float], ...]
"""(parameter, units of it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A kernel, or a copy.

    Attributes:
        count: how often the call has it.
        amounts: what it is made of, each part with an error of its own.
    """

    count: int
    amounts: Amounts = ()

    @staticmethod
    def from_earlier(data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of bundles and journals that were written when amounts were called `before`. Parts side by side, which only
        costs of language models had, are left to be refused: a roofline's times are not today's."""
        if "before" not in data or data.get("beside") or data.get("products"):
            return data
        return {"count": data["count"], "amounts": data["before"]}

    def __post_init__(self) -> None:
        if self.count < 1 or any(amount < 0 for _, amount in self.amounts):
            raise ValueError("a work is done at least once, and its amounts are not negative")


def kind_of(work: Work) -> str:
    """'to_device' or 'to_host' for a copy, which pays for its megabytes under that name; else 'execution'."""
    return next((name for name, _ in work.amounts if name in ("to_device", "to_host")), "execution")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCosts:
    """Everything that one call asks of the device, copies included."""

    works: tuple[Work, ...]


def summed(works: Iterable[Work]) -> CallCosts:
    """A call of these works, equal ones counted together, in the order of their first."""
    counts: Counter[Amounts] = Counter()
    for work in works:
        counts[work.amounts] += work.count
    return CallCosts(works=tuple(Work(count=count, amounts=amounts) for amounts, count in counts.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Something of a device that only a measurement on it would tell.

    Attributes:
        moves: parameters whose prices it multiplies.
        factor_95: 95 % of what it may be lie within this factor of a centre, in either direction.
        value, unit: what our clock says.
        reads: 'rate' where more is faster, 'time' where more is slower.
        source: where centre and factor come from, with [inferred] for a judgement of ours.
        settled_by: the command that measures it on a real device.
    """

    name: str
    about: str
    moves: tuple[str, ...]
    factor_95: float
    value: float
    unit: str
    reads: Literal["rate", "time"]
    source: str
    settled_by: str

    @staticmethod
    def from_earlier(data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of when a data sheet could be a second centre, which it was of language models alone."""
        return {name: value for name, value in data.items() if name != "data_sheet"}

    def __post_init__(self) -> None:
        if not (self.factor_95 >= 1 and self.value > 0 and self.moves):
            raise ValueError(f"{self.name}: a factor below 1, a value that is not positive, or nothing that it moves")

    def price_factor(self, measured: float) -> float:
        """The factor on our prices that a measured value, in `unit`, comes to."""
        return self.value / measured if self.reads == "rate" else measured / self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingModel:
    """A modelled device's clock, and what is not known of it.

    Attributes:
        name: of the device and of the model that stands for it.
        prices: (parameter, microseconds a unit), as it is run.
    """

    name: str
    prices: Amounts
    unknowns: tuple[Unknown, ...]

    def __post_init__(self) -> None:
        priced = {name for name, _ in self.prices}
        if missing := sorted({p for unknown in self.unknowns for p in unknown.moves} - priced):
            raise ValueError(f"no price of {', '.join(missing)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledCalls:
    """Timed calls of a candidate and the baseline beside it, by a modelled clock: enough for their times by any other.

    Attributes:
        candidate, baseline: costs of a call of each shape that was fed.
        pairs: (place in `candidate`, place in `baseline`, calls of both fed so).
    """

    clock: TimingModel
    candidate: tuple[CallCosts, ...]
    baseline: tuple[CallCosts, ...]
    pairs: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        inside = all(
            0 <= ours < len(self.candidate) and 0 <= theirs < len(self.baseline) and calls > 0
            for ours, theirs, calls in self.pairs
        )
        if not self.pairs or not inside:
            raise ValueError("pairs of calls name costs that are there, and there is at least one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledService:
    """What a service does at the settings chosen for it, its calls taking `scale` times as long; None where it has no
    rate that keeps its limit."""

    scale: float
    throughput_per_s: float | None
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledService:
    """A service whose calls have a modelled clock.

    Attributes:
        calls: costs of the calls that it makes at its settings, one for each length; the geometric mean of what a clock
            makes them longer by is the scale that it serves at.
        scaled: by ascending scale, 1 among them; between two the logarithms lie on a line.
    """

    clock: TimingModel
    calls: tuple[CallCosts, ...]
    scaled: tuple[ScaledService, ...]

    def __post_init__(self) -> None:
        scales = [one.scale for one in self.scaled]
        if not self.calls or not scales or scales != sorted(set(scales)) or scales[0] <= 0:
            raise ValueError("a modelled service has calls, and scales in ascending order")


def with_known(clock: TimingModel, measured: Mapping[str, float]) -> TimingModel:
    """The clock with unknowns that were measured: their values are its prices, and nothing is open about them.

    Args:
        measured: unknown → value in its unit.

    Raises:
        ValueError: no such unknown, or a value that is not positive.
    """
    names = [unknown.name for unknown in clock.unknowns]
    for name, value in measured.items():
        if name not in names:
            raise ValueError(f"{name!r} is not among the unknowns of this clock: {', '.join(names)}")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name}: {value} is not a positive number")
    prices, left = dict(clock.prices), []
    for unknown in clock.unknowns:
        if unknown.name not in measured:
            left.append(unknown)
            continue
        for parameter in unknown.moves:
            prices[parameter] *= unknown.price_factor(measured[unknown.name])
    return replace(clock, prices=tuple(prices.items()), unknowns=tuple(left))
