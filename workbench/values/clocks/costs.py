"""Times of costed calls under prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from workbench.values.clocks.statement import Amounts, CallCosts, ModelledClock, Product, Work

Floats = npt.NDArray[np.float64]
Prices = Mapping[str, Floats]
"""Parameter → [clocks] microseconds a unit."""
Known = dict[tuple[Amounts, tuple[Amounts, ...], tuple[Product, ...]], Floats]
"""Microseconds of works at some prices; candidates have most kernels in common."""


def call_ms(calls: Sequence[CallCosts], prices: Prices, known: Known) -> Floats:
    """[calls, clocks] milliseconds of each call under each clock.

    Args:
        known: of these prices; what is new is added.

    Raises:
        KeyError: a call needs a parameter without a price.
    """
    width = len(next(iter(prices.values())))
    found = np.zeros((len(calls), width))
    for row, call in zip(found, calls, strict=True):
        for work in call.works:
            key = work.before, work.beside, work.products
            if key not in known:
                known[key] = _work_us(work, prices, width)
            row += work.count / 1000 * known[key]
    return found


def own_ms(clock: ModelledClock, call: CallCosts) -> float:
    """Milliseconds of a call at the clock's own prices."""
    return float(call_ms([call], {name: np.array([price]) for name, price in clock.prices}, {})[0, 0])


def parts_us(call: CallCosts, prices: Mapping[str, float]) -> dict[str, float]:
    """Microseconds of a call by what it waits for; of parts side by side the longest."""
    found: dict[str, float] = {}
    for work in call.works:
        beside = [{name: amount * prices[name] for name, amount in part} for part in work.beside]
        for product in work.products:
            cuts = [max(a * prices[product.adds], b * prices[product.loads]) for a, b in product.cuts]
            beside.append({product.adds: min(cuts)})
        longest = max(beside, key=lambda part: sum(part.values()), default={})
        for name, spent in (*((n, a * prices[n]) for n, a in work.before), *longest.items()):
            found[name] = found.get(name, 0.0) + work.count * spent
    return found


def _work_us(work: Work, prices: Prices, width: int) -> Floats:
    longest = np.zeros(width)
    for part in work.beside:
        np.maximum(longest, _paid(part, prices, width), out=longest)
    products = np.zeros(width)
    for product in work.products:
        adds, loads = prices[product.adds], prices[product.loads]
        products += np.minimum.reduce([np.maximum(a * adds, b * loads) for a, b in product.cuts])
    return _paid(work.before, prices, width) + np.maximum(longest, products)


def _paid(part: Amounts, prices: Prices, width: int) -> Floats:
    found = np.zeros(width)
    for name, amount in part:
        found += amount * prices[name]
    return found
