"""prices.yaml: what cards, servers and electricity cost, in whatever currency; and what a fleet then costs a month.

    version: 1
    currency: CNY
    source: "purchasing, offer of 2026-03"
    card: {price: 110000, months: 36, maintenance_percent_per_year: 8}
    server: {rent_per_month: 9000, power_w: 900, hosting_per_month: 1500}
    energy: {per_kwh: 0.75, pue: 1.35}

Linear: a price is spread evenly over its months, without interest. What is not given costs nothing, and is said so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.values.documents.yaml_reader import Section, read_yaml

HOURS_A_MONTH = 365.25 * 24 / 12
_MOST = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What one piece costs a month: bought and written off, or rented.

    Attributes:
        price, months: bought for this and used for so long.
        maintenance_percent_per_year: of the price.
        rent_per_month: instead of a price, or on top of it.
        hosting_per_month: rack, network, people.
        power_w: that it draws besides what is counted elsewhere (a server without its cards); None where not given.
    """

    price: float = 0.0
    months: int = 0
    maintenance_percent_per_year: float = 0.0
    rent_per_month: float = 0.0
    hosting_per_month: float = 0.0
    power_w: float | None = None

    @property
    def per_month(self) -> float:
        written_off = self.price / self.months if self.months else 0.0
        upkeep = self.price * self.maintenance_percent_per_year / 100 / 12
        return written_off + upkeep + self.rent_per_month + self.hosting_per_month


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Attributes:
    currency: as it is written behind an amount; nothing is converted.
    source: who says so.
    energy_per_kwh: None where it was not given.
    pue: power of the building over power of its machines.
    """

    currency: str
    source: str
    card: Hardware
    server: Hardware
    energy_per_kwh: float | None = None
    pue: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyCost:
    """Of a fleet, in the currency of its prices.

    Attributes:
        kw: cards and servers together, times PUE; None where the power of a card is not known.
        energy: None where `kw` or the price of energy is not known; `total` is then without it.
    """

    cards: float
    servers: float
    kw: float | None
    energy: float | None

    @property
    def total(self) -> float:
        return self.cards + self.servers + (self.energy or 0.0)


def read_prices(path: Path) -> Prices:
    """Read a file of prices.

    Raises:
        ConfigError: missing, malformed, with an unknown key or an amount below 0; names file, line and key.
    """
    with read_yaml(path) as top:
        currency = top.text("currency").strip()
        if not currency or len(currency) > 8:
            top.refuse("currency", f"{currency!r} is no currency.", "Write CNY, EUR or ¥.")
        source = top.text("source")
        card, server = _hardware(top, "card", power=False), _hardware(top, "server", power=True)
        with top.section("energy") as section:
            per_kwh = section.optional("per_kwh", lambda key: section.number(key, minimum=0.0, maximum=_MOST))
            pue = section.number("pue", 1.0, minimum=1.0, maximum=10.0)
    return Prices(currency=currency, source=source, card=card, server=server, energy_per_kwh=per_kwh, pue=pue)


def _hardware(top: Section, name: str, *, power: bool) -> Hardware:
    with top.section(name) as section:
        amounts = {
            key: section.number(key, 0.0, minimum=0.0, maximum=_MOST)
            for key in ("price", "maintenance_percent_per_year", "rent_per_month", "hosting_per_month")
        }
        months = section.integer("months", 0, minimum=1, maximum=1200) if section.has("months") else 0
        if amounts["price"] and not months:
            section.refuse("price", "it does not say over how long it is spread.", "Add months: 36.")
        if months and not amounts["price"]:
            section.refuse("months", "there is no price to spread.", "Add price, or take months out.")
        if not top.has(name) or not any(amounts.values()):
            top.refuse(name, "costs nothing.", "Give it a price with months, or rent_per_month.")
        watts = None
        if power:
            watts = section.optional("power_w", lambda key: section.number(key, minimum=0.0, maximum=1e6))
    return Hardware(months=months, power_w=watts, **amounts)


def monthly_cost(prices: Prices, *, cards: int, servers: int, card_power_w: float | None) -> MonthlyCost:
    """Of a fleet that runs all the time.

    Args:
        cards: 0 where machines compute without any.
        card_power_w: of one card under its load; None where nobody knows.
    """
    kw = None
    if card_power_w is not None or not cards:
        watts = cards * (card_power_w or 0.0) + servers * (prices.server.power_w or 0.0)
        kw = watts * prices.pue / 1000 if watts else None
    energy = None
    if kw is not None and prices.energy_per_kwh is not None:
        energy = kw * HOURS_A_MONTH * prices.energy_per_kwh
    return MonthlyCost(
        cards=cards * prices.card.per_month, servers=servers * prices.server.per_month, kw=kw, energy=energy
    )


def watts_as_kw(cards: int, card_power_w: float | None) -> float | None:
    """Of cards alone; None where there are none, or nobody knows."""
    return None if card_power_w is None or not cards else cards * card_power_w / 1000
