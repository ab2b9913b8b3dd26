"""The workers of a service: who is free, who has which batch, and what Prometheus is told of them."""

from __future__ import annotations

import multiprocessing.process
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from workbench.bundle import Bundle
from workbench.serve import worker
from workbench.serve.batcher import Batch
from workbench.serve.cards import HERE, Place
from workbench.serve.pool import Member, Pool, spawned
from workbench.serve.settings import ServeSettings
from workbench.serve.wire import Message
from workbench.values.errors import ToolchainError, WorkbenchError
from workbench.values.system.environment import variables_set

if TYPE_CHECKING:
    from workbench.serve.dispatch import Dispatch

_FAILED_BATCHES = 3
"""In a row; then the worker is started again, which replays the golden samples."""


@dataclass(slots=True, eq=False)
class Worker(Member):
    """Attributes:
    place: where it computes.
    failed_batches: in a row.
    """

    place: Place = HERE
    batch: Batch | None = None
    failed_batches: int = 0
    _resident_bytes: int = 0

    @property
    def stopped(self) -> bool:
        """Somebody's SIGSTOP keeps it from answering; it is not dead, and would go on."""
        assert self.process is not None
        try:
            return bool(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)
        except (psutil.Error, OSError):
            return False

    @property
    def resident_bytes(self) -> int:
        """0 when it is gone; the last known where it cannot be read, as when this process has no file left."""
        assert self.process is not None
        try:
            self._resident_bytes = int(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0
        except (psutil.Error, OSError):
            pass
        return self._resident_bytes


class Workers(Pool[Worker], Collector):
    """`service.workers` at each place; worker n computes at place n modulo their number."""

    KIND, FAILED, FIRST_ALL = "worker", "start_failed", True
    TOLD = ("pid", "device", "samples", "startup_s")

    def __init__(
        self,
        bundle: Bundle,
        settings: ServeSettings,
        places: Sequence[Place],
        owner: Dispatch,
        give_up: Callable[[WorkbenchError], None],
    ) -> None:
        count, limits = settings.service.workers * len(places), settings.limits
        members = [Worker(number, place=places[number % len(places)]) for number in range(count)]
        super().__init__(members, limits.no_worker_s, limits.first_start_s, give_up)
        self._bundle, self._settings, self._owner, self._places = bundle, settings, owner, len(places)
        self._free: list[Worker] = []

    @property
    def free(self) -> int:
        return len(self._free)

    def run(self, batch: Batch) -> None:
        """Hand a batch to a free worker."""
        busy = [one.number for one in self.all if one.batch is not None]
        chosen = self._free.pop(least_loaded([one.number for one in self._free], busy, self._places))
        chosen.batch = batch
        chosen.say({"batch": 0}, batch.feeds)

    def launch(self, member: Worker) -> tuple[multiprocessing.process.BaseProcess, socket.socket]:
        """See `Pool`."""
        bundle, settings, number = self._bundle, self._settings, member.number
        work = worker.Work(
            directory=str(bundle.directory),
            manifest_sha256=bundle.manifest_sha256,
            rows=settings.service.max_batch_size,
            policy=settings.policy,
            place=number % self._places,
            device=member.place.device,
        )
        with variables_set(member.place.environment):
            return spawned(f"worker-{number}", worker.run, work)

    def received(self, member: Worker, message: Message) -> None:
        """See `Pool`."""
        head = message.head
        if "ready" in head:
            self._freed(member)
            return
        batch, member.batch = member.batch, None
        assert batch is not None
        error = head.get("error")
        member.failed_batches = 0 if error is None else member.failed_batches + 1
        if member.failed_batches < _FAILED_BATCHES:
            self._freed(member)
        else:
            member.kill()
        if error is None:
            self._owner.answered(batch, member.number, message.arrays, head["run_s"])
        else:
            self._owner.refused(batch, member.number, error)

    def _freed(self, member: Worker) -> None:
        self._free.append(member)
        self._owner.worker_free()

    def emptied(self, member: Worker) -> dict[str, Any]:
        """See `Pool`."""
        if member in self._free:
            self._free.remove(member)
        member.failed_batches = 0
        return {}

    def changed(self, member: Worker) -> None:
        """See `Pool`."""
        self._owner.worker_changed()
        if member.state == "lost" and member.batch is not None:
            batch, member.batch = member.batch, None
            self._owner.lost(batch)

    def about(self, member: Worker) -> dict[str, Any]:
        """See `Pool`."""
        return {"card": member.place.card} if member.place.card else {}

    def none_left(self, last: Worker) -> ToolchainError:
        """See `Pool`."""
        count = sum(one.failed_starts for one in self.all)
        return ToolchainError(
            f"no worker could answer for {self.outage.limit_s:g} s (--no-worker-timeout-s), in which {count} starts "
            f"failed; the last one, of worker {last.number}: {last.error}. Start the service again; where that does "
            "not help, look at its limits of memory, processes and open files, at its log and at the device."
        )

    def collect(self) -> Iterable[Metric]:
        """Of each that is ready its memory: a dead process has none, and a last value would look like one."""
        labels = ["worker"]
        restarts = CounterMetricFamily(
            "workbench_worker_restarts", "Times a worker was started again after it died.", labels=labels
        )
        failed = CounterMetricFamily(
            "workbench_worker_failed_starts",
            "Starts of a worker that failed: no process could be made, or it died before it was ready.",
            labels=labels,
        )
        resident = GaugeMetricFamily(
            "workbench_worker_resident_memory_bytes", "Resident memory of a worker process.", labels=labels
        )
        device = GaugeMetricFamily(
            "workbench_worker_device_memory_bytes",
            "Device memory of a worker's session; absent where the host computes.",
            labels=labels,
        )
        for one in self.all:
            label = [str(one.number)]
            restarts.add_metric(label, one.restarts)
            failed.add_metric(label, one.all_failed_starts)
            if one.state == "ready":
                resident.add_metric(label, one.resident_bytes)
                if one.facts["device_bytes"] is not None:
                    device.add_metric(label, one.facts["device_bytes"])
        yield from (restarts, failed, resident, device)
        yield GaugeMetricFamily("workbench_workers_alive", "Inference workers that are running.", self.ready)
        yield GaugeMetricFamily(
            "workbench_no_worker_seconds",
            "How long no worker could answer; 0 while one can. The service ends when it is too long.",
            self.outage.lasts_s(time.monotonic()),
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
