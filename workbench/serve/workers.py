"""The front end's side of the workers: who is free, who has which batch, who died and starts again."""

from __future__ import annotations

import asyncio
import multiprocessing.process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import psutil

from workbench.serve.batcher import Batch
from workbench.serve.events import log
from workbench.serve.lit import WorkerLauncher
from workbench.serve.wire import Message, Reader, pack
from workbench.targets.base import Array

State = Literal["starting", "ready", "lost"]

MOST_FAILED_STARTS = 5
"""In a row, of every worker; then the service ends and its supervisor decides. While one answers, the others go on
trying: a card that broke does not take the cards beside it out of service."""
_FAILED_BATCHES = 3
"""In a row; then the worker is started again, which replays the golden samples."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_END_S = 3.0
"""How long a worker may take to end once its socket is closed."""


class Owner(Protocol):
    """Who is told what happens to workers; all calls come from the event loop."""

    def worker_ready(self, worker: Worker) -> None:
        """A worker started, or started again; its facts are there."""

    def worker_free(self) -> None:
        """One more worker can take a batch. Told before `answered`: a worker idles while answers are written."""

    def answered(self, batch: Batch, worker: int, outputs: Mapping[str, Array], run_s: float) -> None:
        """A batch came back."""

    def refused(self, batch: Batch, worker: int, error: str) -> None:
        """The session refused a batch; the worker lives."""

    def lost(self, batch: Batch | None, worker: int) -> None:
        """A worker that had been ready died, with this batch in its hands."""


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process, as seen from here."""

    number: int
    state: State = "starting"
    process: multiprocessing.process.BaseProcess | None = None
    transport: asyncio.Transport | None = None
    batch: Batch | None = None
    restarts: int = 0
    failed_starts: int = 0
    failed_batches: int = 0
    error: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def resident_bytes(self) -> int:
        """0 when it is gone."""
        assert self.process is not None
        assert self.process.pid is not None
        try:
            return int(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0


class Workers:
    """A fixed number of workers that are kept running."""

    def __init__(
        self, launcher: WorkerLauncher, count: int, devices: int, owner: Owner, give_up: Callable[[str], None]
    ) -> None:
        """`count` workers on all devices together; worker n computes on device n modulo `devices`."""
        self.all: Sequence[Worker] = [Worker(number) for number in range(count)]
        self.proved = False
        self._launcher, self._owner, self._give_up = launcher, owner, give_up
        self._devices = devices
        self._free: list[Worker] = []
        self._ending = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def ready(self) -> int:
        return sum(worker.state == "ready" for worker in self.all)

    @property
    def restarting(self) -> bool:
        """A lost worker is on its way back."""
        return bool(self._tasks) or any(worker.state == "starting" for worker in self.all)

    async def start(self) -> None:
        """Start all; `proved` is True once each was ready at the same time."""
        for worker in self.all:
            await self._launch(worker)

    def run(self, batch: Batch) -> None:
        """Hand a batch to a free worker."""
        busy = [worker.number for worker in self.all if worker.batch is not None]
        worker = self._free.pop(least_loaded([worker.number for worker in self._free], busy, self._devices))
        worker.batch = batch
        assert worker.transport is not None
        worker.transport.write(pack({"batch": 0}, batch.feeds))

    def kill(self, worker: Worker) -> None:
        """End a worker at once; it is noticed like any other death."""
        if worker.process is not None:
            worker.process.kill()

    async def end(self) -> None:
        """Close every socket, which ends the processes; kill those that do not end."""
        self._ending = True
        for task in self._tasks:
            task.cancel()
        for worker in self.all:
            if worker.transport is not None:
                worker.transport.close()
            if worker.state != "ready":  # it would look at its socket only when it has opened the model
                self.kill(worker)
        await asyncio.gather(*(asyncio.to_thread(_gone, w.process) for w in self.all if w.process is not None))

    async def _launch(self, worker: Worker) -> None:
        worker.state, worker.batch, worker.facts = "starting", None, {}
        worker.process, ours = self._launcher.launch(worker.number)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        worker.transport, _ = await loop.create_unix_connection(lambda: _Link(self, worker), sock=ours)
        worker.transport.set_write_buffer_limits(0)  # uvloop would keep a batch until it has read whatever else came

    def received(self, worker: Worker, message: Message) -> None:
        head = message.head
        if "ready" in head:
            worker.facts, worker.state, worker.failed_starts, worker.error = head["ready"], "ready", 0, ""
            self.proved = self.proved or self.ready == len(self.all)
            log(
                "worker_ready",
                worker=worker.number,
                **{k: head["ready"][k] for k in ("pid", "device", "samples", "startup_s")},
            )
            self._owner.worker_ready(worker)
        elif "failed" in head:
            worker.error = head["failed"]
            return
        else:
            batch, worker.batch = worker.batch, None
            assert batch is not None
            error = head.get("error")
            worker.failed_batches = 0 if error is None else worker.failed_batches + 1
            if worker.failed_batches < _FAILED_BATCHES:
                self._freed(worker)
            else:
                self.kill(worker)
            if error is None:
                self._owner.answered(batch, worker.number, message.arrays, head["run_s"])
            else:
                self._owner.refused(batch, worker.number, error)
            return
        self._freed(worker)

    def _freed(self, worker: Worker) -> None:
        self._free.append(worker)
        self._owner.worker_free()

    def disconnected(self, worker: Worker) -> None:
        """Its socket closed: it died, or we end it."""
        if worker in self._free:
            self._free.remove(worker)
        was, worker.state = worker.state, "lost"
        batch, worker.batch = worker.batch, None
        if self._ending:
            return
        if was == "starting":
            worker.failed_starts += 1
            worker.error = worker.error or "it ended while it started"
        else:
            worker.error = "it died"
        log("worker_lost", worker=worker.number, was=was, error=worker.error)
        self._owner.lost(batch, worker.number)
        if was == "starting" and not self.proved:
            self._give_up(worker.error)
        elif none_starts(self.all):
            self._give_up(f"no worker starts any more, {MOST_FAILED_STARTS} times in a row: {worker.error}")
        else:
            task = asyncio.get_running_loop().create_task(self._restart(worker))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _restart(self, worker: Worker) -> None:
        assert worker.process is not None
        await asyncio.to_thread(_gone, worker.process, 0.0)
        await asyncio.sleep(pause_s(worker.failed_starts))
        worker.restarts += 1
        await self._launch(worker)


def none_starts(workers: Sequence[Worker]) -> bool:
    """Whether every worker failed to start too often; one that was ready since, or has just died, has not."""
    return all(worker.failed_starts >= MOST_FAILED_STARTS for worker in workers)


def pause_s(failed_starts: int) -> float:
    """Before a worker is started again that failed to start so many times in a row."""
    return min(_FIRST_PAUSE_S * 4.0 ** min(failed_starts, MOST_FAILED_STARTS), _LONGEST_PAUSE_S)


def least_loaded(free: Sequence[int], busy: Sequence[int], devices: int) -> int:
    """The place in `free` of the worker that gets the next batch.

    That is a worker of the device with the fewest batches in flight; among several the one that is free longest.
    `workbench.serving_model` assumes it.

    Args:
        free: numbers of free workers, the one that has been free longest first; not empty.
        busy: numbers of workers that have a batch.
        devices: worker n computes on device n modulo this.
    """
    in_flight = [0] * devices
    for number in busy:
        in_flight[number % devices] += 1
    return min(range(len(free)), key=lambda place: in_flight[free[place] % devices])


class _Link(asyncio.Protocol):
    """The event loop's view of one worker's socket."""

    def __init__(self, workers: Workers, worker: Worker) -> None:
        self._workers, self._worker, self._reader = workers, worker, Reader()

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            self._workers.received(self._worker, message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._workers.disconnected(self._worker)


def _gone(process: multiprocessing.process.BaseProcess, patience_s: float = _END_S) -> None:
    process.join(patience_s)
    if process.exitcode is None:
        process.kill()
        process.join()
