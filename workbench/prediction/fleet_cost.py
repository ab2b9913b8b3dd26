"""A plan of capacity with what it costs: the document that `workbench plan-capacity --json` writes and reports read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from workbench.prediction.capacity import CapacityPlan
from workbench.prediction.prices import MonthlyCost, Prices, monthly_cost, watts_as_kw
from workbench.prediction.what_if import FleetPlan, WhatIf
from workbench.values.documents.canonical import DecodeError, added_later, decode, encode
from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError

PowerBasis = Literal["device", "assumed", "not known"]
"""Read from the device while calls ran back to back; said by whoever asked; or neither."""
_VERSION = 1
_OWN = ("fleet", "prices", "costs")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Power and money of a fleet after a step.

    Attributes:
        what_if: 'as run' is the fleet that its owner says runs today.
        kw: of its machines with PUE; None where the power of a card is not known.
        monthly: None without prices.
    """

    what_if: WhatIf | Literal["as run"]
    cards: int
    servers: int
    kw: float | None
    power_basis: PowerBasis
    monthly: MonthlyCost | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Attributes:
    plan: candidate by candidate; None where the rate of requests is not known.
    fleet: what-if by what-if; None where nothing was chosen to compare with.
    costs: of the steps of `fleet` that have cards, in their order, 'as run' first where it was said.
    command: the command line that asked for it; '' where there was none.
    """

    plan: CapacityPlan | None
    fleet: FleetPlan | None
    prices: Prices | None = None
    costs: tuple[StepCost, ...] = ()
    command: str = added_later("")

    @property
    def emulated(self) -> bool:
        return any(part.emulated for part in (self.plan, self.fleet) if part is not None)

    def to_json(self) -> dict[str, Any]:
        plan = {} if self.plan is None else encode(self.plan)
        own = {name: encode(getattr(self, name)) for name in _OWN}
        return {"version": _VERSION, "command": self.command, **plan, **own}


def fleet_costs(fleet: FleetPlan, prices: Prices | None, card_power_w: float | None) -> tuple[StepCost, ...]:
    """Args: card_power_w: assumed for steps whose candidates' power was not read from a device."""
    found = []
    if fleet.fleet.cards is not None and fleet.basis == "rate":
        servers = math.ceil(fleet.fleet.cards / fleet.fleet.cards_per_server)
        found.append(
            _cost("as run", fleet.fleet.cards, servers, fleet, prices, fleet.steps[0].step.power_w, card_power_w)
        )
    for each in fleet.steps:
        if each.cards is not None and each.servers is not None:
            power_w = each.step.power_w
            found.append(_cost(each.step.what_if, each.cards, each.servers, fleet, prices, power_w, card_power_w))
    return tuple(found)


def priced(capacity: Capacity, prices: Prices, card_power_w: float | None = None) -> Capacity:
    """The same plan with other prices."""
    assumed = card_power_w if card_power_w is not None or capacity.plan is None else capacity.plan.demand.card_power_w
    costs = () if capacity.fleet is None else fleet_costs(capacity.fleet, prices, assumed)
    return replace(capacity, prices=prices, costs=costs)


def read_capacity(path: Path) -> Capacity:
    """Read what `workbench plan-capacity --json` wrote.

    Raises:
        ConfigError: no such document, or of another version.
    """
    body = read_json(path)
    if not isinstance(body, dict) or body.pop("version", None) != _VERSION or not set(_OWN) <= set(body):
        raise ConfigError(
            "is no plan of capacity of this workbench.", file=path, hint="Write one: workbench plan-capacity … --json"
        )
    own = {name: _with_todays_names(body.pop(name)) for name in _OWN} | {"command": body.pop("command", "")}
    try:
        plan = decode(CapacityPlan, body, "plan") if body else None
        return replace(decode(Capacity, {"plan": None, **own}, "capacity"), plan=plan)
    except DecodeError as error:
        raise ConfigError(f"is no plan of capacity of this workbench: {error}.", file=path) from error


def _with_todays_names(value: Any) -> Any:
    """Of plans written before `lever` was called `what_if`."""
    if isinstance(value, dict):
        return {"what_if" if key == "lever" else key: _with_todays_names(each) for key, each in value.items()}
    return [_with_todays_names(each) for each in value] if isinstance(value, list) else value


def _cost(
    what_if: WhatIf | Literal["as run"],
    cards: int,
    servers: int,
    fleet: FleetPlan,
    prices: Prices | None,
    measured_w: float | None,
    assumed_w: float | None,
) -> StepCost:
    power_w = measured_w if measured_w is not None else assumed_w
    basis: PowerBasis = "device" if measured_w is not None else "assumed" if assumed_w is not None else "not known"
    counted = cards if fleet.unit == "card" else 0
    monthly = None
    if prices is not None:
        monthly = monthly_cost(prices, cards=counted, servers=servers, card_power_w=power_w)
    kw = monthly.kw if monthly is not None else watts_as_kw(counted, power_w)
    return StepCost(what_if=what_if, cards=cards, servers=servers, kw=kw, power_basis=basis, monthly=monthly)
