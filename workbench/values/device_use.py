"""What a card did while something was measured: memory, power, utilization, temperature.

A target says how a card is read (`TargetDescription.read_device`); loads sample it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """One look at a card; None for what it does not tell.

    Attributes:
        memory_bytes: in use on the whole card, other processes and the driver included.
    """

    memory_bytes: float | None = None
    power_w: float | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    memory_total_bytes: float | None = None


QUANTITIES = ("memory_bytes", "power_w", "utilization_percent", "temperature_c")
"""What changes while a card works."""
Reader = Callable[[], DeviceReading]
"""Looks once; raises ToolchainError where the vendor's tool fails. One thread at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A quantity over the time of a measurement."""

    median: float
    peak: float
    lowest: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """A card over the time of a measurement; None for what was never told.

    Attributes:
        card: the machine's name of it.
        source: what told it, in words.
        emulated: no device was there.
        trouble: the last reason why something is missing; '' where nothing is.
    """

    card: str
    source: str
    memory_bytes: Spread | None
    power_w: Spread | None
    utilization_percent: Spread | None
    temperature_c: Spread | None
    emulated: bool = False
    trouble: str = ""


def use_of(
    card: str, readings: Sequence[DeviceReading], *, source: str, emulated: bool = False, trouble: str = ""
) -> DeviceUse:
    """Medians and extremes of what was read."""
    spreads: dict[str, Spread | None] = {}
    for name in QUANTITIES:
        told = [value for reading in readings if (value := getattr(reading, name)) is not None]
        spreads[name] = None
        if told:
            spreads[name] = Spread(median=median(told), peak=max(told), lowest=min(told), samples=len(told))
    missing = [name for name, spread in spreads.items() if spread is None]
    why = trouble or (f"{source} does not tell {', '.join(missing)}" if missing else "")
    return DeviceUse(card=card, source=source, emulated=emulated, trouble=why, **spreads)
