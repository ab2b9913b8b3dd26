"""The front end's side of the workers: who is free, who has which batch, who died and starts again."""

from __future__ import annotations

import asyncio
import multiprocessing.process
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

import psutil

from workbench.serve.batcher import Batch
from workbench.serve.events import log, log_defect
from workbench.serve.lit import WorkerLauncher
from workbench.serve.outage import Outage, longest_start_s
from workbench.serve.settings import Limits
from workbench.serve.wire import Message, Reader, pack
from workbench.targets.base import Array
from workbench.values.errors import BundleError, ToolchainError, WorkbenchError

State = Literal["starting", "ready", "lost"]

_FAILED_BATCHES = 3
"""In a row; then the worker is started again, which replays the golden samples."""
_END_S = 3.0
"""How long a worker may take to end once its socket is closed."""
_KILL_S = 10.0
"""How long the kernel may take to end a process that was killed; one in a driver's call may take for ever."""
_POLL_S = 0.02
_REAP_S = 0.05
"""How long to wait for the status of a process whose socket the kernel has closed: it follows at once."""


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
        """A worker died, with this batch in its hands."""

    def start_failed(self, worker: Worker) -> None:
        """A worker could not be started, or died before it was ready; it is tried again."""


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process, as seen from here.

    Attributes:
        restarts: processes that were started after the first.
        failed_starts: in a row, since it was ready last.
        error: why it was lost last, or did not start; '' once it is ready.
        said: why its process cannot become ready, in its own words or in ours; '' while nothing is known.
        refused: what ends a service that was never ready, since another try would end the same.
        began_s: when its process was started.
        slow: what ends a start that hangs.
    """

    number: int
    state: State = "starting"
    process: multiprocessing.process.BaseProcess | None = None
    transport: asyncio.Transport | None = None
    batch: Batch | None = None
    restarts: int = 0
    failed_starts: int = 0
    failed_batches: int = 0
    error: str = ""
    said: str = ""
    refused: WorkbenchError | None = None
    began_s: float = 0.0
    slow: asyncio.TimerHandle | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    _resident_bytes: int = 0

    @property
    def stopped(self) -> bool:
        """Somebody's SIGSTOP keeps it from answering; it is not dead, and would go on."""
        assert self.process is not None
        assert self.process.pid is not None
        try:
            return bool(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)
        except (psutil.Error, OSError):
            return False

    @property
    def resident_bytes(self) -> int:
        """0 when it is gone; the last known where it cannot be read, as when this process has no file left."""
        assert self.process is not None
        assert self.process.pid is not None
        try:
            self._resident_bytes = int(psutil.Process(self.process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0
        except (psutil.Error, OSError):
            pass
        return self._resident_bytes


class Workers:
    """A fixed number of workers that are kept running.

    A worker that cannot be started, whatever the reason, is tried again after a pause that grows. While one answers,
    the others go on trying without end: a card that broke does not take the cards beside it out of service. Where none
    does for `limits.no_worker_s`, the service is told to give up, and what supervises it decides.
    """

    def __init__(
        self,
        launcher: WorkerLauncher,
        count: int,
        cards: Sequence[str],
        owner: Owner,
        give_up: Callable[[WorkbenchError], None],
        limits: Limits,
    ) -> None:
        """`count` workers on all cards together; worker n computes on card n modulo their number."""
        self.all: Sequence[Worker] = [Worker(number) for number in range(count)]
        self.proved = False
        self.outage = Outage(limits.no_worker_s)
        self._launcher, self._owner, self._give_up, self._limits = launcher, owner, give_up, limits
        self._cards = tuple(cards)
        self._slowest_s: float | None = None
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
    def none_starts(self) -> bool:
        """None is ready, and the last start of each failed; what came now would wait for no one knows how long."""
        return all(worker.failed_starts for worker in self.all)

    def card(self, worker: Worker) -> str:
        """The name of the card it computes on; '' where the host computes."""
        return self._cards[worker.number % len(self._cards)]

    def start(self) -> None:
        """Start all; `proved` is True once each was ready at the same time. Call it inside the event loop."""
        for worker in self.all:
            self._begin(worker)

    def run(self, batch: Batch) -> None:
        """Hand a batch to a free worker."""
        busy = [worker.number for worker in self.all if worker.batch is not None]
        worker = self._free.pop(least_loaded([worker.number for worker in self._free], busy, len(self._cards)))
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
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self.all:
            if worker.transport is not None:
                worker.transport.close()
            if worker.state != "ready":  # it would look at its socket only when it has opened the model
                self.kill(worker)
        if not await _gone(self.all, _END_S):
            for worker in self.all:
                self.kill(worker)
            if not await _gone(self.all, _KILL_S):
                log("worker_remains", pids=[w.process.pid for w in self.all if w.process is not None and _runs(w)])

    def _begin(self, worker: Worker) -> None:
        task = asyncio.get_running_loop().create_task(self._until_it_runs(worker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_it_runs(self, worker: Worker) -> None:
        while True:
            if worker.process is not None or worker.failed_starts:
                await asyncio.sleep(self.outage.pause_s(worker.failed_starts, time.monotonic()))
            try:
                await _killed(worker)
                await self._launch(worker)
            except Exception as error:  # whatever it is, the others must be kept and this one tried again
                if not isinstance(error, OSError):
                    log_defect(error)
                self._start_failed(worker, f"it could not be started: {_words(error)}")
            else:
                return

    async def _launch(self, worker: Worker) -> None:
        again = worker.process is not None
        worker.said, worker.refused, worker.facts = "", None, {}
        worker.process, ours = self._launcher.launch(worker.number)
        worker.restarts += again
        worker.state, worker.began_s = "starting", time.monotonic()
        loop, limits = asyncio.get_running_loop(), self._limits
        most_s = longest_start_s(self._slowest_s, first_s=limits.first_start_s, limit_s=limits.no_worker_s)
        worker.slow = loop.call_later(most_s, self._too_slow, worker, most_s)
        try:
            ours.setblocking(False)
            await loop.create_unix_connection(lambda: _Link(self, worker), sock=ours)
        except BaseException:
            self._no_longer_slow(worker)
            ours.close()
            worker.process.kill()
            raise

    def _too_slow(self, worker: Worker, most_s: float) -> None:
        worker.said = f"it was not ready after {most_s:.0f} s"
        self.kill(worker)

    def received(self, worker: Worker, message: Message) -> None:
        head = message.head
        if "ready" in head:
            worker.facts, worker.state, worker.failed_starts, worker.error = head["ready"], "ready", 0, ""
            self._slowest_s = max(self._slowest_s or 0.0, time.monotonic() - worker.began_s)
            self._no_longer_slow(worker)
            self.proved = self.proved or self.ready == len(self.all)
            if self.proved:
                self.outage.end()
            log(
                "worker_ready",
                worker=worker.number,
                **self._on(worker),
                **{k: head["ready"][k] for k in ("pid", "device", "samples", "startup_s")},
            )
            self._owner.worker_ready(worker)
        elif "failed" in head:
            worker.said = head["failed"]
            if head["final"]:
                worker.refused = (ToolchainError if head["machine"] else BundleError)(head["failed"])
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
        self._no_longer_slow(worker)
        if self._ending:
            return
        error = "it died" if was == "ready" else worker.said or _end_of_start(worker)
        worker.error = error
        log("worker_lost", worker=worker.number, **self._on(worker), was=was, error=error)
        self._owner.lost(batch, worker.number)
        if was == "ready":
            if not self.ready:
                self.outage.begin(time.monotonic())
        elif worker.refused is not None and not self.proved:
            self._give_up(worker.refused)
            return
        else:
            self._start_failed(worker, error)
        self._begin(worker)

    def _start_failed(self, worker: Worker, error: str) -> None:
        now_s = time.monotonic()
        worker.failed_starts += 1
        worker.state, worker.error = "lost", error
        if not self.proved or not self.ready:
            self.outage.begin(now_s)
        log("start_failed", worker=worker.number, error=error, in_a_row=worker.failed_starts)
        self._owner.start_failed(worker)
        under_way = any(w.state == "starting" and not w.failed_starts for w in self.all)
        if self.outage.is_over_limit(now_s) and not under_way:
            self._give_up(_no_worker(self.outage, self.all, worker))

    def _on(self, worker: Worker) -> dict[str, str]:
        card = self.card(worker)
        return {"card": card} if card else {}

    def _no_longer_slow(self, worker: Worker) -> None:
        if worker.slow is not None:
            worker.slow.cancel()
            worker.slow = None


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


class _Link(asyncio.Protocol):
    """The event loop's view of one worker's socket."""

    def __init__(self, workers: Workers, worker: Worker) -> None:
        self._workers, self._worker, self._reader = workers, worker, Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._worker.transport = stream = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        stream.set_write_buffer_limits(0)  # uvloop would keep a batch until it has read whatever else came

    def data_received(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            self._workers.received(self._worker, message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._workers.disconnected(self._worker)


async def _killed(worker: Worker) -> None:
    """End what is left of its last process: two would share its device.

    Raises:
        TimeoutError: the kernel does not end it.
    """
    if worker.process is None:
        return
    worker.process.kill()
    if not await _gone([worker], _KILL_S):
        raise TimeoutError(f"its last process, {worker.process.pid}, does not end although it was killed")


async def _gone(workers: Sequence[Worker], patience_s: float) -> bool:
    """Whether their processes ended in time. Asks again and again: a thread that waits may itself not be had."""
    until_s = time.monotonic() + patience_s
    while any(map(_runs, workers)):
        if time.monotonic() > until_s:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _end_of_start(worker: Worker) -> str:
    assert worker.process is not None
    worker.process.join(_REAP_S)
    status = worker.process.exitcode
    if status is None:
        return "it ended while it started"
    if status >= 0:
        return f"it ended with status {status} while it started"
    try:
        return f"it was killed by {signal.Signals(-status).name} while it started"
    except ValueError:  # a real-time signal has no name
        return f"it was killed by signal {-status} while it started"


def _runs(worker: Worker) -> bool:
    return worker.process is not None and worker.process.exitcode is None


def _words(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"


def _no_worker(outage: Outage, workers: Sequence[Worker], last: Worker) -> ToolchainError:
    count = sum(worker.failed_starts for worker in workers)
    return ToolchainError(
        f"no worker could answer for {outage.limit_s:g} s (--no-worker-timeout-s), in which {count} starts failed; the "
        f"last one, of worker {last.number}: {last.error}. Start the service again; where that does not help, look at "
        "its limits of memory, processes and open files, at its log and at the device."
    )
