"""Workers as the process with the queues sees them: where each computes, which gets the next batch, what metrics tell.

Places are cards: what the target says there is, and what `--devices` takes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from workbench.serve.batcher import Batch
from workbench.serve.metrics import labelled
from workbench.serve.pool import Member, Pool
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


ALL_CARDS = "all"
_FORMS = "all, a number of cards, or names with commas such as 0,1,3 (a single one: 3,)."
HERE = Place(environment={})
"""The host."""


def places_of(target: str, wanted: str | None) -> tuple[Place, ...]:
    """A place for each card that is to be used, in the order of the target's cards.

    Args:
        wanted: as `--devices` gives it; None for all.

    Raises:
        ConfigError: `wanted` names none, or cards of a target that computes on the host.
        ToolchainError: there are fewer, or none of that name.
    """
    found, given = described(target), ALL_CARDS if wanted is None else wanted
    names, count = [name for word in given.split(",") if (name := word.strip())], int(given) if given.isdecimal() else 0
    twice = len(set(names)) < len(names)
    if given != ALL_CARDS and not count and ("," not in given or not names or twice):
        why = "names a card twice" if twice else "names no cards"
        raise ConfigError(f"{wanted!r} {why}.", key="--devices", hint=f"Write {_FORMS}")
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
    if given == ALL_CARDS:
        return there
    if count > len(there):
        sees = f"this process sees {len(there)} of target {target}"
        raise ToolchainError(f"--devices {wanted}: {sees}. Name fewer{check}.")
    if count:
        return there[:count]
    missing = [name for name in names if name not in {place.card for place in there}]
    if missing:
        sees = ", ".join(place.card for place in there)
        raise ToolchainError(
            f"--devices {wanted}: there is no card {', '.join(missing)} of target {target}, only {sees}. "
            f"Name others{check}."
        )
    return tuple(place for place in there if place.card in names)


@dataclass(slots=True, eq=False)
class Worker(Member):
    """Attributes:
    place: where it computes.
    failed_batches: in a row.
    """

    place: Place = HERE
    batch: Batch | None = None
    failed_batches: int = 0

    @property
    def about(self) -> dict[str, Any]:
        return {"card": self.place.card} if self.place.card else {}

    @property
    def resident_bytes(self) -> int:
        """0 when it is gone, or cannot be read as this process has no file left."""
        assert self.process is not None
        try:
            return int(psutil.Process(self.process.pid).memory_info().rss)
        except (psutil.Error, OSError):
            return 0


class WorkerMetrics(Collector):
    """Of each that is ready its memory: a dead process has none, and a last value would look like one."""

    def __init__(self, workers: Pool[Worker]) -> None:
        self._workers = workers

    def collect(self) -> Iterable[Metric]:
        each = [(str(one.number), one) for one in self._workers.all]
        ready = [(number, one) for number, one in each if one.state == "ready"]
        for kind, name, text, values in (
            (
                CounterMetricFamily,
                "workbench_worker_restarts",
                "Times a worker was started again after it died.",
                [(number, one.restarts) for number, one in each],
            ),
            (
                CounterMetricFamily,
                "workbench_worker_failed_starts",
                "Starts of a worker that failed: no process could be made, or it died before it was ready.",
                [(number, one.all_failed_starts) for number, one in each],
            ),
            (
                GaugeMetricFamily,
                "workbench_worker_resident_memory_bytes",
                "Resident memory of a worker process.",
                [(number, one.resident_bytes) for number, one in ready],
            ),
            (
                GaugeMetricFamily,
                "workbench_worker_device_memory_bytes",
                "Device memory of a worker's session; absent where the host computes.",
                [(number, held) for number, one in ready if (held := one.facts["device_bytes"]) is not None],
            ),
        ):
            yield labelled(kind, name, text, "worker", values)
        yield GaugeMetricFamily("workbench_workers_alive", "Inference workers that are running.", self._workers.ready)
        yield GaugeMetricFamily(
            "workbench_no_worker_seconds",
            "How long no worker could answer; 0 while one can. The service ends when it is too long.",
            self._workers.down_s,
        )


def least_loaded(free: Sequence[int], busy: Sequence[int], devices: int) -> int:
    """The place in `free` of the worker that gets the next batch.

    That is a worker of the device with the fewest batches in flight; among several the one that is free longest.
    `workbench.prediction.simulation` assumes it.

    Args:
        free: numbers of free workers, the one that has been free longest first; not empty.
        busy: numbers of workers that have a batch.
        devices: worker n computes on device n modulo this.
    """
    in_flight = [0] * devices
    for number in busy:
        in_flight[number % devices] += 1
    return min(range(len(free)), key=lambda place: in_flight[free[place] % devices])
