"""Times of costed calls under prices, and what the errors of a timing model make of a figure of them.

Errors of a timing model are independent of each other, each a factor on the prices that it moves. A figure is worked
out at both ends of each; what it moves by is added in quadrature of logarithms. What two candidates have in common
cancels in their ratio before that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from workbench.values.measurement import Estimate
from workbench.values.modelled_times.statement import Amounts, CallCosts, TimingModel

Floats = npt.NDArray[np.float64]
Prices = Mapping[str, Floats]
"""Parameter → [moved] microseconds a unit."""
Known = dict[Amounts, Floats]
"""Microseconds of works at some prices; candidates have most kernels in common."""


def call_ms(calls: Sequence[CallCosts], prices: Prices, known: Known) -> Floats:
    """[calls, moved] milliseconds of each call under each set of prices.

    Args:
        known: of these prices; what is new is added.

    Raises:
        KeyError: a call needs a parameter without a price.
    """
    width = len(next(iter(prices.values())))
    found = np.zeros((len(calls), width))
    for row, call in zip(found, calls, strict=True):
        for work in call.works:
            if work.amounts not in known:
                known[work.amounts] = sum((a * prices[name] for name, a in work.amounts), np.zeros(width))
            row += work.count / 1000 * known[work.amounts]
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """A timing model as it is, and moved; made by `moved`.

    Attributes:
        prices: parameter → [moved] microseconds a unit, the first as it is.
    """

    prices: Prices
    known: Known = field(default_factory=dict)

    def call_ms(self, calls: Sequence[CallCosts]) -> Floats:
        """[calls, moved] milliseconds; what it works out is kept."""
        return call_ms(calls, self.prices, self.known)


def moved(clock: TimingModel, logs: Floats) -> Priced:
    """The timing model with other prices.

    Args:
        logs: [unknowns, moved] logarithms of the factors on prices, in the order of `clock.unknowns`; zeros first.
    """
    prices = {name: np.full(logs.shape[1], price) for name, price in clock.prices}
    for unknown, own in zip(clock.unknowns, logs, strict=True):
        for parameter in unknown.moves:
            prices[parameter] = prices[parameter] * np.exp(own)
    return Priced(prices=prices)


@functools.lru_cache(maxsize=16)
def at_errors(clock: TimingModel) -> Priced:
    """As it is, then each error by itself at the lower and at the upper end of its 95 %."""
    count = len(clock.unknowns)
    logs = np.zeros((count, 1 + 2 * count))
    for place, unknown in enumerate(clock.unknowns):
        reach = math.log(unknown.factor_95)
        logs[place, 1 + 2 * place], logs[place, 2 + 2 * place] = -reach, reach
    return moved(clock, logs)


def interval(values: Floats) -> Estimate:
    """A positive figure with 95 % of what errors leave open.

    Args:
        values: [moved] of `at_errors`.
    """
    value = float(values[0])
    logs = np.log(values[1:] / value).reshape(-1, 2)
    down, up = (float(np.linalg.norm(np.maximum(sign * logs, 0).max(axis=1))) for sign in (-1, 1))
    return Estimate(value=value, low=value * math.exp(-down), high=value * math.exp(up))


def own_ms(clock: TimingModel, call: CallCosts) -> float:
    """Milliseconds of a call at the model's own prices."""
    return float(call_ms([call], {name: np.array([price]) for name, price in clock.prices}, {})[0, 0])


def parts_us(call: CallCosts, prices: Mapping[str, float]) -> dict[str, float]:
    """Microseconds of a call by its parts."""
    found: dict[str, float] = {}
    for work in call.works:
        for name, amount in work.amounts:
            found[name] = found.get(name, 0.0) + work.count * amount * prices[name]
    return found
