"""Which cards a service computes on: what its target says there is, and what `--devices` takes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.serve.settings import ALL_CARDS, card_names
from workbench.targets import described, device_count
from workbench.values.errors import ConfigError, ToolchainError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker computes.

    Attributes:
        card: the machine's name of it; '' where the host computes.
        device: as a process with `environment` counts it.
        environment: variables of the worker beside its parent's.
    """

    card: str = ""
    device: int = 0
    environment: Mapping[str, str]


HERE = Place(environment={})
"""The host."""


def places_of(target: str, wanted: str | None) -> tuple[Place, ...]:
    """A place for each card that is to be used, in the order of the target's cards.

    Args:
        wanted: as `--devices` gives it; None for all.

    Raises:
        ConfigError: cards are wanted of a target that computes on the host.
        ToolchainError: there are fewer, or none of that name.
    """
    found = described(target)
    if found.on_host:
        if wanted is not None:
            raise ConfigError(
                f"{wanted}: target {target} computes on the host's processors and has no cards.",
                key="--devices",
                hint="--workers says how many processes compute, --front-ends how many take requests in.",
            )
        return (HERE,)
    there = tuple(Place(card=card.name, environment=card.environment) for card in found.cards())
    if not there:  # a target that counts devices and leaves them all to every process
        there = tuple(Place(card=str(n), device=n, environment={}) for n in range(device_count(target)))
    check = f", or check {found.devices_hint}" if found.devices_hint else ""
    if wanted is None or wanted == ALL_CARDS:
        return there
    if wanted.isdecimal():
        if int(wanted) > len(there):
            sees = f"this process sees {len(there)} of target {target}"
            raise ToolchainError(f"--devices {wanted}: {sees}. Name fewer{check}.")
        return there[: int(wanted)]
    names = card_names(wanted)
    missing = [name for name in names if name not in {place.card for place in there}]
    if missing:
        sees = ", ".join(place.card for place in there)
        raise ToolchainError(
            f"--devices {wanted}: there is no card {', '.join(missing)} of target {target}, only {sees}. "
            f"Name others{check}."
        )
    return tuple(place for place in there if place.card in names)
