"""The clocks that may be right: two centres, ours and the data sheet's, each moved by what is not known of it.

Every unknown is a factor on the prices that it moves, log-normal about the centre's: 95 % lie between centre / factor
and centre · factor. The two centres are drawn equally often, all unknowns of one clock from the same one. Draws depend
on the seed and on an unknown's name alone, so that knowing one leaves the others as they were drawn.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.values.clocks.costs import Floats, Known, Prices, call_ms
from workbench.values.clocks.statement import CallCosts, ModelledClock, Unknown
from workbench.values.measurement import Estimate

MEMBERS = 400
"""Clocks of an ensemble: a share of them is known to 5 percentage points."""
SEED = 0
_TWO_SIDED = 1.959963984540054
"""Standard errors that hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clocks:
    """Draws of an ensemble; the first is the clock that is run. Made by `moved`.

    Attributes:
        prices: parameter → [clocks] microseconds a unit.
    """

    clock: ModelledClock
    prices: Prices
    known: Known = field(default_factory=dict)

    def call_ms(self, calls: Sequence[CallCosts]) -> Floats:
        """[calls, clocks] milliseconds; what it works out is kept."""
        return call_ms(calls, self.prices, self.known)


def moved(clock: ModelledClock, logs: Floats) -> Clocks:
    """The clock moved.

    Args:
        logs: [unknowns, clocks] logarithms of the factors on prices, in the order of `clock.unknowns`; zeros first.
    """
    prices = {name: np.full(logs.shape[1], price) for name, price in clock.prices}
    for unknown, own in zip(clock.unknowns, logs, strict=True):
        factor = np.exp(own)
        for parameter in unknown.moves:
            prices[parameter] = prices[parameter] * factor
    return Clocks(clock=clock, prices=prices)


@functools.lru_cache(maxsize=16)
def ensemble(clock: ModelledClock, members: int = MEMBERS, seed: int = SEED) -> Clocks:
    """The clock as it is run, and behind it `members` that may be right; equal arguments give equal clocks."""
    return moved(clock, draws(clock, members, seed))


def draws(clock: ModelledClock, members: int, seed: int) -> Floats:
    """[unknowns, 1 + members] logarithms of factors, zeros first."""
    logs = np.zeros((len(clock.unknowns), 1 + members))
    on_sheet = np.arange(members) % 2
    for row, unknown in zip(logs, clock.unknowns, strict=True):
        row[1:] = on_sheet * math.log(unknown.data_sheet) + spread(unknown) * normals(unknown, members, seed)
    return logs


def spread(unknown: Unknown) -> float:
    """Standard deviation of the logarithm about a centre."""
    return math.log(unknown.factor_95) / _TWO_SIDED


def normals(unknown: Unknown, count: int, seed: int) -> Floats:
    """[count] standard normals of one unknown."""
    return np.random.default_rng((seed, zlib.crc32(unknown.name.encode()))).standard_normal(count)


def interval(values: Floats) -> Estimate:
    """The figure of the clock that is run, which comes first, with 95 % of the others; it lies inside in any case."""
    low, high = (float(edge) for edge in np.quantile(values[1:], (0.025, 0.975)))
    value = float(values[0])
    return Estimate(value=value, low=min(low, value), high=max(high, value))
