"""What a target states of a device that is modelled: the clock, what is open about it, and what a call costs.

    call = Σ works: count · Σ amounts

Every amount is in the unit of a parameter (microseconds as modelled, MB, launches), and a price is microseconds a
unit. So a call that was costed once has a time under any prices, and nothing is compiled again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

Amounts = tuple[tuple[str, float], ...]
"""(parameter, units of it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A kernel, or a copy.

    Attributes:
        count: how often the call has it.
        amounts: what it is made of, each part with an error of its own. Parts side by side, which costs of language
            models had once, are refused: a roofline's times are not today's.
    """

    EARLIER: ClassVar = {"before": "amounts", "beside": "", "products": ""}
    count: int
    amounts: Amounts = ()

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
        source: what the factor was found on; [inferred] for a judgement of ours.
    """

    EARLIER: ClassVar = dict.fromkeys(("data_sheet", "value", "unit", "reads", "settled_by"))
    name: str
    about: str
    moves: tuple[str, ...]
    factor_95: float
    source: str

    def __post_init__(self) -> None:
        if not (self.factor_95 >= 1 and self.moves):
            raise ValueError(f"{self.name}: a factor below 1, or nothing that it moves")


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
