"""Which cards a service computes on: what its target says there is, and what `--devices` takes of it; their
memory, power, utilization and temperature for /metrics.

A vendor's tool takes about a second and a processor for an answer, so it is asked now and then, in a thread of its own,
and never by a scrape.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from workbench.serve.metrics import labelled
from workbench.serve.settings import ALL_CARDS, card_names
from workbench.targets import described, device_count
from workbench.values.device_use import DeviceReading, Reader
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


EVERY_S = 10.0
_GAUGES = (
    ("memory_bytes", "workbench_device_memory_used_bytes", "Memory in use on the whole card, whoever uses it.", 1.0),
    ("memory_total_bytes", "workbench_device_memory_total_bytes", "Memory of the card.", 1.0),
    ("power_w", "workbench_device_power_watts", "Power of the card.", 1.0),
    ("utilization_percent", "workbench_device_utilization_ratio", "Share of time that the card's cores compute.", 0.01),
    ("temperature_c", "workbench_device_temperature_celsius", "Temperature of the card.", 1.0),
)


class DeviceGauges(Collector):
    """The last reading of each card; none where the last look failed, since an old value would look like one."""

    def __init__(self, readers: Mapping[str, Reader], *, every_s: float = EVERY_S) -> None:
        self._readers, self._every_s = readers, every_s
        self._last: dict[str, DeviceReading] = {}
        self._failures = dict.fromkeys(readers, 0)

    def start(self) -> None:
        threading.Thread(target=self._watch, name="device-gauges", daemon=True).start()

    def look(self) -> None:
        """At every card, once."""
        for card, read in self._readers.items():
            try:
                self._last[card] = read()
            except ToolchainError:  # the counter tells; the log would tell it every few seconds
                self._last.pop(card, None)
                self._failures[card] += 1

    def collect(self) -> Iterable[Metric]:
        last = dict(self._last)
        for quantity, name, help_text, factor in _GAUGES:
            told = ((card, getattr(reading, quantity)) for card, reading in sorted(last.items()))
            values = [(card, factor * value) for card, value in told if value is not None]
            yield labelled(GaugeMetricFamily, name, help_text, "device", values)
        name, help_text = "workbench_device_reading_failures", "Looks at a card that failed."
        yield labelled(CounterMetricFamily, name, help_text, "device", sorted(self._failures.items()))

    def _watch(self) -> None:
        while True:
            self.look()
            time.sleep(self._every_s)  # the vendor's tool has to be asked; the thread ends with the process


def device_gauges(target: str, places: Sequence[Place]) -> DeviceGauges | None:
    """Of the cards that a service computes on; None where the host computes, or nothing can be read."""
    read_device = described(target).read_device
    if read_device is None:
        return None
    return DeviceGauges(
        {
            place.card or str(place.device): read_device(place.device, {**os.environ, **place.environment})
            for place in places
        }
    )
