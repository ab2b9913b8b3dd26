"""The cards' memory, power, utilization and temperature for /metrics, read now and then in a thread of their own.

A vendor's tool takes about a second and a processor for an answer, so it is asked seldom and never by a scrape.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from workbench.serve.cards import Place
from workbench.targets import described
from workbench.values.device_use import DeviceReading, Reader
from workbench.values.errors import ToolchainError

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
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="device-gauges", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """A look that is under way is left to its own time limit."""
        self._stop.set()

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
            gauge = GaugeMetricFamily(name, help_text, labels=["device"])
            for card, reading in sorted(last.items()):
                value = getattr(reading, quantity)
                if value is not None:
                    gauge.add_metric([card], factor * value)
            yield gauge
        failures = CounterMetricFamily(
            "workbench_device_reading_failures", "Looks at a card that failed.", labels=["device"]
        )
        for card, count in sorted(self._failures.items()):
            failures.add_metric([card], count)
        yield failures

    def _watch(self) -> None:
        while True:
            self.look()
            if self._stop.wait(self._every_s):
                return


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
